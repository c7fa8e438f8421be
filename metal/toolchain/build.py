"""What the toolchain makes of one .metal file: complaints, a module for the executor with or without the checker, PTX;
and the executor itself. Results appear whole or not at all: they are written beside the place and moved there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import ptx
from .clang import find_clang, language_flags, object_flags
from .tokens import MslError
from .translate import Translation, translate

RUNTIME = Path(__file__).parent / "runtime"
FLAVOURS = ("host", "check", "ptx")


def preprocess_and_translate(source: Path, flavour: str) -> Translation:
    """The rewritten text of a .metal file for a flavour, or for "lint"."""
    output = find_clang().run([*language_flags(flavour), "-E", str(source), "-o", "-"])
    return translate(output, cuda=flavour == "ptx")


def lint(source: Path) -> list[str]:
    """Every error of a .metal file as "file:line: error: ...": address spaces, types, the rules of MSL."""
    translation = preprocess_and_translate(source, "lint")
    try:
        find_clang().run([*language_flags("lint"), "-fsyntax-only", "-ferror-limit=0", "-"], translation.text)
    except MslError as errors:
        return [*translation.complaints, *str(errors).splitlines()]
    return list(translation.complaints)


def compile_kernels(source: Path, flavour: str, output: Path) -> None:
    """Compiles a .metal file to a module of the executor ("host", or "check" with the checker) or to PTX ("ptx").
    Raises MslError with the compiler's errors."""
    if flavour not in FLAVOURS:
        raise MslError(f"{flavour!r} is no flavour of kernels; expected one of {', '.join(FLAVOURS)}")
    translation = preprocess_and_translate(source, flavour)
    if translation.complaints:
        raise MslError("\n".join(translation.complaints))
    with _written_whole(output) as (folder, result):
        if flavour == "ptx":
            ptx.compile_ptx(translation, folder, result)
            return
        code = folder / "kernels.o"
        find_clang().run(
            [*language_flags(flavour), *object_flags(flavour), "-c", "-o", str(code), "-"], translation.text
        )
        table = folder / "table.c"
        table.write_text(table_source(translation, checked=flavour == "check"), encoding="utf-8")
        _link([_system_compiler("cc"), "-shared", "-fPIC", str(table), str(code), "-lm", "-o", str(result)])


def build_executor(output: Path) -> None:
    """Compiles the executor with the system's C++ compiler."""
    sources = sorted(str(path) for path in RUNTIME.glob("*.cpp"))
    flags = ["-std=c++20", "-O3", "-g", "-fPIC", "-shared", "-pthread", "-ftls-model=initial-exec"]
    with _written_whole(output) as (_, result):
        _link([_system_compiler("c++"), *flags, *sources, "-ldl", "-o", str(result)])


def table_source(translation: Translation, *, checked: bool) -> str:
    """The C source of a module's table (runtime/exec.h)."""
    lines = [f'#include "{RUNTIME / "exec.h"}"']
    kernels = []
    for number, entry in enumerate(translation.entries):
        rows = ", ".join(
            f"{{{'MSL_BUFFER' if a.kind == 'buffer' else 'MSL_THREADGROUP'}, {a.index}, {int(a.writable)}, "
            f"{json.dumps(a.name)}, {json.dumps(a.type)}, {json.dumps(a.optional) if a.optional else '0'}}}"
            for a in entry.arguments
        )
        lines.append(f"void {entry.symbol}(const msl_args *);")
        lines.append(f"static const msl_arg arguments_{number}[] = {{{rows or '{0}'}}};")
        kernels.append(
            f"{{{json.dumps(entry.name)}, {entry.symbol}, {len(entry.arguments)}, arguments_{number}, "
            f"{entry.max_threads}, {json.dumps(entry.place)}}}"
        )
    lines += [f"extern unsigned char __msl_fc_{c.index}[], __msl_fcd_{c.index}[];" for c in translation.constants]
    constants = [
        f"{{{json.dumps(c.name)}, {c.index}, {json.dumps(c.type)}, __msl_fc_{c.index}, __msl_fcd_{c.index}}}"
        for c in translation.constants
    ]
    lines.append(f"static const msl_kinfo kernels[] = {{{', '.join(kernels) or '{0}'}}};")
    lines.append(f"static const msl_const constants[] = {{{', '.join(constants) or '{0}'}}};")
    lines.append(
        f"const msl_table __msl_table = {{kernels, {len(kernels)}, constants, {len(constants)}, {int(checked)}}};"
    )
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _written_whole(output: Path) -> Iterator[tuple[Path, Path]]:
    """A folder for intermediate files, and the place in it for the result, which is moved to `output` at the end."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as name:
        folder = Path(name)
        yield folder, folder / output.name
        (folder / output.name).replace(output)


def _system_compiler(name: str) -> str:
    found = shutil.which(os.environ.get("CXX" if name == "c++" else "CC", name))
    if found is None:
        raise MslError(f"no {name!r} on the PATH; kernels on the CPU need the system's C and C++ compiler")
    return found


def _link(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MslError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
