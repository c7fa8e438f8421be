"""The stream report: what the Metal backend encodes for a token or a chunk, counted without running it.

Counts hold for every device that runs the Metal kernels, at full size and at any position, because nothing is computed
and the weights have addresses only. Bytes come from a formula beside each kernel. *Unique* bytes count each byte once a
dispatch, *loaded* ones once for each threadgroup that loads it.
"""

from __future__ import annotations

import mmap
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _ext
from .architecture import Architecture
from .synth import layout

ROLES = ("weights", "cache", "state", "activations", "scratch")


@dataclass(frozen=True)
class Report:
    """The work of one step: rows tokens read from a position on. `kernels` has the dispatches of each kernel; the bytes
    are by what a buffer is to the model (weights, cache, state, activations, scratch)."""

    position: int
    rows: int
    dispatches: int
    barriers: int
    command_buffers: int
    threadgroups: int
    read: dict[str, int]
    written: dict[str, int]
    loaded: dict[str, int]
    kernels: dict[str, int]


class Tracer:
    """Counts the steps of one architecture. max_context bounds positions, rows the tokens of a step."""

    def __init__(self, shape: Architecture, *, max_context: int, rows: int, bits: int = 4) -> None:
        tensors, size = layout(shape, bits)
        # Pages that nobody writes are all the same page of zeros.
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0))
        weights = _ext.Weights([np.frombuffer(self._memory, np.uint8)], tensors)
        self._trace = _ext.Trace(weights, shape.decoder_config(), max_context=max_context, rows=rows)

    def step(self, position: int, rows: int) -> Report:
        """The report of the step that reads `rows` tokens from `position` on. Raises InvalidInput out of bounds."""
        records = self._trace.step(position, rows)
        return Report(
            position=position,
            rows=rows,
            dispatches=len(records),
            barriers=sum(record["after_barrier"] for record in records),
            command_buffers=len({record["commit"] for record in records}),
            threadgroups=sum(int(np.prod(record["groups"], dtype=np.int64)) for record in records),
            read=_sum(records, 1),
            written=_sum(records, 2),
            loaded=_sum(records, 3),
            kernels=dict(Counter(record["kernel"] for record in records).most_common()),
        )


def _sum(records: list[dict[str, Any]], column: int) -> dict[str, int]:
    total = dict.fromkeys(ROLES, 0)
    for record in records:
        for traffic in record["traffic"]:
            total[traffic[0]] += traffic[column]
    return total
