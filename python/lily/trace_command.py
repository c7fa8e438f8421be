"""The command `lily trace`: the stream report as a table, or as JSON.

cli.py has the parser and the exit codes; `add` puts this command into it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any


def add(commands: Any) -> None:
    """The command, as a sub-parser of argparse."""
    words = "Counts the work of the Metal kernels for a token or a chunk at full size, without running it."
    trace = commands.add_parser("trace", help=words, description=words, allow_abbrev=False)
    trace.set_defaults(run=_trace)
    devices = ("metal", "metal:host", "metal:cuda")
    trace.add_argument("--device", default="metal", choices=devices, help="all run the same stream (%(default)s)")
    trace.add_argument("--shape", default="full", choices=("full", "tiny"), help="of the model (%(default)s)")
    trace.add_argument("--position", type=int, default=4096, metavar="N", help="tokens read before (%(default)s)")
    trace.add_argument("--rows", type=int, default=1, metavar="N", help="tokens of the step; 1 decodes (%(default)s)")
    trace.add_argument("--json", action="store_true", help="print everything as JSON")


def _trace(options: argparse.Namespace) -> None:
    from .synth import FULL, TINY
    from .trace import ROLES, Tracer

    shape = FULL if options.shape == "full" else TINY
    tracer = Tracer(shape, max_context=max(1, options.position + options.rows), rows=max(1, options.rows))
    report = tracer.step(options.position, options.rows)
    if options.json:
        print(json.dumps({"device": options.device, "shape": options.shape, **asdict(report)}, indent=2))
        return
    print(f"{report.rows} tokens from position {report.position:,} on")
    print(
        f"{report.dispatches} dispatches, {report.barriers} barriers, {report.command_buffers} command buffers, ",
        end="",
    )
    print(f"{report.threadgroups:,} threadgroups")
    print(f"{'MB':12}{'read':>14}{'written':>14}{'loaded':>14}")
    for role in ROLES:
        numbers = (report.read[role], report.written[role], report.loaded[role])
        print(f"{role:12}" + "".join(f"{number / 1e6:14,.3f}" for number in numbers))
