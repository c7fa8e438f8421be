"""A lily whose device "metal" is the stand-in: the extension is built once more, with apple.mm and the stand-in in it
(LILY_APPLE_STANDIN), into build/apple, and installed into folders for PYTHONPATH."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from apple.compiler import write_library

from lily import metal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "apple"


def run(*command: str, **environment: str) -> str:
    """What a command writes to standard output; it has to go well."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(package: Path, *arguments: str | Path, **environment: str) -> str:
    """What a Python with that lily prints."""
    return run(sys.executable, *map(str, arguments), PYTHONPATH=str(package), **environment)


def build() -> None:
    """Skips where the stand-in cannot be built."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the stand-in for Metal runs on x86-64 Linux only")
    for tool in ("cmake", "ninja", "clang++-22"):
        if shutil.which(tool) is None:
            pytest.skip(f"the stand-in for Metal needs {tool}, which is not on the PATH")
    nanobind = run(sys.executable, "-m", "nanobind", "--cmake_dir").strip()
    options = ["-DLILY_APPLE_STANDIN=ON", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(BUILD), *options)
    run("cmake", "--build", str(BUILD))


def install(folder: Path) -> Path:
    """Puts lily there, with its libraries, and returns the folder. Skips where nothing compiles the kernels."""
    tools = metal.load_toolchain()
    try:
        tools.find_clang()
    except tools.MslError as error:
        pytest.skip(f"no compiler for the Metal kernels: {error}")
    hidden = shutil.ignore_patterns("__pycache__", "_ext*.so")
    shutil.copytree(ROOT / "python" / "lily", folder / "lily", ignore=hidden)
    shutil.copytree(ROOT / "metal", folder / "lily" / "_metal", ignore=hidden)
    run("cmake", "--install", str(BUILD), "--prefix", str(folder))
    write_library(metal.kernels("host"), folder / "lily" / "_metal" / "lily.metallib")
    metal4 = tuple(path for path in metal.sources(tensor_units=True) if path not in metal.sources())
    write_library(metal.compiled(metal4, "host"), folder / "lily" / "_metal" / "lily_metal4.metallib")
    return folder
