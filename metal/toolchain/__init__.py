"""The toolchain of the Metal kernels where there is no Metal: from .metal text to code for the CPU or for NVIDIA GPUs.

One text goes four ways: `lint` (address spaces as distinct types, the rules of MSL), a module for the executor in
runtime/ that runs a kernel thread by thread, the same with a checker of races and bounds, and PTX. It is lexical where
it rewrites, and leaves understanding to clang; it needs nothing of lily.

    python -m toolchain lint KERNELS.metal          (in the folder above this one)
    python -m lily._metal.toolchain host KERNELS.metal -o KERNELS.so
"""

from __future__ import annotations

from .build import FLAVOURS, build_executor, compile_kernels, lint
from .clang import Clang, find_clang
from .tokens import MslError

__all__ = ["FLAVOURS", "Clang", "MslError", "build_executor", "compile_kernels", "find_clang", "lint"]
