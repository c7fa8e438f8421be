"""Declarations with the `constant` qualifier: function constants, what is derived from them, tables, plain values.

constant uint N [[function_constant(0)]];   a variable of the module, set by the driver for a pipeline
constant uint M = N * 2;                    an expression, evaluated where it is used
constant float T[4] = {...};                a table in __global, handed out as `constant`
constant constexpr uint K = 64;             an ordinary constant: its value matters, not its address
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .tokens import Source


@dataclass(frozen=True)
class FunctionConstant:
    """A value that the driver sets when it makes a pipeline."""

    name: str
    index: int
    type: str


@dataclass
class Constants:
    """The function constants of a text, and the names of constants that are derived from them."""

    declared: list[FunctionConstant] = field(default_factory=list)
    derived: set[str] = field(default_factory=set)


def rewrite_constant(source: Source, position: int, scope: str, constants: Constants) -> int | None:
    """Rewrites the declaration that begins at a position, where it declares a `constant` variable. Gives the position
    of its ';' where the statement is replaced as a whole."""
    if not _declares_constant(source, position):
        return None
    end = source.statement_end(position)
    if end < 0:
        return None
    value, name = _declarator(source, position, end)
    words = source.words(position, name)
    type_name = " ".join(w for w in words if w not in ("constant", "static", "constexpr", "const", "inline"))
    if scope == "namespace":
        index = source.attributes(position, end + 1).get("function_constant")
        if index is not None:
            return _function_constant(
                source, position, end, FunctionConstant(source[name], int(index), type_name), constants
            )
        names = {constant.name for constant in constants.declared} | constants.derived
        if source[value] == "=" and names & set(source.words(value, end)):
            constants.derived.add(source[name])
            expression = f"\n#define {source[name]} (({type_name})({source.join(value + 1, end)}))\n"
            return _replace(source, position, end, expression)
        if source[value] == "[":
            _table(source, position, name, end)
            return None
    _plain_value(source, position, name, scope)
    return None


def _declares_constant(source: Source, position: int) -> bool:
    found, i = False, position
    while source[i] not in (";", "{", "(", "=", "*", "&", ")", ""):
        found = found or source[i] == "constant"
        if source[i] == "<" and (closing := source.close_angle(i)) > 0:
            i = closing
        i += 1
    return found and source[i] not in ("(", "*", "&") and source[position] not in ("using", "typedef")


def _declarator(source: Source, position: int, end: int) -> tuple[int, int]:
    """Where the declared name stands, and where its dimensions, its value or the end follow: (rest, name)."""
    name, i = position, position
    while i < end and source[i] not in ("[", "=", "{"):
        if source[i] == "<" and (closing := source.close_angle(i)) > 0:
            i = closing
        elif source.is_name(i):
            name = i
        i += 1
    return i, name


def _replace(source: Source, position: int, end: int, text: str) -> int:
    marker = source.line_marker(end)
    source.remove(position, end + 1)
    source[position] = text + marker
    return end


def _function_constant(
    source: Source, position: int, end: int, constant: FunctionConstant, constants: Constants
) -> int:
    constants.declared.append(constant)
    name, index = constant.name, constant.index
    return _replace(
        source,
        position,
        end,
        f'\nextern "C" {{ __global {constant.type} __msl_fc_{index}; __global unsigned char __msl_fcd_{index}; }}\n'
        f"#define {name} __msl_fc_{index}\n#define __msl_isdef_{name} __msl_fcd_{index}\n",
    )


def _table(source: Source, position: int, name: int, end: int) -> None:
    for i in range(position, name):
        if source[i] in ("constant", "static", "const"):
            source[i] = ""
    source.insert_before(position, "static const __global ")
    word = source[name]
    source[name] = f"{word}__c"
    source.insert_after(end, f"\n#define {word} (__as_const({word}__c))\n{source.line_marker(end)}")


def _plain_value(source: Source, position: int, name: int, scope: str) -> None:
    words = source.words(position, name)
    for i in range(position, name):
        if source[i] == "constant":
            source[i] = "" if "constexpr" in words or scope == "function" else "const"
        elif source[i] == "static" and scope == "function" and "constexpr" in words:
            source[i] = ""
    if scope == "namespace" and "static" not in words and "constexpr" not in words:
        source.insert_before(position, "static ")
