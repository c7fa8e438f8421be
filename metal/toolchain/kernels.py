"""The pass that finds kernels and their instantiations, and removes what only Metal's compiler reads of them.

[[kernel]] void f(...) { }                                    kernel f
template <typename T> kernel void g(...) { }
template [[host_name("g_half")]] kernel decltype(g<half>) g<half>;      instance g_half of g
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from .tokens import MslError, Source


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its declared type as text, and its attributes."""

    name: str
    type: str
    attributes: dict[str, str]


@dataclass(frozen=True)
class Kernel:
    """A kernel function or function template. `limit` is the expression that says how many threads a threadgroup has at
    most, `max_threads` its value where it is a number; "" and 0 where the text does not say it for all instances."""

    name: str
    parameters: tuple[Parameter, ...]
    limit: str
    max_threads: int
    place: str


@dataclass(frozen=True)
class Instance:
    """What a pipeline is made of: the name that the host asks for, and the function as an expression."""

    name: str
    expression: str
    kernel: str


@dataclass
class Kernels:
    """The kernels of a text by function name, and their instances in the order of the text."""

    functions: dict[str, Kernel] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)


def find_kernels(source: Source) -> Kernels:
    """Finds the kernels, drops the word `kernel` and the explicit instantiations from the text."""
    found = Kernels()
    position = 0
    while position < len(source):
        if source[position] == "template" and source[position + 1] != "<":
            position = _instantiation(source, position, found)
        elif source[position] == "kernel" or "kernel" in source.attributes(position, position + 1):
            position = _function(source, position, found)
        position += 1
    source.compact()
    for instance in found.instances:
        if instance.kernel not in found.functions:
            raise MslError(f"error: instantiation {instance.name!r} names {instance.kernel!r}, which is no kernel here")
    return found


def _unquoted(text: str) -> str:
    return "".join(re.findall(r'"([^"]*)"', text))


def _instantiation(source: Source, position: int, found: Kernels) -> int:
    end = source.statement_end(position)
    if end < 0:
        source.fail(position, "an explicit instantiation ends with ';'")
    name = source.attributes(position, end).get("host_name")
    if name is None:
        return end
    function = position + 1
    while source[function] == "kernel":
        function += 1
    if source[function] == "decltype":
        closing = source.close(function + 1)
        expression, kernel = source.join(function + 2, closing), source[function + 2]
    else:
        while not (source.is_name(function) and source[function + 1] in ("<", "(") and source[function] != "void"):
            function += 1
            if function >= end:
                source.fail(position, "an instantiation with a host_name names a kernel")
        kernel = source[function]
        arguments = source.close_angle(function + 1) + 1 if source[function + 1] == "<" else function + 1
        expression = source.join(function, arguments)
    found.instances.append(Instance(_unquoted(name), expression, kernel))
    source.remove(position, end + 1)
    return end


def _function(source: Source, position: int, found: Kernels) -> int:
    name = position + 1
    while not (source.is_name(name) and source[name + 1] == "("):
        name += 1
        if name >= len(source):
            source.fail(position, "`kernel` opens a function")
    closing = source.close(name + 1)
    # The attributes of a function stand before its type, behind the template's parameters.
    attributes = source.attributes(position - 3, name)
    limit = attributes.get("max_total_threads_per_threadgroup", "")
    # One that depends on a parameter of the template has no value out here.
    header = _template_header(source, position)
    parameters = {word for word, end in itertools.pairwise(header) if end in (",", ">")}
    if parameters & set(re.findall(r"\w+", limit)):
        limit = ""
    kernel = source[name]
    found.functions[kernel] = Kernel(
        kernel,
        tuple(
            Parameter(source[end - 1], source.join(first, end - 1), source.attributes(first, end))
            for first, end in source.split(name + 2, closing)
        ),
        limit,
        int(limit) if limit.isdigit() else 0,
        source.place(name),
    )
    if source[position] == "kernel":
        source[position] = ""
    if source[closing + 1] == "{" and not _is_template(source, position):
        found.instances.append(Instance(_unquoted(attributes.get("host_name", "")) or kernel, kernel, kernel))
    return closing


def _is_template(source: Source, position: int) -> bool:
    return bool(_template_header(source, position))


def _template_header(source: Source, position: int) -> list[str]:
    """The words from `template` to a function's `kernel`, none for a plain function."""
    words: list[str] = []
    while position >= 0 and source[position] not in (";", "}", "{"):
        words.insert(0, source[position])
        if source[position] == "template":
            return words
        position -= 1
    return []
