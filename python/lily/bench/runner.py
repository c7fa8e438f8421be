"""Which arms run, and in what order; what is refused; what the samples of all rounds come to.

Rounds alternate the order of the engines and reverse that of the lengths, so that a machine that warms up or slows down
does so for all. A sample taken while other programs used the machine is taken again, and after a few times refused.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..arguments import count
from ..errors import DeviceError, Disturbed, InvalidInput, NumericalError
from .contract import FOREIGN, LENGTHS, Arm

_TRIES = 3


@dataclass(frozen=True)
class Spread:
    """Tokens per second over the rounds: median, lowest, highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """What one engine reached at one prompt length."""

    engine: str
    length: int
    device: str
    prefill: Spread
    decode: Spread
    rounds: int
    digest: str
    foreign: float | None  # of the worst round that counts
    peak_memory: int


@dataclass(frozen=True)
class Report:
    """All rows, and the lengths that were left out, each with the reason."""

    rows: tuple[Row, ...]
    left_out: Mapping[int, str] = field(default_factory=dict)


Measure = Callable[[str, Mapping[str, Any]], Arm]


def measure_in_a_process(engine: str, options: Mapping[str, Any]) -> Arm:
    """One arm in a fresh process. Raises DeviceError with the last line that it said if it fails."""
    command = [sys.executable, "-m", "lily.bench.arms", engine, json.dumps(options)]
    # Without it -m takes modules from the current folder first, whatever lies there (Python 3.10 does so all the same).
    safe = {**os.environ, "PYTHONSAFEPATH": "1"}
    watched, held = os.pipe()  # its other end closes with this process, however that ends
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=watched, capture_output=True, text=True, check=False, env=safe
        )
    finally:
        os.close(watched)
        os.close(held)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise DeviceError(f"the benchmark of {engine} at {options['length']} tokens failed: {said[-1]}")
    return Arm(**json.loads(done.stdout.splitlines()[-1]))


def run(
    engines: Mapping[str, Mapping[str, Any]],
    lengths: Sequence[int] = LENGTHS,
    *,
    rounds: int = 2,
    seconds: float = 600,
    ignore_load: bool = False,
    measure: Measure = measure_in_a_process,
    say: Callable[[str], object] = lambda _: None,
) -> Report:
    """Measures every engine (name of an arm -> its options) at every length that fits into the time.

    seconds      for all rounds together; a length whose rounds would pass it is left out, and so are longer ones
    ignore_load  takes samples whatever else runs on the machine; their rows say how much that was
    measure      runs one arm
    say          gets a line for each sample

    Raises Disturbed if the machine is not quiet, NumericalError if two rounds wrote different tokens, DeviceError,
    InvalidInput.
    """
    count(rounds, "rounds", 2**31 - 1)
    if not seconds > 0:  # nor is NaN
        raise InvalidInput(f"the time for all rounds is {seconds:g} s; expected more than 0 (--minutes).")
    start = time.monotonic()
    order = list(engines.items())
    samples: dict[tuple[int, str], list[Arm]] = {}
    left_out: dict[int, str] = {}
    done: list[int] = []
    needed = 0.0  # by the last length, in one round
    for length in sorted(set(lengths)):
        # The next length takes twice as long at least, in every round; the later rounds of the others as long again.
        if done and time.monotonic() - start + needed * (2 * rounds + 2 * (rounds - 1)) > seconds:
            left_out[length] = f"its {rounds} rounds would pass {seconds:.0f} s"
            continue
        began = time.monotonic()
        for engine, options in order:
            samples[length, engine] = [_sample(engine, options, length, ignore_load, measure, say)]
        needed = time.monotonic() - began
        done.append(length)
    for turn in range(1, rounds):
        for length in reversed(done) if turn % 2 else done:
            for engine, options in reversed(order) if turn % 2 else order:
                samples[length, engine].append(_sample(engine, options, length, ignore_load, measure, say))
    return Report(tuple(_row(engine, length, arms) for (length, engine), arms in samples.items()), left_out)


def _sample(
    engine: str,
    options: Mapping[str, Any],
    length: int,
    ignore_load: bool,
    measure: Measure,
    say: Callable[[str], object],
) -> Arm:
    for _ in range(_TRIES):
        arm = measure(engine, {**options, "length": length})
        others = "" if arm.foreign is None else f", others used {arm.foreign:.2f} cores"
        say(
            f"{engine} at {length:,}: reads {length / arm.prefill_seconds:.1f} tok/s, writes "
            f"{arm.steps / arm.decode_seconds:.1f} tok/s{others}"
        )
        if ignore_load or arm.foreign is None or arm.foreign <= FOREIGN:
            return arm
    raise Disturbed(
        f"other programs used {arm.foreign:.2f} cores while {engine} was measured at {length} tokens, {_TRIES} times, "
        f"expected at most {FOREIGN}; stop them, or say --ignore-load and keep in mind what the numbers are worth"
    )


def _row(engine: str, length: int, arms: Sequence[Arm]) -> Row:
    digests = {arm.digest for arm in arms}
    if len(digests) > 1:
        raise NumericalError(
            f"{engine} at {length} tokens wrote different tokens in different rounds ({', '.join(sorted(digests))}), "
            "expected the same each time; this is a defect of the engine, please report it"
        )
    foreign = [arm.foreign for arm in arms if arm.foreign is not None]
    return Row(
        engine=engine,
        length=length,
        device=arms[0].device,
        prefill=_spread([length / arm.prefill_seconds for arm in arms]),
        decode=_spread([arm.steps / arm.decode_seconds for arm in arms]),
        rounds=len(arms),
        digest=digests.pop(),
        foreign=max(foreign, default=None),
        peak_memory=max(arm.peak_memory for arm in arms),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))
