"""From the rewritten text to PTX: clang's IR, a step over it, and the NVPTX backend.

The step turns each threadgroup variable into a .shared global and [[threadgroup(n)]] memory into the external one,
joins what clang splits off a kernel, and gives entry functions the names that a host asks for. The mathematics of CUDA
(libdevice) is linked in where a kernel uses it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .clang import find_clang, language_flags
from .tokens import MslError
from .translate import Translation

_VARIABLE = re.compile(r"^(\s*%\S+ = )(?:tail )?call .*@__msl_tg\(i32 noundef \d+, i64 noundef (\d+)\)")
_LIMIT = re.compile(r"^@(__msl_k_\d+)_threads = .*constant i32 (\d+)")
_ENTRY = re.compile(r"^define .*@(__msl_k_\d+)\(")
_LINKAGE = re.compile(r"define (?:(?:internal|linkonce_odr|weak_odr|dso_local) )*")
_MASKED = re.compile(r"\tand\.b32 \t(%r\d+), (%r\d+), (\d+);\n\tor\.b32  ?\t(%r\d+), \1, (\d+);")
_ARGUMENT = re.compile(r"^(\s*%\S+ = )(?:tail )?call .*@__msl_dynsmem\(\)")


def compile_ptx(translation: Translation, folder: Path, output: Path) -> None:
    """Writes the PTX of a translation; `folder` is for intermediate files."""
    clang = find_clang()
    flags = [*language_flags("ptx"), "-O3", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-S", "-o", "-", "-"]
    names = {entry.symbol: entry.name for entry in translation.entries}
    lowered = lower(clang.run(flags, translation.text), names)
    intermediate = folder / "kernels.ll"
    intermediate.write_text(lowered, encoding="utf-8")
    target = [flag for flag in language_flags("ptx") if flag != "-x"]
    target = target[: target.index("clcpp")]
    mathematics = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(find_libdevice())] if "@__nv_" in lowered else []
    clang.run([*target, "-x", "ir", "-O3", *mathematics, "-S", str(intermediate), "-o", str(output)])
    output.write_text(join_masks(output.read_text(encoding="utf-8")), encoding="utf-8")


def lower(ir: str, names: dict[str, str]) -> str:
    """The step over the IR; `names` are those of the entry functions by symbol."""
    limits = {found[1]: found[2] for found in map(_LIMIT.match, ir.split("\n")) if found}
    declared, lines = ["@__msl_dynamic = external addrspace(3) global [0 x i8], align 16"], []
    for line in ir.split("\n"):
        if variable := _VARIABLE.match(line):
            name = f"@__msl_variable_{len(declared)}"
            declared.append(f"{name} = internal addrspace(3) global [{variable[2]} x i8] undef, align 16")
            lines.append(f"{variable[1]}getelementptr i8, ptr addrspace(3) {name}, i64 0")
        elif argument := _ARGUMENT.match(line):
            lines.append(f"{argument[1]}getelementptr i8, ptr addrspace(3) @__msl_dynamic, i64 0")
        elif not (line.startswith("declare") and "@__msl_" in line):
            if "@__msl_tg(" in line or "@__msl_dynsmem(" in line:
                raise MslError(f"threadgroup memory is asked for in a form that is not known: {line.strip()}")
            # What clang marks as used are the entries, which stay, and the bodies that are inlined into them.
            if not _LIMIT.match(line) and not line.startswith("@llvm.compiler.used"):
                lines.append(_limited(_joined(line), limits))
    first = next(i for i, line in enumerate(lines) if line.startswith(("@", "define", "%")))
    whole = "\n".join([*lines[:first], *declared, *lines[first:]])
    return re.sub(r"@(__msl_k_\d+)\b", lambda match: f"@{names[match[1]]}", whole)


def _limited(line: str, limits: dict[str, str]) -> str:
    """An entry whose kernel says how large its threadgroups are has no more registers than so many threads can get."""
    entry = _ENTRY.match(line)
    if entry is None or entry[1] not in limits:
        return line
    return line.replace(") #", f') "nvvm.maxntid"="{limits[entry[1]]}" #', 1)


def _joined(line: str) -> str:
    """Every function is inlined into the entries, as Metal's compiler does: an array that is handed to a call would
    lie in memory and not in registers."""
    if line.startswith("attributes #"):
        return line.replace(" noinline", "")
    if line.startswith("define") and not _ENTRY.match(line):
        return _LINKAGE.sub("define internal ", line, count=1).replace(") #", ") alwaysinline #")
    return line


def join_masks(ptx: str) -> str:
    """A mask and what completes it, both constant, as the one operation that they are: ptxas makes two of them, which
    have half the speed of other arithmetic. It drops the mask alone where nothing else uses it."""
    return _MASKED.sub(r"\tand.b32 \t\1, \2, \3;\n\tlop3.b32 \t\4, \2, \3, \5, 0xea;", ptx)


def find_libdevice() -> Path:
    """The library in MSL_LIBDEVICE, of a CUDA toolkit, or of NVIDIA's package for Python. Raises MslError."""
    for path in _libdevices():
        if path.is_file():
            return path
    raise MslError(
        "no libdevice.10.bc, which kernels with exp, sin and the like need for PTX; "
        "pip install nvidia-nvvm, or name the file in MSL_LIBDEVICE"
    )


def _libdevices() -> Iterator[Path]:
    if named := os.environ.get("MSL_LIBDEVICE"):
        yield Path(named)
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    yield home / "nvvm" / "libdevice" / "libdevice.10.bc"
    import importlib.util

    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("**/libdevice.10.bc"))
