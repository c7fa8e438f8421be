"""Rows of tokens for the trainer: windows of the text, which lies on the accelerator whole, and packed dialogues.

Dialogues are made by worker processes while the training runs; of them only the answers are targets. A row has one
token more than the model reads, so that every token read has a next one.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from .jobs import Jobs
from .tokens import Encoder

Block = tuple[NDArray[np.int16], NDArray[np.bool_]]  # ids and whether each is a target, both [rows, length + 1]
BLOCK = 32


def pack(jobs: Jobs, encoder: Encoder, length: int) -> Block:
    """BLOCK rows of dialogues, each begun with a dialogue and cut at its end."""
    ids = np.zeros((BLOCK, length + 1), np.int16)
    wanted = np.zeros((BLOCK, length + 1), np.bool_)
    for row in range(BLOCK):
        at = 0
        while at <= length:
            found, before = encoder.dialogue(jobs.dialogue(), silent=jobs.rng.random() < 0.3)
            found.append(encoder.end)
            end = min(at + len(found), length + 1)
            ids[row, at:end] = found[: end - at]
            wanted[row, min(at + before, end) : end] = True
            at = end
    return ids, wanted


def work(seed: int, tokenizer: str, texts: list[str], glossary: Path, length: int, out: Any) -> None:
    """A worker's life."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    jobs, encoder = Jobs(seed, texts, glossary), Encoder(Tokenizer.from_file(tokenizer))
    while True:
        out.put(pack(jobs, encoder, length))


class Windows:
    """Windows of a long text, each once before any comes again; every round cuts at other places."""

    def __init__(self, ids: NDArray[np.int16], length: int, device: torch.device, seed: int) -> None:
        self.ids = torch.from_numpy(ids).to(device)
        self.length = length
        self.rng = np.random.default_rng(seed)
        self.order = np.zeros(0, np.int64)
        self.span = torch.arange(length + 1, device=device)
        self.rounds = 0

    def draw(self, rows: int) -> Tensor:
        """Ids [rows, length + 1]."""
        while len(self.order) < rows:
            shift = self.rng.integers(0, self.length)
            starts = shift + self.length * np.arange((len(self.ids) - shift - 1) // self.length)
            self.order = np.concatenate([self.order, self.rng.permutation(starts)])
            self.rounds += 1
        chosen, self.order = self.order[:rows], self.order[rows:]
        return self.ids[torch.from_numpy(chosen).to(self.ids.device)[:, None] + self.span].long()


class Dialogues:
    """Packed rows on the accelerator, filled from the workers' queue; unseen rows go first, then any."""

    def __init__(
        self, capacity: int, length: int, device: torch.device, workers: int, seed: int, tokenizer: Path,
        texts: list[str], glossary: Path,
    ) -> None:  # fmt: skip
        self.ids = torch.zeros(capacity, length + 1, dtype=torch.int16, device=device)
        self.wanted = torch.zeros(capacity, length + 1, dtype=torch.bool, device=device)
        self.rng = np.random.default_rng(seed)
        self.capacity, self.added, self.used = capacity, 0, 0
        self.lock, self.closing = threading.Lock(), threading.Event()
        context = mp.get_context("spawn")
        self.queue = context.Queue(maxsize=8 * workers)
        few = max(1, min(1500, len(texts)))
        self.processes = [
            context.Process(
                target=work,
                args=(
                    seed * 1000 + i, str(tokenizer), [texts[j] for j in self.rng.permutation(len(texts))[:few]],
                    glossary, length, self.queue,
                ),
                daemon=True,
            )
            for i in range(workers)
        ]  # fmt: skip
        for process in self.processes:
            process.start()
        self.thread = threading.Thread(target=self._drain, daemon=True)
        self.thread.start()

    def _drain(self) -> None:
        while not self.closing.is_set() and any(p.is_alive() for p in self.processes):
            with contextlib.suppress(queue.Empty):
                ids, wanted = self.queue.get(timeout=0.5)
                with self.lock:
                    where = torch.from_numpy(np.arange(self.added, self.added + len(ids)) % self.capacity)
                    where = where.to(self.ids.device)
                    self.ids[where] = torch.from_numpy(ids).to(self.ids.device)
                    self.wanted[where] = torch.from_numpy(wanted).to(self.ids.device)
                    self.added += len(ids)

    def wait(self, rows: int, seconds: float) -> None:
        """Returns when there are `rows` rows; raises RuntimeError when they do not come in time."""
        waited = 0.0
        while self.added < rows:
            if (
                self.closing.wait(0.2)
                or (waited := waited + 0.2) > seconds
                or not any(p.is_alive() for p in self.processes)
            ):
                raise RuntimeError(
                    f"the workers made {self.added} of {rows} rows in {waited:.0f} s; see their errors above"
                )

    def draw(self, rows: int) -> tuple[Tensor, Tensor]:
        """Ids and whether each is a target, both [rows, length + 1]."""
        with self.lock:
            size = min(self.added, self.capacity)
            first = max(self.used, self.added - self.capacity)
            new = min(rows, self.added - first)
            index = np.concatenate(
                [np.arange(first, first + new) % self.capacity, self.rng.integers(0, size, rows - new)]
            )
            self.used = first + new
            where = torch.from_numpy(index).to(self.ids.device)
            return self.ids[where].long(), self.wanted[where]

    def close(self) -> None:
        """Ends the workers."""
        self.closing.set()
        for process in self.processes:
            process.terminate()
        self.thread.join(timeout=5)
