"""How fast the Gate reads: prose, logs, one prompt, megabytes; and which part of the work takes the time.

    python -m benchmarks.gate_speed            the short figures (about a minute)
    python -m benchmarks.gate_speed --long     also megabytes of log and prose, with the memory that they take

Rounds go through all cases in turn, so that a machine that gets slower makes all of them slower; rounds.py says which
ones count. The shares of time are those of one reading with stopwatches in it. Quality: gate_quality.py. A large
encoder alone: encoder_speed.py.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import lily
from lily.bench.contract import Watch, peak_memory
from lily.gate import classifier, masking, pipeline

from .gate_texts import log, prose
from .rounds import Round, line, summary, timed, within

SIZES = {"prose": 60_000, "log": 400_000}
PROMPTS = 20


def short(gate: lily.Gate, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Prose, log and prompts, in rounds."""
    texts = {"prose": prose(SIZES["prose"]), "log": log(SIZES["log"])}
    prompts = [prose(1000, seed) for seed in range(PROMPTS)]
    for text in (*texts.values(), prompts[0]):
        gate.classify(text[:4000])  # warm
    found: dict[str, list[Round]] = defaultdict(list)
    for _ in within(seconds):
        for name, text in texts.items():
            found[name].append(timed(lambda text=text: gate.classify(text)))  # type: ignore[misc]
        for prompt in prompts:
            found["prompt"].append(timed(lambda prompt=prompt: gate.classify(prompt)))  # type: ignore[misc]
    for name, size in SIZES.items():
        yield f"{name}, characters a second", summary(found[name], lambda spent, size=size: size / spent)  # type: ignore[misc]
    yield "prompt of 1,000 characters, ms", summary(found["prompt"], lambda spent: 1000 * spent, 1)


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


def split(gate: lily.Gate, texts: Sequence[str]) -> dict[str, Any]:
    """Shares of the time of some texts; the model is what the classifier takes beside its own other parts."""
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
            for text in texts:
                gate.classify(text)
            whole = time.perf_counter() - start
    parts = {name: round(100 * seconds / whole, 1) for name, seconds in sorted(spent.items(), key=lambda i: -i[1])}
    return parts | {"rest": round(100 - sum(parts.values()), 1)}


def long(gate: lily.Gate) -> Iterator[tuple[str, dict[str, Any]]]:
    """Megabytes once each, and the largest memory of the process behind them."""
    for name, make, sizes in (("log", log, (7,)), ("prose", prose, (1, 2, 4, 7))):
        for size in sizes:
            text = make(size * 1_000_000)
            watch, start = Watch(), time.perf_counter()
            gate.classify(text)
            seconds = time.perf_counter() - start
            yield (
                f"{size} MB of {name}",
                {
                    "seconds": round(seconds, 1),
                    "characters a second": round(len(text) / seconds),
                    "CPUs used by others": f"{watch.foreign() or 0.0:.2f}",
                    "largest memory, MB": round(peak_memory() / 1e6),
                },
            )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--model", help="another classifier than the embedded one")
    parser.add_argument("--threads", type=int, help="left out, one for each CPU")
    parser.add_argument("--seconds", type=float, default=45.0, help="for the rounds of the short figures")
    parser.add_argument("--long", action="store_true", help="megabytes, too")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()

    def show(name: str, figures: dict[str, Any]) -> None:
        print(json.dumps({"name": name} | figures) if options.json else line(name, figures), flush=True)

    with lily.Gate.load(options.model or lily.gate.gate.EMBEDDED, threads=options.threads) as gate:
        show("device", {"name": gate._pipeline.classifier.device, "policy": gate.policy.name})
        for name, figures in short(gate, options.seconds):
            show(name, figures)
        show("share of time in %, prose", split(gate, [prose(SIZES["prose"])]))
        show("share of time in %, log", split(gate, [log(SIZES["log"])]))
        show("share of time in %, prompts", split(gate, [prose(1000, seed) for seed in range(PROMPTS)]))
        if options.long:
            for name, figures in long(gate):
                show(name, figures)


if __name__ == "__main__":
    main()
