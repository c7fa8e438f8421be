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
from pathlib import Path
from typing import Any

DISTURBED = 0.05  # of all CPUs

Round = tuple[float, bool]
"""Seconds, and whether it was undisturbed."""


class Busy:
    """The share of all CPUs that other processes used since the last look; 0 where the system does not tell. Not others
    are this process, the children that it has waited for, and `child`, a process that still runs."""

    def __init__(self, child: int | None = None) -> None:
        self._child = child
        self._last = self._read()

    def look(self) -> float:
        """The share."""
        last, self._last = self._last, self._read()
        every, busy, own = (new - old for new, old in zip(self._last, last, strict=True))
        return max(0.0, busy - own) / every if every > 0 else 0.0

    def _read(self) -> tuple[float, float, float]:
        try:
            fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        except OSError:
            return 0.0, 0.0, 0.0
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        busy = sum(ticks) - ticks[3] - ticks[4]  # without idle and waiting for disks
        times = os.times()
        waited = times.children_user + times.children_system
        return sum(ticks), busy, time.process_time() + waited + self._of_the_child()

    def _of_the_child(self) -> float:
        if self._child is None:
            return 0.0
        fields = Path(f"/proc/{self._child}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(work: Callable[[], object]) -> Round:
    """One round of some work."""
    busy, start = Busy(), time.perf_counter()
    work()
    return time.perf_counter() - start, busy.look() < DISTURBED


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
        "undisturbed": f"{sum(quiet for _, quiet in rounds)} of {len(rounds)}"
    }


def line(name: str, figures: dict[str, Any]) -> str:
    """The figures as one line for people."""
    return f"{name:<34}" + "  ".join(f"{key} {value}" for key, value in figures.items())
