"""Which clang compiles kernels, and with which flags. C++ for OpenCL as used here needs clang 22 or newer."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .tokens import MslError

OLDEST = 22
COMPAT = Path(__file__).parent.parent / "compat"

_EXTENSIONS = (
    "+all,-cl_khr_fp64,-__opencl_c_fp64,"
    "+__cl_clang_bitfields,+__cl_clang_variadic_functions,+__cl_clang_function_pointers"
)
_LANGUAGE = [
    "-x", "clcpp", "-cl-std=clc++2021", "-cl-single-precision-constant", "-cl-no-stdinc",
    "-Xclang", f"-cl-ext={_EXTENSIONS}",
    "-Wno-unknown-attributes", "-Wno-duplicate-decl-specifier", "-Wno-pedantic", "-Wno-psabi",
    "-D__METAL__=1", "-D__METAL_VERSION__=400", "-D__METAL_MACOS__=1", "-D__HAVE_BFLOAT__=1",
    "-ffp-contract=on",
]  # fmt: skip
# The oldest processors that lily has kernels for, so that the result is the same on every machine.
_HOSTS = {
    "x86_64": ["--target=x86_64-linux-gnu", "-march=x86-64-v3"],
    "aarch64": ["--target=aarch64-linux-gnu"],
}
_HOST = [
    "-g", "-gdwarf-4", "-fPIC", "-fvisibility=hidden",
    # Each operation on half and bfloat rounds, as on a GPU.
    "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
    # Blocks and call sites stay in the order of the text: the executor takes the earliest address first where lanes
    # have parted.
    "-mllvm", "-disable-block-placement", "-mllvm", "-disable-tail-duplicate", "-mllvm", "-disable-early-taildup",
    "-mllvm", "-disable-branch-fold",
]  # fmt: skip
_OPTIMIZE = ["-O3"]
# Not vectorised, so that the instrumentation sees accesses of 1 to 16 bytes; every read, also one that a write to the
# same place follows.
_CHECK = [
    "-O1", "-fno-vectorize", "-fno-slp-vectorize", "-fsanitize=thread",
    "-mllvm", "-tsan-instrument-read-before-write",
]  # fmt: skip
_CUDA = [
    "--target=nvptx64-nvidia-cuda", "-Xclang", "-target-cpu", "-Xclang", "sm_90",
    "-Xclang", "-target-feature", "-Xclang", "+ptx83",
]  # fmt: skip


@dataclass(frozen=True)
class Clang:
    """A clang to run: its command, and its version as it prints it."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str], text: str | None = None) -> str:
        """Runs it, with a text as input where one is given. Gives what it prints; raises MslError with its errors."""
        done = subprocess.run([*self.command, *arguments], input=text, capture_output=True, text=True)
        if done.returncode:
            raise MslError(done.stderr.strip())
        return done.stdout


@functools.cache
def find_clang() -> Clang:
    """The command of the environment variable MSL_CLANG, else clang-22 of the PATH, else the one in the package
    ziglang. Raises MslError where there is none."""
    if named := os.environ.get("MSL_CLANG"):
        return _inspect(tuple(shlex.split(named)))
    if path := shutil.which(f"clang-{OLDEST}"):
        return _inspect((path,))
    if importlib.util.find_spec("ziglang"):
        return _inspect((sys.executable, "-m", "ziglang", "clang"))
    raise MslError(
        f"no clang {OLDEST} to compile kernels with: found no clang-{OLDEST} on the PATH and no package ziglang; "
        "pip install ziglang, or name a command in MSL_CLANG"
    )


def _inspect(command: tuple[str, ...]) -> Clang:
    try:
        version = Clang(command, "").run(["--version"]).splitlines()[0]
    except (OSError, MslError, IndexError) as error:
        raise MslError(f"{shlex.join(command)} does not run: {error}") from None
    number = re.search(r"version (\d+)", version)
    if number is None or int(number[1]) < OLDEST:
        raise MslError(f"{shlex.join(command)} is {version!r}; expected clang {OLDEST} or newer")
    return Clang(command, version)


def language_flags(flavour: str) -> list[str]:
    """What preprocessing and compiling share: language, target, the compat library."""
    flags = [*_LANGUAGE, "-isystem", str(COMPAT), *(["-DMSL_CHECK=1"] if flavour == "check" else [])]
    if flavour == "ptx":
        return [*_CUDA, *flags]
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _HOSTS:
        raise MslError(f"kernels run on Linux on {' or '.join(_HOSTS)}; this machine is {sys.platform} on {machine}")
    return [*_HOSTS[machine], *flags]


def object_flags(flavour: str) -> list[str]:
    """What compiling adds: host or check."""
    return [*_HOST, *(_CHECK if flavour == "check" else _OPTIMIZE)]
