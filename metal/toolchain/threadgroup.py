"""Threadgroup variables of a kernel: references into the threadgroup's memory, which the executor hands out by number.

threadgroup float t[32];   ->   __local float (&t)[32] = *(__local float (*)[32])__msl_tg(0, sizeof(float [32]));
"""

from __future__ import annotations

from .tokens import Source

MAX_VARIABLES = 64  # of one kernel; the size of the executor's table (runtime/threadgroup.h)


def rewrite_threadgroup_variables(source: Source, position: int, first_site: int) -> tuple[int, int] | None:
    """Rewrites the declaration whose `threadgroup` stands at a position. Gives its ';' and how many variables it had;
    None where `threadgroup` qualifies what a pointer or reference points at."""
    end = source.statement_end(position)
    if end < 0:
        return None
    parts = source.split(position + 1, end)
    name = _declared_name(source, *parts[0])
    if name is None:
        return None
    type_name = source.join(parts[0][0], name)
    statements: list[str] = []
    for number, (first, last) in enumerate(parts):
        at = name if number == 0 else first
        equals = next((i for i in range(at + 1, last) if source[i] == "="), last)
        dimensions = source.join(at + 1, equals)
        statements += _declaration(
            type_name, source[at], dimensions, source.join(equals + 1, last), first_site + number
        )
    if first_site + len(parts) > MAX_VARIABLES:
        source.fail(position, f"a kernel has more than {MAX_VARIABLES} threadgroup variables")
    source.remove(position, end + 1)
    source[position] = " ".join(statements)
    return end, len(parts)


def _declared_name(source: Source, first: int, end: int) -> int | None:
    """The position of the name of the first declarator; None for a pointer, a reference, or no name behind a type."""
    found, i = None, first
    while i < end and source[i] not in ("[", "="):
        if source[i] in ("*", "&"):
            return None
        if source[i] == "<":
            i = source.close_angle(i)
            if i < 0:
                return None
        elif source.is_name(i):
            found = i
        i += 1
    return None if found in (None, first) else found


def _declaration(type_name: str, name: str, dimensions: str, value: str, site: int) -> list[str]:
    memory = f"__msl_tg({site}, sizeof({type_name}{dimensions}))"
    if dimensions:
        whole = [f"__local {type_name} (&{name}){dimensions} = *(__local {type_name} (*){dimensions}){memory};"]
        store = f"{type_name} __i{dimensions} = {value}; __builtin_memcpy(&{name}, &__i, sizeof __i);"
    else:
        whole = [f"__local {type_name} &{name} = *(__local {type_name} *){memory};"]
        store = f"{name} = {value};"
    # One thread stores the initial value; a barrier must follow, as for any other write.
    return [*whole, f"if (__msl_index() == 0) {{ {store} }}"] if value else whole
