"""The visible evaluation sets: which files there are, what is read of them, and what sums up all of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .score import Score, Share

PERSONS_ONLY = ("btc", "wnut", "uner", "sec-")
"""Beginnings of the files that annotate persons only: what else is in their documents nobody marked."""


def files(data: Path) -> list[Path]:
    """The files of the data directory that are measured on, sorted. Raises FileNotFoundError where there are none."""
    found = sorted((data / "eval-only").glob("*.jsonl"))
    if not found:
        raise FileNotFoundError(f"{data} has no eval-only/*.jsonl; expected the data directory of training/README.md")
    return found


def documents(path: Path, limit: int) -> list[dict[str, Any]]:
    """A fixed sample of a file: `limit` documents at most, 0 for all."""
    out = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    random.Random(0).shuffle(out)
    return out[: limit or None]


def pooled(scores: Iterable[Score]) -> Score:
    """The counts of all files together."""
    out = Score()
    for score in scores:
        out.merge(score)
    return out


def macro(scores: Iterable[Score]) -> float:
    """The mean over files of the untyped F1 of characters."""
    figures = [score.untyped.measures()[2] for score in scores]
    return sum(figures) / len(figures)


def clean(scores: Mapping[str, Score]) -> Share:
    """The documents without a gold span that have a prediction, files that annotate persons only left out."""
    out = Share()
    for name, score in scores.items():
        if not name.startswith(PERSONS_ONLY):
            out.merge(score.clean)
    return out
