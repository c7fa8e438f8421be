"""lily beside llama.cpp and mlx-lm on this machine's CPU, in blocks that take turns.

    python -m benchmarks.random_gguf MODEL decoder.gguf
    python -m benchmarks.random_gguf encoder encoder.gguf
    python -m benchmarks.cpu_peers MODEL --gguf decoder.gguf --encoder-gguf encoder.gguf

MODEL is a folder that `lily synth --full` wrote, or a real checkpoint. Nothing is built here: llama-bench is taken from
the PATH or --llama-bench, mlx-lm is measured where it can be imported, and rows without a peer show lily alone.

A block is a fresh process, or several where loading is measured; its first repetition does not count (peer_arms.py).
Blocks go lily, peer, peer, lily, and so on. A repetition during which other programs used 5 % of the CPUs or more is
rejected, and blocks are added, up to three times as many, until each side has enough. Beside each block stands the
bandwidth at which all threads together read memory just before it: machines have fast and slow minutes, and engines are
to be compared within one. Speeds only; the weights are random, so no engine says anything.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lily import _ext, info
from lily.errors import LilyError

from . import peer_arms
from .peer_arms import Block, Options
from .rounds import Round, line, summary

BLOCKS_AT_MOST = 3  # times those asked for


@dataclass(frozen=True)
class Row:
    """A line of the comparison. The arms of lily come first; a name before a space is an engine of peer_arms."""

    work: str
    tokens: int
    steps: int = 0
    arms: Sequence[str] = ("lily", "llama.cpp")

    @property
    def done(self) -> int:
        """Tokens of a repetition; 0 where its seconds are what counts."""
        return {"loading": 0, "writing": self.steps}.get(self.work, self.tokens)


ROWS: Mapping[str, Row] = {
    "prefill-512": Row("reading", 512),
    "prefill-2048": Row("reading", 2048),
    "decode-64": Row("writing", 512, 64),
    "decode-32k": Row("writing", 32_768, 64),
    "load": Row("loading", 16),
    "encoder-512": Row("encoding", 512, arms=("lily bf16", "lily affine8", "llama.cpp")),
    # mlx-lm takes about 17 s a token on two cores, whether it reads or writes.
    "mlx-prefill": Row("reading", 4, arms=("lily", "mlx-lm")),
    "mlx-decode": Row("writing", 4, 2, arms=("lily", "mlx-lm")),
}


@dataclass
class Side:
    """What one arm showed: the repetitions that count, and bytes a second read before each of its blocks."""

    device: str = ""
    rounds: list[Round] = field(default_factory=list)
    bandwidths: list[float] = field(default_factory=list)

    def clean(self) -> int:
        """Repetitions that nobody disturbed."""
        return sum(quiet for _, quiet in self.rounds)

    def figures(self, row: Row, ignore_load: bool = False) -> dict[str, Any]:
        """Median, lowest and highest of the undisturbed ones, or of all; none where there are none."""
        found: dict[str, Any] = {"device": self.device}
        if kept := [(seconds, True) for seconds, quiet in self.rounds if quiet or ignore_load]:
            found |= summary(kept, lambda seconds: row.done / seconds if row.done else seconds, 4)
        found["undisturbed"] = f"{self.clean()} of {len(self.rounds)}"
        return found | {"read_GB_per_s": [round(value / 1e9, 1) for value in self.bandwidths], "samples": self.rounds}


def compare(
    row: Row,
    arms: Sequence[str],
    blocks: int,
    repeats: int,
    ignore_load: bool,
    measure: Callable[[str], Block],
    bandwidth: Callable[[], float],
    say: Callable[[str], object],
) -> dict[str, Side]:
    """The blocks of one row: every arm in turn, the order reversed from turn to turn."""
    sides = {arm: Side() for arm in arms}
    for turn in range(blocks * BLOCKS_AT_MOST):
        enough = ignore_load or all(side.clean() >= blocks * repeats for side in sides.values())
        if turn >= blocks and enough:
            break
        for arm in reversed(arms) if turn % 2 else arms:
            side = sides[arm]
            side.bandwidths.append(bandwidth())
            block = measure(arm)
            side.device = block.device
            side.rounds += block.rounds
            shown = ", ".join(
                f"{row.done / seconds if row.done else seconds:.2f}{'' if quiet else ' (disturbed)'}"
                for seconds, quiet in block.rounds
            )
            say(f"  {arm}: {shown}; memory {side.bandwidths[-1] / 1e9:.1f} GB/s")
    return sides


def ratio(own: Mapping[str, Any], other: Mapping[str, Any], row: Row) -> float | None:
    """How many times as fast lily is."""
    if "median" not in own or "median" not in other:
        return None
    return float(own["median"] / other["median"] if row.done else other["median"] / own["median"])


def present(options: argparse.Namespace, name: str) -> list[str]:
    """The arms of a row that can run here."""
    row, found = ROWS[name], []
    for arm in row.arms:
        if arm == "llama.cpp":
            gguf = options.encoder_gguf if row.work == "encoding" else options.gguf
            if options.llama_bench is None or gguf is None:
                continue
        if arm == "mlx-lm" and importlib.util.find_spec("mlx_lm") is None:
            continue
        found.append(arm)
    return found


def settings(options: argparse.Namespace, row: Row, arm: str) -> Options:
    """What a block is given."""
    return {
        "work": row.work,
        "tokens": row.tokens,
        "steps": row.steps,
        "repeats": options.repeats,
        "threads": options.threads,
        "activations": options.activations,
        "model": options.model,
        "gguf": options.encoder_gguf if row.work == "encoding" else options.gguf,
        "llama_bench": options.llama_bench,
        "packing": arm.partition(" ")[2],
    }


def shown(name: str, figures: Mapping[str, Mapping[str, Any]], ratios: Mapping[str, float | None]) -> Iterator[str]:
    """A row as lines for people."""
    row = ROWS[name]
    yield f"{name}: {'tokens a second' if row.done else 'seconds'}"
    for arm, found in figures.items():
        kept = {key: value for key, value in found.items() if key not in {"device", "samples", "read_GB_per_s"}}
        bandwidths = found["read_GB_per_s"]
        kept["memory GB/s"] = f"{statistics.median(bandwidths):.1f} [{min(bandwidths)} to {max(bandwidths)}]"
        yield line(f"  {arm}", kept)
    for pair, value in ratios.items():
        yield f"  {pair}: {'not enough undisturbed repetitions' if value is None else f'{value:.2f}x'}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("model", help="folder of a checkpoint")
    parser.add_argument("--gguf", help="the same shape for llama.cpp")
    parser.add_argument("--encoder-gguf", help="the encoder's shape for llama.cpp")
    parser.add_argument("--llama-bench", default=shutil.which("llama-bench"), help="left out, the one on the PATH")
    parser.add_argument("--rows", default=",".join(ROWS), metavar="ROW,ROW", help="%(default)s")
    parser.add_argument("--blocks", type=int, default=2, help="for each engine and row, at least (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="of a block, beside the first (%(default)s)")
    parser.add_argument("--threads", type=int, default=info.machine()["cores"], help="left out, one for each CPU")
    parser.add_argument("--activations", choices=("int8", "bf16"), help="of lily's prefill")
    parser.add_argument(
        "--mebibytes", type=int, default=1024, help="that each thread reads before a block (%(default)s)"
    )
    parser.add_argument("--ignore-load", action="store_true", help="count disturbed repetitions, too")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every sample")
    options = parser.parse_args(arguments)
    names = options.rows.split(",")
    for name in names:
        if name not in ROWS:
            parser.error(f"no row {name}; there are {', '.join(ROWS)}")
    if options.blocks < 2 or options.repeats < 1:
        parser.error(f"found {options.blocks} blocks of {options.repeats}; expected at least 2 of 1")

    def bandwidth() -> float:
        moved, seconds = _ext.read_peak("", options.threads, options.mebibytes << 20, 3)
        return float(moved / statistics.median(seconds))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    report: dict[str, Any] = {"machine": info.machine(), "threads": options.threads, "rows": {}}
    for name in names:
        row, arms = ROWS[name], present(options, name)
        say(f"{name}: {', '.join(arms)}")
        try:
            sides = compare(
                row,
                arms,
                options.blocks,
                options.repeats,
                options.ignore_load,
                lambda arm, row=row: peer_arms.measure(arm.partition(" ")[0], settings(options, row, arm)),  # type: ignore[misc]
                bandwidth,
                say,
            )
        except LilyError as error:
            say(f"  {name} failed: {error}")
            report["rows"][name] = {"failed": str(error)}
            continue
        figures = {arm: side.figures(row, options.ignore_load) for arm, side in sides.items()}
        own = [arm for arm in arms if arm.startswith("lily")]
        ratios = {
            f"{mine} against {peer}": ratio(figures[mine], figures[peer], row)
            for peer in arms
            if peer not in own
            for mine in own
        }
        report["rows"][name] = {"arms": figures, "ratios": ratios}
        if not options.json:
            print("\n".join(shown(name, figures, ratios)), flush=True)
    if options.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
