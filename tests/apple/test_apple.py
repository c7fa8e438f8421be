"""The driver for Apple's Metal runs on Linux, over a stand-in for Metal that runs the same kernels on the executor.

The extension is built once more, with apple.mm and the stand-in in it (LILY_APPLE_STANDIN), into build/apple.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lily import metal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "apple"


@pytest.fixture(scope="module")
def package() -> Path:
    """A folder for PYTHONPATH with a lily whose device "metal" is the stand-in."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the stand-in for Metal runs on x86-64 Linux only")
    for tool in ("cmake", "ninja", "clang++-22"):
        if shutil.which(tool) is None:
            pytest.skip(f"the stand-in for Metal needs {tool}, which is not on the PATH")
    nanobind = run(sys.executable, "-m", "nanobind", "--cmake_dir").strip()
    options = ["-DLILY_APPLE_STANDIN=ON", f"-Dnanobind_DIR={nanobind}", f"-DPython_EXECUTABLE={sys.executable}"]
    run("cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(BUILD), *options)
    run("cmake", "--build", str(BUILD))
    made = BUILD / "python"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "lily", made / "lily", ignore=shutil.ignore_patterns("__pycache__", "_ext*.so"))
    shutil.copytree(ROOT / "metal", made / "lily" / "_metal", ignore=shutil.ignore_patterns("__pycache__"))
    run("cmake", "--install", str(BUILD), "--prefix", str(made))
    return made


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stand-in takes for a .metallib."""
    tools = metal.load_toolchain()
    try:
        tools.find_clang()
    except tools.MslError as error:
        pytest.skip(f"no compiler for the Metal kernels: {error}")
    made = metal.kernels("host")
    path = tmp_path_factory.mktemp("library") / "lily.metallib"
    path.write_text("\n".join(map(str, [made.executor, *made.modules])) + "\n", encoding="utf-8")
    return path


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def words(package: Path, library: Path, **environment: str) -> list[str]:
    return run(sys.executable, str(HERE / "words.py"), str(library), PYTHONPATH=str(package), **environment).split()


def test_a_word_gives_the_bits_of_the_host_driver(package: Path, library: Path) -> None:
    apple, host = words(package, library)
    assert apple == host


def test_a_missing_barrier_shows(package: Path, library: Path) -> None:
    """The stand-in runs what no barrier orders last to first: without barriers the same word goes wrong."""
    apple, host = words(package, library, LILY_STANDIN_NO_BARRIERS="1")
    assert apple != host


def test_a_kernel_that_is_not_there_is_named(package: Path, library: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.metallib"
    empty.write_text(library.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    script = f"""
import numpy as np, pytest
from lily import _ext, errors
probe = _ext.Probe("metal", kernels=[{str(empty)!r}])
with pytest.raises(errors.DeviceError, match="no kernel norm among those of metal"):
    probe.norm(np.zeros((1, 64), np.uint16), np.ones(64, np.float32), 1e-6)
"""
    run(sys.executable, "-c", script, PYTHONPATH=str(package))
