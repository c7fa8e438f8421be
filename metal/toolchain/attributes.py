"""The pass that takes MSL's [[attributes]] out of the text and keeps each beside the token that it follows."""

from __future__ import annotations

from .tokens import Source

# Attributes that clang knows too stay where they are.
_CLANG = frozenset({"clang", "gnu", "maybe_unused", "nodiscard", "likely", "unlikely", "fallthrough", "noreturn"})


def take_attributes(source: Source) -> None:
    """Moves every [[...]] that clang does not know from the text to `Source.attributes`."""
    position = 0
    while position < len(source):
        if source[position] == source[position + 1] == "[" and source.touching(position + 1):
            end = source.close(position)
            found = dict(_attribute(source, *part) for part in source.split(position + 2, end - 1))
            if not all(name.split("::")[0] in _CLANG for name in found):
                source.attach(position - 1, found)
                source.remove(position, end + 1)
            position = end
        position += 1
    source.compact()


def _attribute(source: Source, first: int, end: int) -> tuple[str, str]:
    opening = next((i for i in range(first, end) if source[i] == "("), end)
    return "".join(source.words(first, opening)), source.join(opening + 1, end - 1)
