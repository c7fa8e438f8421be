"""Measures the sensitivity head against its meaning, and makes its numbers probabilities: a temperature and an offset.

python -m training.gate.calibrate --model python/lily/models/gate-nano --data DIR [--write]

The head learnt to say whether a text is sensitive (training/README.md), and says it far too surely. Two numbers, fitted
on the visible evaluation sets, put that right: logit / temperature + offset. `--write` puts them into the head's own
weight and bias, in place, so that no reader of the checkpoint needs to know. Texts that a gold span cannot judge are
left out, and so are unit-test strings, which are numbers without a text. Both kinds of text count half, so that the
number is the probability where every other text is sensitive.
"""

from __future__ import annotations

import argparse
import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily.gate.classifier import Classifier

from . import sets

Floats = NDArray[np.float64]

CRITICAL = {"payment_card", "cvv", "iban", "bank_account", "government_id", "health_id"}
CLINICAL = ("meddocan",)  # beginnings of the files of patients' cases
STRINGS = ("presidio-analyzer-tests",)
_EDGE = 1e-9


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Measures and calibrates the sensitivity head.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=300, help="documents of a file, a fixed sample; 0 for all")
    parser.add_argument("--write", action="store_true", help="put temperature and offset into the head")
    args = parser.parse_args()
    logits, truth = [], []
    with Classifier.load(args.model) as classifier:
        for path in sets.files(args.data):
            if path.name.startswith((*sets.PERSONS_ONLY, *STRINGS)):
                continue
            judged = [
                (d["text"], label) for d in sets.documents(path, args.limit) if (label := sensitive(d, path)) >= 0
            ]
            said = np.array([reading.sensitivity for reading in classifier.read([text for text, _ in judged])])
            true = np.array([label for _, label in judged], float)
            print(
                f"{path.stem:32} {len(true):5} texts, {true.mean():.2f} sensitive, mean of the head {said.mean():.2f}"
            )
            said = said.clip(_EDGE, 1 - _EDGE)
            logits.append(np.log(said / (1 - said)))
            truth.append(true)
    x, t = np.concatenate(logits), np.concatenate(truth)
    half = np.random.default_rng(0).random(len(t)) < 0.5
    report("as it is", sigmoid(x), t)
    slope, offset = fit(x[half], t[half])
    report("fitted on one half, measured on the other", sigmoid(slope * x[~half] + offset), t[~half])
    slope, offset = fit(x, t)
    print(f"temperature {1 / slope:.3f}, offset {offset:.3f}")
    report("fitted", sigmoid(slope * x + offset), t)
    if args.write:
        write(args.model / "model.safetensors", slope, offset)


def sensitive(document: dict[str, Any], path: Path) -> int:
    """1 for a text with a secret or an account that the head was taught to heed, or of a patient; 0 for others.

    -1 for a text with a person but none of these: whether it speaks of money or health nobody marked.
    """
    spans = document["spans"]
    if path.name.startswith(CLINICAL) or any(s["label"] == "secret" or s.get("sub") in CRITICAL for s in spans):
        return 1
    return -1 if any(s["label"] == "private_person" for s in spans) else 0


def fit(x: Floats, t: Floats) -> tuple[float, float]:
    """Slope and offset of the logistic regression of truth on logit, by Newton's method."""
    design, found, weights = np.stack([x, np.ones_like(x)], axis=1), np.zeros(2), even(t)
    for _ in range(50):
        p = sigmoid(design @ found)
        curvature = design.T @ (design * (weights * np.maximum(p * (1 - p), _EDGE))[:, None])
        found += np.linalg.solve(curvature + 1e-9 * np.eye(2), design.T @ (weights * (t - p)))
    return float(found[0]), float(found[1])


def report(name: str, p: Floats, t: Floats) -> None:
    """One line: how well the number ranks, and how far it is from the share of sensitive texts."""
    above = p[t == 1][:, None], p[t == 0][None]
    rank = float((above[0] > above[1]).mean() + 0.5 * (above[0] == above[1]).mean())
    weights, bins = even(t), np.minimum((p * 10).astype(int), 9)
    error = sum(abs((weights * (p - t))[bins == b].sum()) for b in range(10))
    brier, loss = (weights * (p - t) ** 2).sum(), -(weights * np.log(np.where(t == 1, p, 1 - p).clip(_EDGE))).sum()
    print(
        f"{name}: {len(t)} texts, AUC {rank:.3f}, calibration error {error:.3f}, Brier {brier:.3f},"
        f" log loss {loss:.3f}, at 0.5 {(p[t == 1] >= 0.5).mean():.3f} of the sensitive and"
        f" {(p[t == 0] >= 0.5).mean():.3f} of the others"
    )


def even(t: Floats) -> Floats:
    """Weights of the texts, in all 1, half of it for either kind."""
    return np.where(t == 1, 0.5 / t.sum(), 0.5 / (1 - t).sum())


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def write(path: Path, slope: float, offset: float) -> None:
    """Scales the head's weight and bias in the file; every other byte stays."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        size = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:size])
        for name, shift in (("sensitivity_head.weight", 0.0), ("sensitivity_head.bias", offset)):
            first, last = (size + place for place in header[name]["data_offsets"])
            values = np.frombuffer(data[first:last], "<f4") * np.float32(slope) + np.float32(shift)
            data[first:last] = values.astype("<f4").tobytes()


if __name__ == "__main__":
    main()
