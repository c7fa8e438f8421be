"""Worker processes that turn the stream of documents into packed rows of tokens, and the pool the trainer draws from.

A row holds several texts one behind the other; `segment` numbers them from 1 and is 0 on padding, and attention stays
inside a segment. The pool lies on the accelerator and keeps what it was given, so training never waits for data: fresh
rows go first, and old ones fill the batch when the workers are behind.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing as mp
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .labels import IGNORED
from .mix import Mix, read_prose
from .tokens import encode

ROW = 512
SEGMENTS = 32
UNKNOWN = -1  # of a tag or of a segment's sensitivity
Piece = tuple[NDArray[np.int64], NDArray[np.int64], float]  # ids, tags, sensitivity
Block = tuple[NDArray[np.uint16], NDArray[np.int8], NDArray[np.uint8], NDArray[np.int8]]


def cut(ids: NDArray[np.int64], tags: NDArray[np.int64], sensitive: float, shift: int) -> Iterator[Piece]:
    """Windows of at most a row; the first one of a long text has a shifted end, so that cuts fall everywhere."""
    at = 0
    while at < len(ids):
        end = at + (shift if at == 0 and len(ids) > ROW else ROW)
        part = tags[at:end]
        whole = len(ids) <= ROW
        yield (
            ids[at:end],
            part,
            sensitive if whole else (float(sensitive > 0 and bool((part > 0).any())) if sensitive >= 0 else sensitive),
        )
        at = end


def pack(pieces: list[Piece]) -> Block:
    """Rows of pieces, longest first, each into the first row with room."""
    rows: list[list[Piece]] = []
    room: list[int] = []
    for piece in sorted(pieces, key=lambda p: -len(p[0])):
        size = len(piece[0])
        for i, free in enumerate(room):
            if size <= free and len(rows[i]) < SEGMENTS:
                break
        else:
            i = len(rows)
            rows.append([])
            room.append(ROW)
        rows[i].append(piece)
        room[i] -= size
    n = len(rows)
    ids, tags = np.zeros((n, ROW), np.uint16), np.full((n, ROW), UNKNOWN, np.int8)
    segment, sensitive = np.zeros((n, ROW), np.uint8), np.full((n, SEGMENTS + 1), UNKNOWN, np.int8)
    for i, row in enumerate(rows):
        at = 0
        for k, (piece_ids, piece_tags, score) in enumerate(row, 1):
            end = at + len(piece_ids)
            ids[i, at:end], segment[i, at:end], sensitive[i, k] = piece_ids, k, int(score)
            tags[i, at:end] = np.where(piece_tags == IGNORED, UNKNOWN, piece_tags)
            at = end
    return ids, tags, segment, sensitive


def pieces(tokenizer: Tokenizer, mix: Mix) -> Iterator[Piece]:
    """Pieces of the stream without end."""
    while True:
        documents = [mix.document() for _ in range(64)]
        for document, (ids, tags) in zip(documents, encode(tokenizer, documents), strict=True):
            score = UNKNOWN if document.sensitive is None else document.sensitive
            yield from cut(ids, tags, score, mix.rng.randint(ROW // 4, ROW))


def work(seed: int, tokenizer: str, data: Path | None, text: Path | None, out: Any) -> None:
    """A worker's life: pieces, packed a few hundred at a time."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    stream = pieces(Tokenizer.from_file(tokenizer), Mix.build(seed, data, read_prose(text)))
    while True:
        out.put(pack(list(itertools.islice(stream, 1500))))


def prose_rows(tokenizer: Tokenizer, prose: list[str]) -> Block:
    """Rows of prose alone, for the masked-token phase."""
    found = [
        (np.array(e.ids, np.int64), np.zeros(len(e.ids), np.int64), 0.0) for e in tokenizer.encode_batch_fast(prose)
    ]
    blocks = [pack([p for whole in found[i : i + 1500] for p in cut(*whole, ROW)]) for i in range(0, len(found), 1500)]
    ids, tags, segment, sensitive = zip(*blocks, strict=True)
    return np.concatenate(ids), np.concatenate(tags), np.concatenate(segment), np.concatenate(sensitive)


