"""The pass over expressions: what MSL writes and C++ for OpenCL lacks.

float4(a, b.xy, 1)   (half4)v   static_cast<T>(v)   vector constructors and conversions, also of dependent types
1.0h   1.0bf         literals of half and bfloat
atomic_uint          our own type (OpenCL's is another)
matmul2d_descriptor  a number: class-type template arguments need C++20
is_function_constant_defined(X)
"""

from __future__ import annotations

import re

from .dialect import ATOMICS, QUALIFIERS, SCALARS
from .tokens import Source

_LITERAL = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(h|H|bf|BF)")
# Names before `*`, `&` or `>` that make them part of a type rather than an operator.
_TYPE_WORDS = frozenset({*SCALARS, *QUALIFIERS, "const", "void", "auto"})


def rewrite_expressions(source: Source, vectors: set[str], parameters: set[str]) -> None:
    """Rewrites expressions in place. `vectors` and `parameters` are the names of `types`."""
    position = 0
    while position < len(source):
        position = _rewrite(source, position, vectors, parameters) + 1
    source.compact()


def _rewrite(source: Source, position: int, vectors: set[str], parameters: set[str]) -> int:
    """Rewrites what begins at a position and gives the last position that is done with."""
    word = source[position]
    if source.kind(position) == "number":
        if (literal := _LITERAL.fullmatch(word)) and not word.startswith("0x"):
            number = literal[1] if re.search(r"[.eE]", literal[1]) else literal[1] + ".0"
            source[position] = f"(({'half' if literal[2] in 'hH' else 'bfloat'}){number}f)"
    elif not source.is_name(position):
        pass
    elif word in ATOMICS:
        source[position] = f"__msl_{word}"
    elif word == "matmul2d_descriptor":
        source.remove(source.head_of(position), position)
        following = source[position + 1]
        source[position] = "__mm2d_desc" if following == "(" else "__mm2d" if following == "::" else "ulong"
    elif word == "is_function_constant_defined" and source[position + 1] == "(":
        closing = source.close(position + 1)
        source[position] = f"__msl_isdef_{source[position + 2]}"
        source.remove(position + 1, closing + 1)
        return closing
    elif word == "static_cast" and source[position + 1] == "<":
        target = source.words(position + 2, source.close_angle(position + 1))
        if not {"*", "&", "&&"} & set(target):
            source[position] = "__mk"
    elif (word in vectors | parameters or word == "vec") and source[position - 1] not in (
        ".", "->", "struct", "class", "typename", "~",
    ):  # fmt: skip
        return _constructor_or_cast(source, position, vectors, parameters)
    return position


def _constructor_or_cast(source: Source, position: int, vectors: set[str], parameters: set[str]) -> int:
    first, last = source.head_of(position), position
    if source[position] == "vec":
        last = source.close_angle(position + 1) if source[position + 1] == "<" else -1
        if last < 0:
            return position
    type_name, before, opening = source.join(first, last + 1), source[first - 1], last + 1
    if source[opening] == "(" and _is_constructor(source, first - 1, opening, vectors | parameters):
        source[first] = f"__mk<{type_name}>"
        source.remove(first + 1, last + 1)
        return last
    if (
        source[opening] == ")"
        and before == "("
        and (source[position] in vectors or source[position] == "vec")
        and _may_precede_cast(source, first - 2)
        and (
            source.kind(opening + 1) in ("name", "number", "char") or source[opening + 1] in "( - + ~ ! * & ::".split()
        )
    ):
        source[first - 1] = f"__castto<{type_name}>() ->* "
        source.remove(first, opening + 1)
        return opening
    return last


def _is_constructor(source: Source, before: int, opening: int, types: set[str]) -> bool:
    """Whether Type(...), with its bracket at `opening`, is an expression and not the head of a declaration."""
    closing = source.close(opening)
    inner = source.words(opening + 1, closing)
    if not inner or "..." in inner or (inner[0] in ("*", "&", "&&") and source[closing + 1] in ("[", "(")):
        return False
    word = source[before]
    if word in ("*", "&", ">"):  # an operator, where an operand stands before it and no function body follows
        operand = source[before - 1]
        is_value = (
            source.kind(before - 1) == "number"
            or operand in (")", "]")
            or (source.is_name(before - 1) and operand not in types | _TYPE_WORDS)
        )
        return is_value and source[closing + 1] not in ("{", "const")
    return not source.is_name(before) or word in ("return", "else", "case")


def _may_precede_cast(source: Source, position: int) -> bool:
    while position > 0 and not source[position]:  # removed with a cast before this one
        position -= 1
    word = source[position]
    if source.is_name(position):
        return word in ("return", "else", "case", "do")
    return source.kind(position) not in ("number", "string") and word not in (")", "]", ">", "")
