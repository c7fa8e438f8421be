"""The last pass: address-space qualifiers, and names that are words of OpenCL."""

from __future__ import annotations

from .dialect import MEMBER_QUALIFIERS, QUALIFIERS, RESERVED
from .tokens import Source


def rewrite_qualifiers(source: Source) -> None:
    """Replaces MSL's qualifiers by clang's."""
    for i in range(len(source)):
        word = source[i]
        if word in RESERVED and source.is_name(i):
            source[i] = word + "_"
        elif word in QUALIFIERS and source[i - 1] not in (".", "->"):
            behind_function = source[i - 1] == ")" or (source[i - 1] == "const" and source[i - 2] == ")")
            if behind_function and source[i + 1] in (":", "{", ";", "const", "=", ","):
                # A constructor for `thread` serves temporaries too, which have no address space: unqualified.
                source[i] = "" if word == "thread" and source[i + 1] == ":" else MEMBER_QUALIFIERS[word]
            else:
                source[i] = QUALIFIERS[word]
