r"""Trains nano on text and dialogues, at the end with weights as they will be stored.

The schedule follows the clock: --minutes is the whole of it, compilation and export included. SIGTERM ends the training
early and exports what there is. A checkpoint lies in --work; a second run with the same folder goes on from it.

    python -m training.nano.train --minutes 14.6 --work run --out out --tokenizer tokenizer --text text.txt.xz \
        --heldout heldout.txt.xz --glossary words.txt.xz
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import export
from .model import Config, Decoder, compiled
from .muon import Muon
from .quant import quantised
from .rows import Dialogues, Windows
from .tokens import Encoder, documents

DECAY, QUANTISED = 0.4, 0.86  # shares of the clock: where the learning rate begins to fall, where weights are as stored
JOBS_FROM = 0.7  # share of the clock from which dialogues take their larger share
JOBS = (0.15, 0.3)  # of the rows
WARM_UP = 150
EVENNESS = 0.01  # weight of the routers' unevenness
WEIGHT_DECAY = 0.1
RESERVE = 40.0  # seconds kept for the last measurement and the export
SMALL = Config(8192, 128, 4, 1, 1, 64, 16, 1e5, 1, 2, 64, 64, 4, 2, 64, 64)


@dataclass
class Settings:
    """The command line."""

    minutes: float
    work: Path
    out: Path
    tokenizer: Path
    text: Path
    heldout: Path
    glossary: Path
    rows: int
    length: int
    workers: int
    seed: int
    rate: float
    device: str
    small: bool


@dataclass
class Run:
    """One training run: the model, its optimizers, the clock."""

    s: Settings
    begun: float
    step: int = 0
    stopped: bool = False
    spent: float = 0.0  # seconds of the schedule in earlier runs
    opened: float = 0.0  # when the first step was done: compilation is not part of the schedule
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(self.s.seed)
        self.device = torch.device(self.s.device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.encoder = Encoder(Tokenizer.from_file(str(self.s.tokenizer / "tokenizer.json")))
        self.model = Decoder(SMALL if self.s.small else Config()).to(self.device)
        if self.device.type == "cuda":
            compiled(self.model)
        inside = [
            p for n, p in self.model.named_parameters()
            if p.dim() > 1 and min(p.shape[-2:]) >= 64 and "embed" not in n and "lm_head" not in n
        ]  # fmt: skip
        known = set(map(id, inside))
        others = [p for p in self.model.parameters() if id(p) not in known]
        self.muon = Muon(inside, WEIGHT_DECAY)
        groups = [
            {"params": [p for p in others if (p.dim() == 2) == decays], "weight_decay": WEIGHT_DECAY * decays}
            for decays in (True, False)
        ]
        self.adam = torch.optim.AdamW(groups, lr=self.s.rate, betas=(0.9, 0.95), fused=self.device.type == "cuda")
        self.checkpoint = self.s.work / "checkpoint.pt"
        if self.checkpoint.is_file():
            self.resume()

    # ---- the clock

    def share(self) -> float:
        """How much of the schedule is over, 0 to 1."""
        if not self.opened:
            return 0.0
        total = self.s.minutes * 60 - min(RESERVE, self.s.minutes * 15) - (self.opened - self.begun)
        return min(1.0, (self.spent + time.monotonic() - self.opened) / max(total, 1.0))

    def rate(self, done: float) -> float:
        """Learning rate: warm-up, a plateau, then straight down to nearly nothing."""
        fall = min(1.0, (1.0 - done) / (1.0 - DECAY))
        return self.s.rate * max(0.01, fall) * min(1.0, (self.step + 1) / WARM_UP)

    def say(self, text: str) -> None:
        """A line to standard output, with the time."""
        print(f"{time.monotonic() - self.begun:7.1f} {text}", flush=True)

    # ---- steps

    def batch(self, windows: Windows, dialogues: Dialogues, done: float) -> tuple[Tensor, Tensor]:
        """Ids that are read and their targets, -1 where there is none: both [rows, length]."""
        share = JOBS[0] if done < JOBS_FROM else JOBS[1]
        count = max(1, round(share * self.s.rows))
        ids, wanted = dialogues.draw(count)
        text = windows.draw(self.s.rows - count)
        target = torch.cat([text[:, 1:], torch.where(wanted[:, 1:], ids[:, 1:], -1)])
        return torch.cat([text[:, :-1], ids[:, :-1]]), target

    def update(self, ids: Tensor, target: Tensor, done: float) -> Tensor:
        """One step of both optimizers; gives the loss."""
        rate = self.rate(done)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.zero_grad(set_to_none=True)
        for p in self.model.parameters():
            p.grad = None
        with quantised(self.model, done >= QUANTISED):
            hidden, uneven = self.model.hidden(ids, self.dtype)
            loss = self.model.loss(hidden, target)
            torch.autograd.backward(loss + EVENNESS * uneven)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.muon.step(rate)
        self.adam.step()
        self.step += 1
        return loss.detach()

    def measure(self, held: Tensor, stored: bool) -> float:
        """Mean loss over held-out windows [n, length + 1]. With gradients on, for else all would be compiled anew."""
        total = 0.0
        with quantised(self.model, stored):
            for rows in held.split(self.s.rows):
                hidden, _ = self.model.hidden(rows[:, :-1], self.dtype)
                total += self.model.loss(hidden, rows[:, 1:].contiguous()).item()
        return total / len(held.split(self.s.rows))

    def train(self, windows: Windows, dialogues: Dialogues, held: Tensor) -> None:
        """The loop."""
        saved = looked = since = time.monotonic()
        tokens = 0
        while not self.stopped and (done := self.share()) < 1.0:
            loss = self.update(*self.batch(windows, dialogues, done), done)
            if not self.opened:
                self.say(f"first step, loss {loss.item():.3f}")
                self.opened = saved = looked = since = time.monotonic()
                continue
            tokens += self.s.rows * self.s.length
            if self.step % 50 == 0:
                value, now = loss.item(), time.monotonic()
                self.say(
                    f"step {self.step} done {done:.3f} loss {value:.4f} {tokens / (now - since) / 1e3:.0f} k tok/s"
                    f" rounds {windows.rounds} dialogues {dialogues.added} unseen {dialogues.added - dialogues.used}"
                )
                tokens, since = 0, now
                if not math.isfinite(value):
                    raise FloatingPointError(f"the loss is {value} at step {self.step}")
                if now - looked > 45:
                    self.say(f"held out {self.measure(held[: 2 * self.s.rows], stored=False):.4f}")
                    looked = since = time.monotonic()
                if now - saved > 150:
                    self.save()
                    saved = since = time.monotonic()

    def save(self) -> None:
        """Writes the checkpoint; the old one stays until the new one is whole."""
        state = {
            "model": self.model.state_dict(),
            "momenta": self.muon.momenta,
            "adam": self.adam.state_dict(),
            "step": self.step,
            "spent": self.spent + time.monotonic() - (self.opened or time.monotonic()),
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.checkpoint)
        export.write(self.model, self.s.out, self.encoder.turn_end)
        self.say("checkpoint and export written")

    def resume(self) -> None:
        """Goes on from the checkpoint."""
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.muon.momenta = state["momenta"]
        self.adam.load_state_dict(state["adam"])
        self.step, self.spent = state["step"], state["spent"]
        self.say(f"resumed at step {self.step}")

    def stop(self, *_: object) -> None:
        """Ends the loop at the next step."""
        self.stopped = True

    def main(self) -> None:
        """Data, loop, and the export in any case."""
        signal.signal(signal.SIGTERM, self.stop)
        s = self.s
        texts = documents(s.text)
        dialogues = Dialogues(
            65_536 if self.device.type == "cuda" else 512, s.length, self.device, s.workers, s.seed,
            s.tokenizer / "tokenizer.json", texts, s.glossary,
        )  # fmt: skip
        try:
            ids = self.encoder.text(texts if not s.small else texts[:400])
            windows = Windows(ids, s.length, self.device, s.seed)
            out = self.encoder.text(documents(s.heldout))
            count = (len(out) - 1) // s.length // s.rows * s.rows
            at = np.arange(count)[:, None] * s.length + np.arange(s.length + 1)
            held = torch.from_numpy(out[at].astype(np.int64)).to(self.device)
            parameters = sum(p.numel() for p in self.model.parameters())
            self.say(f"{parameters} parameters, {len(ids)} tokens of text, {held.numel()} held out")
            dialogues.wait(s.rows, 120)
            self.train(windows, dialogues, held)
            self.figures = {
                "steps": self.step,
                "tokens": self.step * s.rows * s.length,
                "rounds": windows.rounds,
                "master": math.exp(self.measure(held, stored=False)),
                "stored": math.exp(self.measure(held, stored=True)),
            }
        finally:
            dialogues.close()
            (s.out / "figures.json").write_text(json.dumps(self.figures) + "\n", "utf-8")
            self.say(f"the end, after step {self.step}: {self.figures}")
            self.save()


def main() -> None:
    """Command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Trains nano.")
    parser.add_argument("--minutes", type=float, default=14.6)
    parser.add_argument("--work", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of the export")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder from tokens.py")
    parser.add_argument("--text", type=Path, required=True, help="from gather_text.py")
    parser.add_argument("--heldout", type=Path, required=True, help="likewise")
    parser.add_argument("--glossary", type=Path, required=True, help="likewise")
    parser.add_argument("--rows", type=int, default=64 if cuda else 4, help="rows of a step")
    parser.add_argument("--length", type=int, default=1024 if cuda else 256, help="tokens of a row")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2 - 2))
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--rate", type=float, default=6e-3, help="highest learning rate")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument(
        "--small", action="store_true", help="a tiny model and little text, to try the steps out on a CPU"
    )
    settings = Settings(**vars(parser.parse_args()))
    settings.work.mkdir(parents=True, exist_ok=True)
    settings.out.mkdir(parents=True, exist_ok=True)
    Run(settings, time.monotonic()).main()


if __name__ == "__main__":
    main()
