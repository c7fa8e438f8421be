"""The compiler of the stand-in for Metal: from the text of kernels to what the stand-in takes for a .metallib, a list
of the executor and the modules. It runs as a command, for LILY_STANDIN_COMPILER."""

from __future__ import annotations

import sys
from pathlib import Path

from lily import metal


def write_library(made: metal.Kernels, path: Path) -> None:
    """Writes the list."""
    path.write_text("".join(f"{part}\n" for part in (made.executor, *made.modules)), encoding="utf-8")


if __name__ == "__main__":
    write_library(metal.compiled((Path(sys.argv[1]),), "host"), Path(sys.argv[2]))
