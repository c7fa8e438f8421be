"""How fast the Gate reads: prose, logs, one prompt, megabytes; and which part of the work takes the time.

    python benchmarks/gate_speed.py            the short figures (about two minutes)
    python benchmarks/gate_speed.py --long     also megabytes of log and prose, with the memory that they take

Rounds alternate between the cases, so that a machine that gets slower makes all of them slower. Where the system tells
(Linux), a round in which other processes used more than a part of the CPUs is measured again; a figure is a median,
with the lowest and the highest of its rounds and how many of them were undisturbed. Quality: gate_quality.py. The
encoder alone, at any size: encoder_speed.py.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from gate_texts import log, prose

import lily
from lily.gate import classifier, masking, pipeline

DISTURBED = 0.05  # of all CPUs
PATIENCE = 4  # tries of a round


class Busy:
    """The share of all CPUs that other processes used since the last look; 0 where the system does not tell."""

    def __init__(self) -> None:
        self._last = self._read()

    def look(self) -> float:
        """The share."""
        last, self._last = self._last, self._read()
        every, busy, own = (new - old for new, old in zip(self._last, last, strict=True))
        return max(0.0, busy - own) / every if every > 0 else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return 0.0, 0.0, 0.0
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        return sum(ticks), sum(ticks) - ticks[3] - ticks[4], time.process_time()  # without idle and waiting for disks


def timed(work: Callable[[], object]) -> tuple[float, bool]:
    """Seconds of the least disturbed of a few tries, and whether it was undisturbed."""
    tries = []
    for _ in range(PATIENCE):
        busy, start = Busy(), time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        tries.append((busy.look(), seconds))
        if tries[-1][0] < DISTURBED:
            break
    share, seconds = min(tries)
    return seconds, share < DISTURBED


def summary(rounds: list[tuple[float, bool]], amount: float = 1.0, digits: int = 0) -> dict[str, Any]:
    """Median, lowest and highest of amount / seconds, or of seconds times -amount where amount is negative."""
    clean = [one for one in rounds if one[1]] or rounds
    values = sorted(amount / seconds if amount > 0 else -amount * seconds for seconds, _ in clean)
    return {
        "median": round(statistics.median(values), digits),
        "lowest": round(values[0], digits),
        "highest": round(values[-1], digits),
        "undisturbed": f"{sum(quiet for _, quiet in rounds)} of {len(rounds)}",
    }


def short(gate: lily.Gate, rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Prose, log and prompt, in alternating rounds."""
    sizes = {"prose": 120_000, "log": 400_000}
    texts = {"prose": prose(sizes["prose"]), "log": log(sizes["log"])}
    prompts = [prose(1000, seed) for seed in range(20)]
    for text in (*texts.values(), prompts[0]):
        gate.classify(text[:4000])  # warm
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for _ in range(rounds):
        for name, text in texts.items():
            found[name].append(timed(lambda text=text: gate.classify(text)))  # type: ignore[misc]
        for prompt in prompts:
            found["prompt"].append(timed(lambda prompt=prompt: gate.classify(prompt)))  # type: ignore[misc]
    for name, size in sizes.items():
        yield f"{name}, characters a second", summary(found[name], size)
    yield "prompt of 1,000 characters, ms", summary(found["prompt"], -1000, 1)


@contextmanager
def stopwatches() -> Iterator[dict[str, float]]:
    """Seconds inside each part of the work, added up while the block runs."""
    spent: dict[str, float] = defaultdict(float)

    def watched(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                spent[name] += time.perf_counter() - start

        return run

    class Viterbi(lily._ext.Viterbi):  # type: ignore[misc]
        push = watched("viterbi", lily._ext.Viterbi.push)
        finish = watched("viterbi", lily._ext.Viterbi.finish)

    places: list[tuple[str, Any, str]] = [
        ("tokenizer", classifier.Tokenizer, "encode_with_offsets"),
        ("repeats", classifier, "condense"),
        ("repeats", classifier, "_spread"),
        ("view", pipeline, "View"),
        ("rules", pipeline, "find"),
        ("combine", pipeline, "combine"),
        ("propagate", pipeline, "propagate"),
        ("mask", masking.Vault, "mask"),
    ]
    with ExitStack() as stack:
        for name, owner, attribute in places:
            stack.enter_context(mock.patch.object(owner, attribute, watched(name, getattr(owner, attribute))))
        stack.enter_context(mock.patch.object(lily._ext, "Viterbi", Viterbi))
        yield spent


def split(gate: lily.Gate, text: str) -> dict[str, Any]:
    """Shares of the time of one text; the model is what the classifier takes beside its own other parts."""
    reader = gate._pipeline.classifier
    with stopwatches() as spent:
        read = reader.read

        def reading(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            before = spent["tokenizer"] + spent["repeats"] + spent["viterbi"]
            try:
                return read(*arguments, **named)
            finally:
                inside = spent["tokenizer"] + spent["repeats"] + spent["viterbi"] - before
                spent["model"] += time.perf_counter() - start - inside

        with mock.patch.object(reader, "read", reading):
            start = time.perf_counter()
            gate.classify(text)
            whole = time.perf_counter() - start
    parts = {name: round(100 * seconds / whole, 1) for name, seconds in sorted(spent.items(), key=lambda i: -i[1])}
    return parts | {"rest": round(100 - sum(parts.values()), 1)}


def long(gate: lily.Gate) -> Iterator[tuple[str, dict[str, Any]]]:
    """Megabytes once each, and the largest memory of the process behind them."""
    for name, make, sizes in (("log", log, (7,)), ("prose", prose, (1, 2, 4, 7))):
        for size in sizes:
            text = make(size * 1_000_000)
            busy, start = Busy(), time.perf_counter()
            gate.classify(text)
            seconds = time.perf_counter() - start
            yield (
                f"{size} MB of {name}",
                {
                    "seconds": round(seconds, 1),
                    "characters a second": round(len(text) / seconds),
                    "CPUs used by others": f"{100 * busy.look():.0f} %",
                    "largest memory, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
                },
            )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--model", help="another classifier than the embedded one")
    parser.add_argument("--threads", type=int, help="left out, one for each CPU")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--long", action="store_true", help="megabytes, too")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()

    def show(name: str, figures: dict[str, Any]) -> None:
        if options.json:
            print(json.dumps({"name": name} | figures), flush=True)
        else:
            print(f"{name:<34}" + "  ".join(f"{key} {value}" for key, value in figures.items()), flush=True)

    with lily.Gate.load(options.model or lily.gate.gate.EMBEDDED, threads=options.threads) as gate:
        show("device", {"name": gate._pipeline.classifier.device, "policy": gate.policy.name})
        for name, figures in short(gate, options.rounds):
            show(name, figures)
        show("share of time in %, prose", split(gate, prose(120_000)))
        show("share of time in %, log", split(gate, log(400_000)))
        show("share of time in %, prompt", split(gate, prose(1000)))
        if options.long:
            for name, figures in long(gate):
                show(name, figures)


if __name__ == "__main__":
    main()
