"""How fast an encoder of the reference classifier's size reads: 28 layers of 1024, random weights, 512 tokens.

    python -m benchmarks.encoder_speed [--tokens 512] [--threads N] [--seconds 20] [--json]

In bf16 and in MLX affine 8 bits, in turns. Two layers are drawn and take turns, so that the checkpoint is small; the
work is that of all, but a machine whose caches hold two layers is flattered. rounds.py says which rounds count. The
Gate around an encoder: gate_speed.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from lily import _ext
from lily.gate.checkpoint import open_encoder

from .rounds import Round, line, summary, timed, within

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from encoders import Shape, write

FULL = Shape(hidden=1024, layers=28, vocab=512, heads=16, kv_heads=8, head_dim=128, width=3072, theta=1e6, window=4096)
DRAWN = 2


def load(folder: Path, packing: str, threads: int) -> _ext.Encoder:
    """An encoder of all layers on the weights of two."""
    checkpoint = open_encoder(write(folder, dataclasses.replace(FULL, layers=DRAWN), packing=packing))
    views = {view[0]: view for view in checkpoint.tensors}
    for layer in range(DRAWN, FULL.layers):
        drawn = f"backbone.layers.{layer % DRAWN}."
        for name in [name for name in views if name.startswith(drawn)]:
            copy = name.replace(drawn, f"backbone.layers.{layer}.", 1)
            views[copy] = (copy, *views[name][1:])
    weights = _ext.Weights(checkpoint.files, list(views.values()))
    config = checkpoint.config | {"layers": FULL.layers}
    return _ext.Encoder(weights, config, device="cpu", threads=threads, max_rows=FULL.window)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0, help="left out, one for each CPU")
    parser.add_argument("--seconds", type=float, default=20.0, help="for all rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    ids = np.random.default_rng(1).integers(0, FULL.vocab, options.tokens).astype(np.int32)
    lengths = np.array([options.tokens], np.int32)
    with tempfile.TemporaryDirectory() as folder:
        encoders = {name: load(Path(folder) / name, name, options.threads) for name in ("bf16", "affine8")}
        found: dict[str, list[Round]] = {name: [] for name in encoders}
        for encoder in encoders.values():
            encoder.logits(ids, lengths)  # warm
        for _ in within(options.seconds):
            for name, encoder in encoders.items():
                found[name].append(timed(lambda encoder=encoder: encoder.logits(ids, lengths)))  # type: ignore[misc]
        for name, encoder in encoders.items():
            figures = {"device": encoder.device_name} | summary(found[name], lambda spent: options.tokens / spent, 1)
            shown = f"{name}, tokens a second"
            print(json.dumps({"name": shown} | figures) if options.json else line(shown, figures), flush=True)
            encoder.close()


if __name__ == "__main__":
    main()
