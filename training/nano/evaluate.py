r"""Measures nano: perplexity on held-out text of the float32 master and of the weights as stored, and the gate's jobs.

The first two in plain PyTorch on a CPU. With --model, the jobs are given to the shipped checkpoint in the engine, and
the share of answers that are right to the letter is printed by job.

    python -m training.nano.evaluate --weights run/out --tokenizer tokenizer --heldout heldout.txt.xz
    python -m training.nano.evaluate --model python/lily/models/nano --text text.txt.xz --glossary words.txt.xz \
        --heldout heldout.txt.xz
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from .tokens import documents

WINDOW = 1024


def windows(ids: np.ndarray, count: int) -> np.ndarray:
    """Ids [n, WINDOW + 1]: as many whole windows as there are, at most `count`."""
    n = min(count, (len(ids) - 1) // WINDOW)
    return ids[np.arange(n)[:, None] * WINDOW + np.arange(WINDOW + 1)].astype(np.int64)


def perplexities(weights: Path, tokenizer: Path, heldout: Path, count: int) -> tuple[float, float]:
    """Of the master and of the weights as stored, both computed in float32."""
    import torch
    from tokenizers import Tokenizer

    from . import export
    from .quant import quantised
    from .tokens import Encoder

    model = export.read(weights)
    rows = torch.from_numpy(
        windows(Encoder(Tokenizer.from_file(str(tokenizer / "tokenizer.json"))).text(documents(heldout)), count)
    )
    found = []
    for stored in (False, True):
        with quantised(model, stored), torch.no_grad():
            losses = [model.loss(model.hidden(r[:, :-1], torch.float32)[0], r[:, 1:]).item() for r in rows.split(1)]
        found.append(math.exp(sum(losses) / len(losses)))
    return found[0], found[1]


def engine_perplexity(model: Path, heldout: Path, count: int) -> float:
    """Of the shipped checkpoint in lily's engine, over the same windows."""
    import lily

    with lily.Engine.load(model, max_context=WINDOW + 1) as engine:
        end = engine.tokenizer.control_tokens["<|endoftext|>"]
        ids = np.array([i for text in documents(heldout) for i in (*engine.tokenizer.encode(text), end)], np.int64)
        total = sum(-float(engine.score(row).log_probs.sum()) for row in windows(ids, count))
    return math.exp(total / (min(count, (len(ids) - 1) // WINDOW) * WINDOW))


def right_answers(model: Path, text: Path, glossary: Path, count: int) -> dict[str, tuple[int, int]]:
    """Right answers and questions by job, greedy, on dialogues of a seed that training does not use."""
    import lily
    from lily.sampling import GREEDY

    from .jobs import Jobs

    jobs = Jobs(987_654_321, documents(text), glossary)
    found = {}
    with lily.Engine.load(model) as engine:
        for _, make in jobs.tasks:
            right = 0
            for _ in range(count):
                turns = make()
                messages = [{"role": role, "content": said} for role, said in turns[:-1]]
                answer = engine.generate(messages, max_tokens=300, sampling=GREEDY).text
                right += answer.strip() == turns[-1][1].strip()
            found[make.__name__] = (right, count)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Measures nano.")
    parser.add_argument("--weights", type=Path, help="folder of an export, for the perplexities in PyTorch")
    parser.add_argument("--tokenizer", type=Path, help="folder from tokens.py")
    parser.add_argument("--model", type=Path, help="folder of the converted checkpoint, for the engine")
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=64, help=f"windows of {WINDOW} tokens")
    parser.add_argument("--text", type=Path, help="with --glossary: measure the jobs too; texts to make questions of")
    parser.add_argument("--glossary", type=Path)
    parser.add_argument("--questions", type=int, default=50, help="questions of a job")
    args = parser.parse_args()
    if args.weights:
        master, stored = perplexities(args.weights, args.tokenizer, args.heldout, args.windows)
        print(f"perplexity of the master {master:.3f}, as stored {stored:.3f} ({stored / master - 1:+.2%})")
    if args.model:
        print(f"perplexity in the engine {engine_perplexity(args.model, args.heldout, args.windows):.3f}")
        if args.glossary:
            for name, (right, count) in right_answers(args.model, args.text, args.glossary, args.questions).items():
                print(f"{name:16} {right} of {count}")


if __name__ == "__main__":
    main()
