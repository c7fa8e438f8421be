"""Engines and sessions with the controls that the public API does not show: chunk size and threads.

Used by the tests that compare whole runs; the public calls are tested elsewhere.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from lily import _ext
from lily.checkpoint import open_checkpoint
from lily.device import parse_device
from reference import Array

RecordProperty = Callable[[str, object], None]


@contextlib.contextmanager
def open_engine(
    folder: Path,
    *,
    chunk: int,
    device: str = "cpu",
    threads: int = 1,
    max_context: int = 512,
    byte_inputs: bool = False,
) -> Iterator[_ext.Engine]:
    checkpoint = open_checkpoint(folder)
    weights = _ext.Weights(checkpoint.files, checkpoint.tensors)
    engine = _ext.Engine(
        weights,
        checkpoint.config,
        threads=threads,
        max_context=max_context,
        chunk=chunk,
        byte_inputs=byte_inputs,
        **parse_device(device),
    )
    try:
        yield engine
    finally:
        engine.close()
        checkpoint.close()


def read(engine: _ext.Engine, session: _ext.Session, tokens: Array) -> Array:
    """Prefill, and return the logits of the last position."""
    engine.prefill(session, np.ascontiguousarray(tokens, np.int32), None)
    return np.asarray(session.logits())


def read_pieces(engine: _ext.Engine, session: _ext.Session, tokens: Array, edges: Sequence[int]) -> Array:
    """Prefill a prompt in several calls that end at the edges; the logits of the last position of each."""
    pieces = itertools.pairwise([0, *edges, len(tokens)])
    return np.stack([read(engine, session, tokens[first:end]) for first, end in pieces])


def token_by_token(engine: _ext.Engine, session: _ext.Session, tokens: Array) -> Array:
    """Logits of every position, read one token at a time: [len(tokens), vocab]."""
    return np.stack([read(engine, session, tokens[index : index + 1]) for index in range(len(tokens))])


def relative(actual: Array, expected: Array) -> Array:
    """Return the root mean square of the difference over that of the expected row, for each position."""
    difference = np.mean(np.square(actual.astype(np.float64) - expected), axis=-1)
    return np.asarray(np.sqrt(difference / np.mean(np.square(expected, dtype=np.float64), axis=-1)))
