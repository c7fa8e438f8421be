"""Rounds of measurements on a machine that others use, too: how long, how disturbed, and what is said of them.

Where the system tells (Linux), a round counts as undisturbed if other processes used less than a part of the CPUs
meanwhile; a figure is the median of the undisturbed rounds, or of all where there is none. What is measured is the
callers' business.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from lily.bench.contract import Watch

DISTURBED = 0.05  # of all CPUs

Round = tuple[float, bool]
"""Seconds, and whether it was undisturbed."""


def quiet(watch: Watch) -> bool:
    """Whether nobody else used much since the watch began."""
    return (watch.foreign() or 0.0) < DISTURBED * (os.cpu_count() or 1)


def timed(work: Callable[[], object]) -> Round:
    """One round of some work."""
    watch, start = Watch(), time.perf_counter()
    work()
    return time.perf_counter() - start, quiet(watch)


def within(seconds: float, least: int = 3) -> Iterator[int]:
    """Numbers of rounds, until the time is up; at least a few."""
    start = time.perf_counter()
    number = 0
    while number < least or time.perf_counter() - start < seconds:
        yield number
        number += 1


def summary(rounds: list[Round], value: Callable[[float], float], digits: int = 0) -> dict[str, Any]:
    """Median, lowest and highest of `value` (of a round's seconds), and how many rounds were undisturbed."""
    clean = [one for one in rounds if one[1]] or rounds
    values = sorted(value(seconds) for seconds, _ in clean)
    shown = [round(number, digits or None) for number in (statistics.median(values), values[0], values[-1])]
    return dict(zip(("median", "lowest", "highest"), shown, strict=True)) | {
        "undisturbed": f"{sum(undisturbed for _, undisturbed in rounds)} of {len(rounds)}"
    }


def line(name: str, figures: dict[str, Any]) -> str:
    """The figures as one line for people."""
    return f"{name:<34}" + "  ".join(f"{key} {value}" for key, value in figures.items())
