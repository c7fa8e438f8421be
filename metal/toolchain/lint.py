"""Rules that MSL has and C++ for OpenCL lacks: every pointer and reference names its address space, and a member
function that says nothing works on objects in `thread`."""

from __future__ import annotations

from .dialect import QUALIFIERS
from .tokens import Source

_STATEMENT_WORDS = frozenset({"return", "delete", "goto", "case", "using", "typedef", "template", *QUALIFIERS})


def check_parameters(source: Source, first: int, end: int) -> None:
    """Complains about parameters without an address space, of the function whose head is [first, end)."""
    opening = _parameter_list(source, first, end)
    if opening is not None:
        for part in source.split(opening + 1, source.close(opening)):
            _check_declaration(source, *part)


def check_local(source: Source, position: int) -> None:
    """Complains about a statement `T *name = ...;` without an address space (as a product it makes no sense)."""
    i = position
    while source[i] in ("const", "volatile", "static", "constexpr", "struct", "unsigned"):
        i += 1
    if not source.is_name(i) or source[i] in _STATEMENT_WORDS:
        return
    i += 1
    while source[i] == "::" and source.is_name(i + 1):
        i += 2
    if source[i] == "<":
        closing = source.close_angle(i)
        if closing < 0:
            return
        i = closing + 1
    while source[i] == "const":
        i += 1
    if source[i] not in ("*", "&"):
        return
    name = i + 2 if source[i + 1] == "const" else i + 1
    if source.is_name(name) and source[name + 1] in ("=", ";", ",", "[", "{"):
        _check_declaration(source, position, name + 1)


def qualify_method(source: Source, first: int, end: int, record: str | None, records: set[str]) -> None:
    """Gives a member function, whose head is [first, end), the `thread` that MSL implies. `record` is the type that
    the text stands in, None for a definition outside of it."""
    words = source.words(first, end)
    if {"static", "friend", "~"} & set(words):
        return
    opening = _parameter_list(source, first, end)
    if opening is None:
        return
    if record is None and not _defines_method(source, first, opening, records):
        return
    closing = source.close(opening)
    if record is not None and source[opening - 1] == record:  # a constructor serves temporaries too: unqualified
        for i in range(closing + 1, end):
            if source[i] == "thread":
                source[i] = ""
        return
    if closing >= end or any(w in QUALIFIERS or w in ("->", ":") for w in source.words(closing + 1, end)):
        return
    while source[closing + 1] == "const":
        closing += 1
    source.insert_after(closing, " __private")


def _parameter_list(source: Source, first: int, end: int) -> int | None:
    """The bracket that opens the parameters of the function whose head is [first, end)."""
    i = first
    while source[i] == "template" and source[i + 1] == "<":
        i = source.close_angle(i + 1) + 1
    while i < end and source[i] != "(":
        i = source.close(i + 1) + 1 if source[i] in ("__attribute__", "alignas", "decltype") else i + 1
    if i < end and source[i - 1] == "operator":  # the call operator's own name
        i = source.close(i) + 1
    return i if i < end and source[i] == "(" else None


def _defines_method(source: Source, first: int, opening: int, records: set[str]) -> bool:
    """Whether the head names `Record::method`, and not its constructor."""
    i = opening - 1
    while i > first and source[i] != "::":
        i -= 1
    return i > first and source[i - 1] in records and source[i + 1] != source[i - 1] and opening - i <= 6


def _check_declaration(source: Source, first: int, end: int) -> None:
    """Complains about `T *x` or `T &x` without a qualifier, in one declaration or parameter."""
    i, star = first, None
    while i < end and source[i] not in ("=", "{"):
        if source[i] == "<" and (closing := source.close_angle(i)) > 0:
            i = closing
        elif source[i] == "(" and source[i + 1] not in ("*", "&"):
            return
        elif source[i] in ("*", "&", "&&"):
            star = i
            break
        i += 1
    if star is None or source[star] == "&&" or star == first:
        return
    words = source.words(first, star)
    if "auto" not in words and not any(w in QUALIFIERS for w in words):
        kind = "pointer" if source[star] == "*" else "reference"
        source.complain(star, f"{kind} type must have explicit address space qualifier")
