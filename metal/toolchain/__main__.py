"""The command line: lint a .metal file, show its rewritten text, compile it, or build the executor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .build import FLAVOURS, build_executor, compile_kernels, lint, preprocess_and_translate
from .tokens import MslError


def main() -> int:
    """Gives the exit status: 1 where there are errors, which go to standard error."""
    parser = argparse.ArgumentParser(prog="toolchain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lint", help="only check").add_argument("source", type=Path)
    commands.add_parser("text", help="print what clang gets").add_argument("source", type=Path)
    commands.add_parser("executor", help="build the executor").add_argument("-o", "--output", type=Path, required=True)
    for flavour in FLAVOURS:
        command = commands.add_parser(flavour, help="compile")
        command.add_argument("source", type=Path)
        command.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    try:
        if options.command == "lint":
            complaints = lint(options.source)
            print("\n".join(complaints), file=sys.stderr)
            return 1 if complaints else 0
        if options.command == "text":
            print(preprocess_and_translate(options.source, "host").text)
        elif options.command == "executor":
            build_executor(options.output)
        else:
            compile_kernels(options.source, options.command, options.output)
    except MslError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
