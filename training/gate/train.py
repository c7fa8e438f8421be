r"""Trains gate-nano: masked tokens first, then tags, at the end with weights as they will be stored.

The schedule follows the clock: --minutes is the whole of it, start and export included. SIGTERM ends the training early
and exports what there is. A checkpoint lies in --work; a second run with the same folder goes on from it.

    python -m training.gate.train --minutes 19 --work run --out out --tokenizer tokenizer.json --text text.txt.xz \
        --data DIR
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from tokenizers import Tokenizer
from torch import Tensor

from . import export
from .batches import SEGMENTS, UNKNOWN, Batch, Feeder, Pool, prose_rows
from .labels import IGNORED, TAGS
from .mix import read_prose
from .model import Classifier, Config, same_segment, segment_means
from .quant import as_quantised

PRETRAIN, QUANTISED, AVERAGED = 0.16, 0.84, 0.70  # shares of the clock: end of one phase, begin of the others
PEAK, FLOOR, WARM_UP = 1.5e-3, 2e-5, 200
MASKED, DROPPED = 0.2, 0.03  # tokens hidden in pretraining, tokens replaced in half of the tagging steps
OUTSIDE = 0.6  # weight of the tag O
AVERAGE = 0.999


def tiny(vocabulary: int) -> Config:
    """A shape for trying the steps out on a CPU."""
    return Config(vocabulary, 128, 2, 2, 1, 64, 256)


@dataclass
class Settings:
    """The command line."""

    minutes: float
    work: Path
    out: Path
    tokenizer: Path
    text: Path | None
    data: Path | None
    rows: int
    pool: int
    workers: int
    seed: int
    device: str
    small: bool


@dataclass
class Run:
    """One training run: the model, its average, the clock."""

    s: Settings
    begun: float
    step: int = 0
    pretrained: bool = False
    stopped: bool = False
    spent: float = 0.0  # seconds of training in earlier runs
    opened: float = 0.0  # when the first data was there
    averaging: bool = False

    def __post_init__(self) -> None:
        torch.manual_seed(self.s.seed)
        torch.set_float32_matmul_precision("high")
        self.device = torch.device(self.s.device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.tokenizer = Tokenizer.from_file(str(self.s.tokenizer))
        size = self.tokenizer.get_vocab_size()
        self.model = Classifier(tiny(size) if self.s.small else Config(vocab_size=size)).to(self.device)
        self.average = copy.deepcopy(self.model)
        self.backbone = torch.compile(self.model.backbone) if self.device.type == "cuda" else self.model.backbone
        groups = [
            {"params": [p for p in self.model.parameters() if (p.dim() == 2) == decays], "weight_decay": 0.01 * decays}
            for decays in (True, False)
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.98), fused=self.device.type == "cuda")
        self.weight = torch.ones(len(TAGS), device=self.device)
        self.weight[0] = OUTSIDE
        self.checkpoint = self.s.work / "checkpoint.pt"
        if self.checkpoint.is_file():
            self.resume()

    # ---- the clock

    def share(self) -> float:
        """How much of the schedule is over, 0 to 1: it opens with the first data, and time is kept for the export."""
        total = self.s.minutes * 60 - min(45.0, self.s.minutes * 6) - (self.opened - self.begun)
        return min(1.0, (self.spent + time.monotonic() - self.opened) / total)

    def rate(self, done: float, first: float, last: float) -> float:
        """Learning rate: warm-up, then a cosine from `first` to `last` of the clock."""
        x = min(1.0, max(0.0, (done - first) / (last - first)))
        return max(FLOOR, PEAK * 0.5 * (1 + math.cos(math.pi * x))) * min(1.0, (self.step + 1) / WARM_UP)

    def say(self, text: str) -> None:
        """A line to standard output, with the time."""
        print(f"{time.monotonic() - self.begun:7.1f} {text}", flush=True)

    # ---- steps

    def hidden(self, ids: Tensor, segment: Tensor) -> Tensor:
        """Final hidden states [B, T, D]."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            out: Tensor = self.backbone(ids, same_segment(segment, self.dtype))
        return out

    def masked_loss(self, batch: Batch) -> Tensor:
        """Cross entropy of hidden tokens: the same number in each row, of random places."""
        count = int(MASKED * batch.ids.shape[1])
        order = torch.rand(batch.ids.shape, device=self.device).masked_fill_(batch.segment == 0, -1.0)
        place = order.topk(count, dim=1).indices
        target = batch.ids.gather(1, place).masked_fill(batch.segment.gather(1, place) == 0, IGNORED)
        kept = torch.rand(place.shape, device=self.device)
        other = torch.randint_like(place, 1, self.model.backbone.config.vocab_size)
        shown = torch.where(
            kept < 0.8, torch.zeros_like(place), torch.where(kept < 0.9, other, batch.ids.gather(1, place))
        )
        hidden = self.hidden(batch.ids.scatter(1, place, shown), batch.segment)
        chosen = hidden.gather(1, place[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = chosen @ self.model.backbone.embed_tokens.weight.to(chosen.dtype).T
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=IGNORED)

    def tag_loss(self, batch: Batch) -> Tensor:
        """1.5 times the tags' cross entropy and 0.3 times the sensitivity's."""
        ids = batch.ids
        if self.step % 2:
            dropped = (torch.rand(ids.shape, device=self.device) < DROPPED) & (batch.segment > 0)
            ids = torch.where(dropped, torch.randint_like(ids, 1, self.model.backbone.config.vocab_size), ids)
        hidden = self.hidden(ids, batch.segment)
        logits = self.model.token_cls_head(hidden.float())
        tags = batch.tags.masked_fill(batch.tags == UNKNOWN, IGNORED)
        loss = 1.5 * F.cross_entropy(logits.flatten(0, 1), tags.flatten(), weight=self.weight, ignore_index=IGNORED)
        score = self.model.sensitivity_head(segment_means(hidden, batch.segment, SEGMENTS)).squeeze(-1)
        known = (batch.sensitive != UNKNOWN).float()
        each = F.binary_cross_entropy_with_logits(score, batch.sensitive.clamp(min=0), reduction="none")
        return loss + 0.3 * (each * known).sum() / known.sum().clamp(min=1)

    def update(self, loss: Tensor, rate: float) -> None:
        """Gradients of a loss taken; to be called before the weights are full again."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def settle(self, done: float) -> None:
        """One optimizer step on the full weights, and the running average in the last part."""
        self.optimizer.step()
        self.step += 1
        if done < AVERAGED:
            return
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.model.parameters(), strict=True)
            mine, its = (list(x) for x in zip(*pairs, strict=True))
            if self.averaging:
                torch._foreach_lerp_(mine, its, 1 - AVERAGE)
            else:
                torch._foreach_copy_(mine, its)
                self.averaging = True

    # ---- the whole

    def pretrain(self, pool: Pool, prose: Pool | None) -> None:
        """Masked tokens, half of each batch prose."""
        half = self.s.rows // 2
        while not self.stopped and (done := self.share()) < PRETRAIN:
            batch = pool.draw(self.s.rows - (half if prose else 0), fresh=False)
            if prose:
                other = prose.draw(half, fresh=False)
                batch = Batch(
                    *(
                        torch.cat([getattr(batch, n), getattr(other, n)])
                        for n in ("ids", "tags", "segment", "sensitive")
                    )
                )
            loss = self.masked_loss(batch)
            self.update(loss, self.rate(done, 0, PRETRAIN * 1.6))
            self.settle(0.0)
            if self.step % 50 == 1:
                self.say(f"masked step {self.step} loss {loss.item():.4f} pool {pool.added}")
        self.pretrained = True
        self.step = 0
        self.optimizer.state.clear()

    def tag(self, pool: Pool) -> None:
        """Tags; weights as stored in the last part."""
        saved, tokens, since = time.monotonic(), 0, time.monotonic()
        while not self.stopped and (done := self.share()) < 1.0:
            batch = pool.draw(self.s.rows)
            with as_quantised(self.model, done >= QUANTISED):
                loss = self.tag_loss(batch)
                self.update(loss, self.rate(done, PRETRAIN, 1.0))
            self.settle(done)
            tokens += batch.ids.numel()
            if self.step % 50 == 0:
                value, now = loss.item(), time.monotonic()
                self.say(
                    f"tag step {self.step} done {done:.3f} loss {value:.4f} {tokens / (now - since) / 1e3:.0f} k tok/s"
                    f" pool {pool.added} unseen {pool.added - pool.used}"
                )
                tokens, since = 0, now
                if not math.isfinite(value):
                    raise FloatingPointError(f"the loss is {value} at step {self.step}")
                if now - saved > 150:
                    self.save()
                    saved = time.monotonic()

    def save(self) -> None:
        """Writes the checkpoint; the old one stays until the new one is whole."""
        state = {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "pretrained": self.pretrained,
            "averaging": self.averaging,
            "spent": self.spent + time.monotonic() - (self.opened or time.monotonic()),
        }
        part = self.checkpoint.with_suffix(".part")
        torch.save(state, part)
        part.replace(self.checkpoint)
        self.say("checkpoint written")

    def resume(self) -> None:
        """Goes on from the checkpoint."""
        state = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.pretrained, self.averaging, self.spent = (
            state["step"],
            state["pretrained"],
            state["averaging"],
            state["spent"],
        )
        self.say(f"resumed at step {self.step}")

    def stop(self, *_: object) -> None:
        """Ends the loop at the next step."""
        self.stopped = True

    def main(self) -> None:
        """All phases, and the export in any case."""
        signal.signal(signal.SIGTERM, self.stop)
        pool = Pool(self.s.pool, self.device, self.s.seed)
        feeder = Feeder(pool, self.s.workers, self.s.seed, self.s.tokenizer, self.s.data, self.s.text)
        try:
            prose = None
            if not self.pretrained and (paragraphs := read_prose(self.s.text)):
                block = prose_rows(self.tokenizer, paragraphs[: 12 * self.s.pool])
                prose = Pool(len(block[0]), self.device, self.s.seed)
                prose.add(block)
                self.say(f"{len(block[0])} rows of prose")
            feeder.wait(min(2 * self.s.rows, self.s.pool), 120)
            self.opened = time.monotonic()
            self.say(f"first rows: {pool.added}")
            if not self.pretrained:
                self.pretrain(pool, prose)
            del prose
            self.tag(pool)
        finally:
            feeder.close()
            self.say(f"export after step {self.step}, {pool.added} rows made, {pool.used} seen fresh")
            export.write(self.average if self.averaging else self.model, self.tokenizer, self.s.out)
            self.save()


def main() -> None:
    """Command line."""
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Trains gate-nano.")
    parser.add_argument("--minutes", type=float, default=19.0)
    parser.add_argument("--work", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder of the export")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="from gather_text.py")
    parser.add_argument("--data", type=Path, help="the data directory")
    parser.add_argument("--rows", type=int, default=256 if cuda else 8, help="rows of 512 tokens a step")
    parser.add_argument("--pool", type=int, default=3_000_000 if cuda else 4000, help="rows kept")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try the steps out on a CPU")
    settings = Settings(**vars(parser.parse_args()))
    settings.work.mkdir(parents=True, exist_ok=True)
    settings.out.mkdir(parents=True, exist_ok=True)
    Run(settings, time.monotonic()).main()


if __name__ == "__main__":
    main()
