"""The options of every command that loads an engine, said once. What their values mean: device.py, which loads the
extension and is therefore not imported before a command runs.
"""

from __future__ import annotations

import argparse
from typing import Any

ACTIVATIONS = ("int8", "bf16")


def add_options(command: argparse.ArgumentParser) -> None:
    """--device, --threads and --activations."""
    command.add_argument("--device", default="auto", help="auto, cpu, or cpu:INSTRUCTION_SET (%(default)s)")
    command.add_argument("--threads", type=int, metavar="N", help="left out, one for each usable processor")
    command.add_argument(
        "--activations",
        choices=ACTIVATIONS,
        help="what products take in; left out, int8 on the CPU and bf16 on Metal",
    )


def chosen_options(options: argparse.Namespace) -> dict[str, Any]:
    """What they say, as arguments of Engine.load."""
    return {name: getattr(options, name) for name in ("device", "threads", "activations")}
