"""The command `lily bench`: a table on standard output, or JSON; samples as they come on standard error.

cli.py has the parser and the exit codes; `add` puts this command into it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_options import add_device_options, add_hub_options, device_options, hub_options
from ..console import Line
from ..errors import InvalidInput

if TYPE_CHECKING:
    from .runner import Report, Row

PEERS = ("mlx-lm", "llama.cpp")


def add(commands: Any) -> None:
    """The command, as a sub-parser of argparse."""
    words = "Measures how fast a model reads and writes here, over the length of its context."
    bench = commands.add_parser("bench", help=words, description=words, allow_abbrev=False)
    bench.set_defaults(run=_bench)
    bench.add_argument("model", help="folder, hub repository or embedded model")
    add_device_options(bench)
    bench.add_argument(
        "--lengths", type=_lengths, metavar="N,N", help="prompt lengths; left out, 256 to 131,072 as far as they fit"
    )
    bench.add_argument("--rounds", type=int, default=2, metavar="N", help="of which the median counts (%(default)s)")
    bench.add_argument("--minutes", type=float, default=10, metavar="M", help="for all of it (%(default)s)")
    bench.add_argument(
        "--vs", action="append", default=[], choices=PEERS, help="measure a peer as well, if it is installed"
    )
    bench.add_argument("--gguf", metavar="FILE", help="the same model for llama.cpp")
    add_hub_options(bench)
    bench.add_argument("--ignore-load", action="store_true", help="measure even if other programs use the machine")
    bench.add_argument("--json", action="store_true", help="print everything as JSON")
    bench.add_argument("--plot", metavar="FILE", help="draw the table (.png, .svg, .pdf); needs matplotlib")
    bench.add_argument("--save", action="store_true", help="keep the result as this machine's profile of the model")


def _lengths(text: str) -> list[int]:
    lengths = [int(part) for part in text.split(",")]
    if not all(0 < length < 2**24 for length in lengths):
        raise argparse.ArgumentTypeError(f"{text} has lengths that are not from 1 to {2**24 - 1}")
    return lengths


def _bench(options: argparse.Namespace) -> None:
    from ..checkpoint import open_checkpoint
    from ..location import locate
    from . import plot
    from .contract import LENGTHS, STEPS
    from .runner import run

    if ("llama.cpp" in options.vs) != (options.gguf is not None):
        raise InvalidInput("--vs llama.cpp and --gguf FILE belong together: llama.cpp reads its own format")
    if options.plot is not None:
        plot.require(options.plot)
    line = Line()
    folder = locate(options.model, **hub_options(options), progress=line.progress("downloading", "bytes"))
    line.clear()
    with open_checkpoint(folder) as checkpoint:
        positions, model = checkpoint.max_positions, checkpoint.describe()
    lengths = LENGTHS if options.lengths is None else options.lengths
    fitting = [length for length in lengths if positions is None or length + STEPS + 1 <= positions]
    if not fitting:
        raise InvalidInput(
            f"no length fits: found {min(lengths)} and {STEPS} steps for a model of {positions} positions; name "
            "smaller --lengths"
        )
    engines: dict[str, Mapping[str, Any]] = {"lily": {"model": str(folder), **device_options(options)}}
    if "mlx-lm" in options.vs:
        engines["mlx-lm"] = {"model": str(folder)}
    if options.gguf is not None:
        engines["llama.cpp"] = {"gguf": options.gguf, "threads": options.threads}
    report = run(
        engines,
        fitting,
        rounds=options.rounds,
        seconds=60 * options.minutes,
        ignore_load=options.ignore_load,
        say=line.say,
    )
    left_out = {length: f"the model has {positions} positions" for length in lengths if length not in fitting}
    record = _record(report, model) | {"left_out": {**report.left_out, **left_out}}
    print(json.dumps(record, indent=2) if options.json else "\n".join(lines(record, report)), flush=True)
    if options.plot is not None:
        plot.draw(report, options.plot, f"{model['name']} ({called(options.model)}), {record['machine']['cpu']}")
    if options.save:
        path = profile(options.model, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=2), encoding="utf-8")
        line.say(f"kept in {path}")


def called(model: str) -> str:
    """The last part of what the user calls a model, short enough for a title and a file."""
    return Path(model).absolute().name[:40]


def profile(model: str, folder: Path) -> Path:
    """Where this machine's profile of a model is kept. The folder that it lies in tells it from all others: a name of
    their own is what small checkpoints do not have, and repositories have many revisions."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return Path(data) / "lily" / "profiles" / f"{called(model)}-{place}.json"


def _record(report: Report, model: Mapping[str, Any]) -> dict[str, Any]:
    from .. import __version__, info

    return {
        "lily": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": info.machine(),
        "model": dict(model),
        **asdict(report),
    }


def lines(record: Mapping[str, Any], report: Report) -> Iterator[str]:
    """The table: reading and writing apart, medians with lowest and highest; peers with lily's ratio to them."""
    here = record["machine"]
    yield f"machine   {here['cpu']}, {here['cores']} cores usable, {here['system']}"
    yield f"model     {record['model']['name']} ({record['model']['path']})"
    yield f"when      {record['date']}, lily {record['lily']}"
    for device in dict.fromkeys(row.device for row in report.rows):
        yield f"engine    {device}"
    ranges = f"{'lowest to highest':>20}"
    yield f"{'context':>9}  {'engine':<10}{'prefill tok/s':>16}{ranges}{'decode tok/s':>16}{ranges}{'others':>9}  ratio"
    own = {row.length: row for row in report.rows if row.engine == "lily"}
    for row in report.rows:
        yield _line(row, own[row.length])
    for length, reason in record["left_out"].items():
        yield f"{length:>9,}  left out: {reason}"


def _line(row: Row, own: Row) -> str:
    prefill, decode = row.prefill, row.decode
    foreign = "unseen" if row.foreign is None else f"{row.foreign:.2f}"
    ratio = ""
    if row is not own:
        ratio = (
            f"lily {own.prefill.median / prefill.median:.2f}x reading, {own.decode.median / decode.median:.2f}x writing"
        )
    return (
        f"{row.length:>9,}  {row.engine:<10}{prefill.median:>16.1f}{f'{prefill.low:.1f} to {prefill.high:.1f}':>20}"
        f"{decode.median:>16.1f}{f'{decode.low:.1f} to {decode.high:.1f}':>20}{foreign:>9}  {ratio}".rstrip()
    )