@dataclass
class Batch:
    """Rows on the accelerator: ids, tags and segment [B, ROW], sensitivity of segments [B, SEGMENTS + 1]."""

    ids: torch.Tensor
    tags: torch.Tensor
    segment: torch.Tensor
    sensitive: torch.Tensor


class Pool:
    """Rows on the accelerator, filled by a thread from the workers' queue."""

    def __init__(self, capacity: int, device: torch.device, seed: int) -> None:
        self.capacity, self.device = capacity, device
        self.ids = torch.zeros(capacity, ROW, dtype=torch.int16, device=device)
        self.tags = torch.zeros(capacity, ROW, dtype=torch.int8, device=device)
        self.segment = torch.zeros(capacity, ROW, dtype=torch.uint8, device=device)
        self.sensitive = torch.zeros(capacity, SEGMENTS + 1, dtype=torch.int8, device=device)
        self.added = 0  # rows ever added
        self.used = 0  # fresh rows handed out
        self.rng = np.random.default_rng(seed)
        self.lock = threading.Lock()

    def add(self, block: Block) -> None:
        """Takes rows; the oldest make room when the pool is full."""
        n = len(block[0])
        with self.lock:
            where = torch.from_numpy(np.arange(self.added, self.added + n) % self.capacity).to(self.device)
            ids, *others = block
            stores = (self.ids, self.tags, self.segment, self.sensitive)
            for store, values in zip(stores, (ids.view(np.int16), *others), strict=True):
                store[where] = torch.from_numpy(values).to(self.device)
            self.added += n

    def draw(self, rows: int, fresh: bool = True) -> Batch:
        """A batch: unseen rows first, then any."""
        with self.lock:
            size = min(self.added, self.capacity)
            new = min(rows, self.added - max(self.used, self.added - self.capacity)) if fresh else 0
            first = max(self.used, self.added - self.capacity)
            index = np.concatenate(
                [np.arange(first, first + new) % self.capacity, self.rng.integers(0, size, rows - new)]
            )
            self.used = first + new if fresh else self.used
            where = torch.from_numpy(index).to(self.device)
            return Batch(
                self.ids[where].long(),
                self.tags[where].long(),
                self.segment[where].long(),
                self.sensitive[where].float(),
            )


class Feeder:
    """The worker processes and the thread that empties their queue into a pool."""

    def __init__(
        self, pool: Pool, workers: int, seed: int, tokenizer: Path, data: Path | None, text: Path | None
    ) -> None:
        context = mp.get_context("spawn")
        self.queue = context.Queue(maxsize=4 * workers)
        self.pool = pool
        self.processes = [
            context.Process(target=work, args=(seed * 1000 + i, str(tokenizer), data, text, self.queue), daemon=True)
            for i in range(workers)
        ]
        for process in self.processes:
            process.start()
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._drain, daemon=True)
        self.thread.start()

    def _drain(self) -> None:
        while not self.closing.is_set() and any(p.is_alive() for p in self.processes):
            with contextlib.suppress(queue.Empty):
                self.pool.add(self.queue.get(timeout=0.5))

    def wait(self, rows: int, seconds: float) -> None:
        """Returns when the pool holds `rows` rows; raises RuntimeError when it does not in time."""
        waited = 0.0
        while self.pool.added < rows:
            if (
                self.closing.wait(0.2)
                or (waited := waited + 0.2) > seconds
                or not any(p.is_alive() for p in self.processes)
            ):
                raise RuntimeError(
                    f"the workers made {self.pool.added} of {rows} rows in {waited:.0f} s; see their errors above"
                )

    def close(self) -> None:
        """Ends the workers."""
        self.closing.set()
        for process in self.processes:
            process.terminate()
        self.thread.join(timeout=5)
