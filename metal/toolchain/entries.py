"""Entry functions: one C function for each instance of a kernel, which binds buffers and positions to parameters."""

from __future__ import annotations

from dataclasses import dataclass

from .dialect import POSITIONS
from .kernels import Instance, Kernel, Kernels, Parameter
from .tokens import MslError

_HOST_ENTRY = """extern "C" __attribute__((used)) void {symbol}(const __global __msl_args *A) {{
  __msl_pos __p; __msl_pos_get(&__p); {call};
}}
"""
_CUDA_ENTRY = """__kernel __attribute__((used)) void {symbol}(__msl_args __a) {{
  __private __msl_args *A = &__a; __msl_pos __p; __msl_pos_get(&__p, A);
  if (__msl_outside(&__p, A)) return;
  {call};
}}
"""


@dataclass(frozen=True)
class Argument:
    """What a driver binds: `kind` is buffer or threadgroup, `optional` the function constant that an optional buffer
    depends on ("" for none)."""

    kind: str
    index: int
    name: str
    type: str
    optional: str

    @property
    def writable(self) -> bool:
        """Whether the kernel may write there."""
        words = self.type.split()
        return self.kind == "buffer" and "device" in words and "const" not in words


@dataclass(frozen=True)
class Entry:
    """An entry function: the name that a host asks for, its symbol, what it binds, and where the kernel stands."""

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    max_threads: int
    place: str


def write_entries(kernels: Kernels, cuda: bool) -> tuple[str, list[Entry]]:
    """The text of the entry functions, and what they bind."""
    texts, entries = [], []
    for number, instance in enumerate(kernels.instances):
        kernel = kernels.functions[instance.kernel]
        values, arguments = [], []
        for position, parameter in enumerate(kernel.parameters):
            value, argument = _bind(kernel, instance, position, parameter, cuda)
            values.append(value)
            if argument is not None:
                arguments.append(argument)
        symbol = f"__msl_k_{number}"
        call = f"{instance.expression}({', '.join(values)})"
        texts.append((_CUDA_ENTRY if cuda else _HOST_ENTRY).format(symbol=symbol, call=call))
        if cuda and kernel.limit:
            texts.append(f"__constant unsigned {symbol}_threads = ({kernel.limit});\n")
        entries.append(Entry(instance.name, symbol, tuple(arguments), kernel.max_threads, kernel.place))
    return "".join(texts), entries


def _bind(
    kernel: Kernel, instance: Instance, position: int, parameter: Parameter, cuda: bool
) -> tuple[str, Argument | None]:
    declared = f"__msl_par<decltype({instance.expression}), {position}>"
    for kind in ("buffer", "threadgroup"):
        index = parameter.attributes.get(kind, "")
        if index.isdigit():
            optional = parameter.attributes.get("function_constant", "")
            memory = f"A->buf[{index}]"
            if kind == "threadgroup":
                memory = f"__msl_tgarg({f'A->tgoff[{index}]' if cuda else index})"
            return f"__msl_buf<{declared}>({memory})", Argument(
                kind, int(index), parameter.name, parameter.type, optional
            )
    for attribute in parameter.attributes:
        if attribute in POSITIONS:
            return f"__msl_posarg<{declared}>({POSITIONS[attribute]})", None
    raise MslError(
        f"{kernel.place}: error: parameter {parameter.name!r} of kernel {kernel.name} has no [[buffer(n)]], "
        "[[threadgroup(n)]] or position attribute that this toolchain knows"
    )
