"""Options that several commands have, said once: where a model comes from, and what it runs on. What their values mean:
location.py and device.py, which loads the extension and is therefore not imported before a command runs.
"""

from __future__ import annotations

import argparse
from typing import Any

ACTIVATIONS = ("int8", "bf16")


def add_hub_options(command: argparse.ArgumentParser) -> None:
    """--revision and --offline, of every command that opens a model."""
    command.add_argument(
        "--revision", metavar="R", help="of a hub repository; left out, the pinned one of the default, main of others"
    )
    command.add_argument("--offline", action="store_true", default=None, help="never touch the network")


def hub_options(options: argparse.Namespace) -> dict[str, Any]:
    """What they say, as arguments of locate and of Engine.load."""
    return {name: getattr(options, name) for name in ("revision", "offline")}


def add_device_options(command: argparse.ArgumentParser) -> None:
    """--device, --threads and --activations, of every command that loads an engine."""
    command.add_argument("--device", default="auto", help="auto, cpu, or cpu:INSTRUCTION_SET (%(default)s)")
    command.add_argument("--threads", type=int, metavar="N", help="left out, one for each usable processor")
    command.add_argument(
        "--activations",
        choices=ACTIVATIONS,
        help="what products take in; left out, int8 on the CPU and bf16 on Metal",
    )


def device_options(options: argparse.Namespace) -> dict[str, Any]:
    """What they say, as arguments of Engine.load."""
    return {name: getattr(options, name) for name in ("device", "threads", "activations")}
