"""The command `lily`, also as `python -m lily`: cli.py, imported where Ctrl-C is already caught."""

import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
