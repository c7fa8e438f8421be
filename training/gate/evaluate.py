"""Measures an exported model, without rules, on the visible evaluation sets of the data directory. Runs on the CPU.

python -m training.gate.evaluate --model python/lily/models/gate-nano --data DIR
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from . import export, sets
from .decode import Reader
from .score import Score


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Measures an exported model on the evaluation sets.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=600, help="documents of a file, a fixed sample; 0 for all")
    parser.add_argument("--master", action="store_true", help="the bfloat16 weights instead of the 8-bit ones")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    settings = json.loads((args.model / "config.json").read_text("utf-8"))
    reader = Reader(
        export.load(args.model, args.master),
        Tokenizer.from_file(str(args.model / "tokenizer.json")),
        settings["window"],
        settings["stride"],
    )
    scores: dict[str, Score] = {}
    for path in sets.files(args.data):
        documents = sets.documents(path, args.limit)
        score, begun = Score(), time.perf_counter()
        found = reader.read([d["text"] for d in documents])
        seconds = time.perf_counter() - begun
        for document, spans in zip(documents, found, strict=True):
            score.add(document, spans)
        scores[path.stem] = score
        print(f"{path.stem:32} {score.documents:5} {score.line()} {score.length / seconds:.0f} chars/s", flush=True)
    pooled = sets.pooled(scores.values())
    print(f"{'pooled':32} {pooled.documents:5} {pooled.line()}")
    print(
        f"macro untyped F1 over files {sets.macro(scores.values()):.3f},"
        f" clean flagged without persons-only sets {sets.clean(scores)}"
    )
    for label in sorted(pooled.by_label):
        char, exact = pooled.by_label[label].measures(), pooled.exact[label].measures()
        print(f"  {label:18} char {char[0]:.3f}/{char[1]:.3f}/{char[2]:.3f}  exact {exact[2]:.3f}")
    for name, share in sorted(pooled.by_sub.items()):
        print(f"    {name:36} characters found {share.ratio:.3f} of {share.whole}")
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "files": {name: score.untyped.measures() for name, score in scores.items()},
                    "pooled": pooled.untyped.measures(),
                    "typed": pooled.total(pooled.by_label).measures(),
                    "exact": pooled.total(pooled.exact).measures(),
                },
                indent=1,
            ),
            "utf-8",
        )


if __name__ == "__main__":
    main()
