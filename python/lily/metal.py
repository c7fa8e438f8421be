"""The Metal kernels of this installation, compiled for a device that is no Mac, and kept in a cache.

The sources are part of the package (lily/_metal: kernels, the compat library, the toolchain); in a source tree they are
its folder metal/. What is compiled lies under $XDG_CACHE_HOME/lily/metal, in a folder named after the content of its
source, of all that it may include, and the compiler's version, so that it is never stale and several processes may
compile at once. What no process asked for in 30 days goes when something new comes. Nothing here runs a kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from .errors import DeviceError

_FLAVOURS = ("host", "check", "ptx")
_PACKAGE = "lily._metal.toolchain"
_METAL4 = "_metal4"  # how the names of files end that need Metal 4, a GPU with tensor units
_KEPT_DAYS = 30  # since a process last asked for it
_DIGITS = 32  # of the name of a folder in the cache
_INCLUDE = re.compile(r'^#include "([^"]+)".*\n', re.MULTILINE)


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels: the files of the .metal sources in the order of their names, and for the flavours that run on
    the CPU the executor, a library to load before them."""

    modules: tuple[Path, ...]
    executor: Path | None


def kernels(flavour: str = "host", *, tensor_units: bool = False) -> Kernels:
    """The kernels compiled for the CPU ("host"), for the CPU with the checker of races and bounds ("check"), or for
    NVIDIA GPUs ("ptx"); with those for tensor units, or without. Compiles what is not in the cache yet. Raises
    DeviceError where there is no compiler."""
    return compiled(sources(tensor_units=tensor_units), flavour)


def apple_kernels(*, tensor_units: bool = True) -> tuple[Path, ...]:
    """What Apple's driver loads: the libraries that were compiled when lily was built, or, where there was no compiler
    for them, the text of each .metal file, which the driver compiles, and the archive in which it keeps what it
    compiled. What is for tensor units is left to a GPU that has them, or left out."""
    library = home() / "lily.metallib"
    if library.exists():
        metal4 = library.with_stem(library.stem + _METAL4)
        return (library, metal4) if tensor_units and metal4.exists() else (library,)
    folder = _kept(_digest("text", [*sources(tensor_units=True), *home().glob("*.h")]))
    texts = []
    for source in sources(tensor_units=tensor_units):
        texts.append(folder / source.name)
        if not texts[-1].exists():
            partial = texts[-1].with_suffix(f".{os.getpid()}")
            partial.write_text(whole_text(source), encoding="utf-8")
            partial.replace(texts[-1])
    return (*texts, folder / "lily.binarchive")


def whole_text(source: Path) -> str:
    """A .metal file with the headers beside it in place of their first #include, for a compiler that gets one text."""
    seen: set[Path] = set()

    def text(path: Path) -> str:
        if path in seen:
            return ""
        seen.add(path)
        return _INCLUDE.sub(lambda match: text(path.parent / match[1]), path.read_text(encoding="utf-8"))

    return text(source).replace("#pragma once\n", "")


def sources(*, tensor_units: bool = False) -> tuple[Path, ...]:
    """The .metal files of this installation, with those for tensor units or without."""
    found = sorted(home().glob("*.metal"))
    return tuple(path for path in found if tensor_units or not path.stem.endswith(_METAL4))


def compiled(files: tuple[Path, ...], flavour: str) -> Kernels:
    """As `kernels`, of given .metal files."""
    if flavour not in _FLAVOURS:
        raise DeviceError(f"kernels are compiled for {', '.join(_FLAVOURS)}, not for {flavour!r}.")
    tools = load_toolchain()
    try:
        suffix = ".ptx" if flavour == "ptx" else f".{flavour}.so"
        shared = _digest(tools.find_clang().version, [path for path in home().rglob("*") if path.suffix != ".metal"])
        modules = tuple(
            _kept(_digest(shared, [path, *path.parent.glob("*.h")])) / (path.stem + suffix) for path in files
        )
        # One executor for all modules: they share what it knows of the lane that runs.
        runtime = _digest(platform.machine(), list((home() / "toolchain" / "runtime").iterdir()))
        executor = None if flavour == "ptx" else _kept(runtime) / "executor.so"
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            work = [
                pool.submit(tools.compile_kernels, path, flavour, module)
                for path, module in zip(files, modules, strict=True)
                if not module.exists()
            ]
            if executor is not None and not executor.exists():
                work.append(pool.submit(tools.build_executor, executor))
            for job in work:
                job.result()
    except tools.MslError as error:
        raise DeviceError(f"the Metal kernels could not be compiled for {flavour!r}: {error}") from None
    return Kernels(modules, executor)


@cache
def home() -> Path:
    """The folder of the kernels' sources."""
    installed = Path(__file__).parent / "_metal"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "metal"


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lily" / "metal"


def load_toolchain() -> ModuleType:
    """The toolchain's package, which lies with the kernels and not among lily's modules."""
    if _PACKAGE not in sys.modules:
        folder = home() / "toolchain"
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None or not folder.is_dir():
            raise DeviceError(f"this installation of lily has no Metal kernels: expected them in {home()}.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_PACKAGE] = module
        spec.loader.exec_module(module)
    return sys.modules[_PACKAGE]


def _kept(digest: str) -> Path:
    """The folder of that name in the cache, in use from now on. A new one takes the place of those long unused."""
    folder = cache_folder() / digest
    if not folder.is_dir():
        unused = time.time() - _KEPT_DAYS * 24 * 3600
        for other in cache_folder().glob("[0-9a-f]" * _DIGITS):
            with contextlib.suppress(FileNotFoundError):  # another process does the same
                if other.stat().st_mtime < unused:
                    shutil.rmtree(other)
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # a cache that this process may only read
        os.utime(folder)
    return folder


def _digest(start: str, files: list[Path]) -> str:
    """A name for the content of files."""
    digest = hashlib.sha256(start.encode())
    for path in sorted(files):
        if path.is_file() and path.suffix != ".pyc":
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()[:_DIGITS]
