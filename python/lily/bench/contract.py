"""What every arm of a benchmark has to keep, whichever engine runs in it: the prompt, the steps, the clock, the quiet.

Batch 1, greedy, synthetic ids that any engine can make, a fresh process for each arm, a warm-up of exactly the measured
shape. Reading ends when the first token is there; writing is the next STEPS tokens. Not here: which arms there are, and
in what order (runner.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

LENGTHS = tuple(2**power for power in range(8, 18))  # prompt tokens: 256 to 131,072
STEPS = 64  # tokens written after the first
FOREIGN = 0.2  # cores that other programs may use while the clock runs

_KNUTH = 2654435761  # of multiplicative hashing: neighbours far apart, no pattern that an engine could profit from


def prompt(length: int, vocab: int) -> list[int]:
    """The synthetic prompt of `length` ids below `vocab`."""
    return [(index * _KNUTH % 2**32) % vocab for index in range(length)]


def digest(tokens: Iterable[int]) -> str:
    """FNV-1a, 64 bits, over the ids as four bytes each, lowest first: what an arm wrote, to be compared between
    rounds."""
    value = 0xCBF29CE484222325
    for token in tokens:
        for byte in token.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


@dataclass(frozen=True)
class Arm:
    """What one process measured. foreign: cores that others used while the clock ran, None where it cannot be seen."""

    device: str
    prefill_seconds: float
    decode_seconds: float
    steps: int
    digest: str
    foreign: float | None
    peak_memory: int  # bytes, resident

    def to_json(self) -> str:
        """One line, for the standard output of the process."""
        return json.dumps(asdict(self))


def measure(device: str, read_and_write: Callable[[], Iterator[int]]) -> Arm:
    """Runs the warm-up and the measured pass. `read_and_write` starts from nothing, reads the prompt and yields
    STEPS + 1 tokens."""
    for _ in read_and_write():
        pass
    watch = Watch()
    start = time.perf_counter()
    tokens = read_and_write()
    written = [next(tokens)]
    first = time.perf_counter()
    written.extend(tokens)
    end = time.perf_counter()
    return Arm(
        device=device,
        prefill_seconds=first - start,
        decode_seconds=end - first,
        steps=len(written) - 1,
        digest=digest(written),
        foreign=watch.foreign(),
        peak_memory=peak_memory(),
    )


class Watch:
    """Looks at what the other programs on the machine use, from its creation to `foreign`. Not others are this process,
    the children that it has waited for, and `child`, the number of a process that still runs."""

    def __init__(self, child: int | None = None) -> None:
        self._child = child
        self._start = time.perf_counter()
        self._busy, self._own = _busy_seconds(), _own_seconds(child)

    def foreign(self) -> float | None:
        """Cores in use by others on average; None where the system does not tell (it does on Linux)."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = (busy - self._busy) - (_own_seconds(self._child) - self._own)
        return max(0.0, others / (time.perf_counter() - self._start))


def _busy_seconds() -> float | None:
    """Processor time that was not idle, of the whole machine; time that the host took away counts."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds(child: int | None) -> float:
    """Processor time of this process, of the children that it has waited for, and of one that runs."""
    waited = os.times()
    found = time.process_time() + waited.children_user + waited.children_system
    if child is not None:
        with contextlib.suppress(OSError):  # only Linux tells, and only there the answer is used
            fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def peak_memory() -> int:
    """Bytes that were resident at most, of this process or of its largest child."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
