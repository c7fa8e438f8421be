"""Do two engines think alike? A teacher-forced comparison of a reference and a tested side over one text.

The text is cut into windows; both sides read each window from an empty timeline and say, after every token, how likely
each next token is. What the reference says is kept in a reduced form (golden.py), so a stored reference and a live one
are compared by the same lines. The sides themselves are in sides.py, the command in command.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .golden import Golden, Window
from .sides import Side

# A position counts as clear when the reference's best token leads the second by more than this, in nats. Under it, the
# roundings of bf16 (a few hundredths of a nat on trained models) may decide between the two.
GAP = 0.25
_CLOSEST_LOOK = 10  # worst positions that a report keeps

Progress = Callable[[int, int], object]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Worst:
    """A position where the two sides differ most: `window` and `position` in it, the token that followed, and each
    side's best token with its probability there; `divergence` is the position's share of Report.divergence."""

    window: int
    position: int
    following: int
    reference_best: int
    reference_probability: float
    tested_best: int
    tested_probability: float
    divergence: float


@dataclass(frozen=True)
class Report:
    """What a comparison found, over `positions` predictions.

    reference_perplexity, tested_perplexity   exp of the mean negative log-probability of the tokens that followed
    difference        tested over reference perplexity, minus 1
    standard_error    of difference: paired, the windows being the samples
    agreement         share of positions where both have the same best token
    clear             positions where the reference's best token leads by more than GAP nats
    clear_agreement   share of these with the same best token; 1.0 if there are none
    divergence        mean Kullback-Leibler divergence of tested from reference in nats, over the tokens that the
                      reference kept and all others as one: a lower bound of the whole one
    largest_divergence  of a position
    worst             the positions of the largest divergence
    """

    reference: str
    tested: str
    positions: int
    windows: int
    reference_perplexity: float
    tested_perplexity: float
    difference: float
    standard_error: float
    agreement: float
    clear: int
    clear_agreement: float
    divergence: float
    largest_divergence: float
    worst: tuple[Worst, ...]


def compare(golden: Golden, tested: Side, progress: Progress | None = None) -> Report:
    """Lets `tested` read the windows of `golden` and compares the two, position by position.

    `progress` is called with windows done and in all. Raises what the tested side raises."""
    differences: list[Floats] = []  # of negative log-probability
    losses: list[Floats] = []
    divergences: list[Floats] = []
    same: list[npt.NDArray[np.bool_]] = []
    clear: list[npt.NDArray[np.bool_]] = []
    worst: list[Worst] = []
    for index, window in enumerate(golden.windows):
        # The last token is followed by nothing, so it is not read: n tokens make n - 1 predictions.
        log_probs = _log_softmax(tested.logits(window.tokens[:-1]))
        following = log_probs[np.arange(len(log_probs)), window.tokens[1:]]
        losses.append(-window.log_probs.astype(np.float64))
        differences.append(window.log_probs - following)
        divergence = _divergence(window, log_probs)
        divergences.append(divergence)
        best = log_probs.argmax(-1)
        same.append(best == window.top_ids[:, 0])
        clear.append(window.top_log_probs[:, 0] - window.top_log_probs[:, 1] > GAP)
        worst = _worst([*worst, *_positions(index, window, log_probs, divergence)])
        if progress is not None:
            progress(index + 1, len(golden.windows))
    return _report(golden.name, tested.name, losses, differences, divergences, same, clear, worst)


def _report(
    reference: str,
    tested: str,
    losses: Sequence[Floats],
    differences: Sequence[Floats],
    divergences: Sequence[Floats],
    same: Sequence[npt.NDArray[np.bool_]],
    clear: Sequence[npt.NDArray[np.bool_]],
    worst: Sequence[Worst],
) -> Report:
    loss, mean = float(np.concatenate(losses).mean()), float(np.concatenate(differences).mean())
    alike, sure, divergence = np.concatenate(same), np.concatenate(clear), np.concatenate(divergences)
    ratio = float(np.exp(mean))
    return Report(
        reference=reference,
        tested=tested,
        positions=len(alike),
        windows=len(losses),
        reference_perplexity=float(np.exp(loss)),
        tested_perplexity=float(np.exp(loss + mean)),
        difference=ratio - 1,
        standard_error=ratio * _standard_error(differences, mean),
        agreement=float(alike.mean()),
        clear=int(sure.sum()),
        clear_agreement=float(alike[sure].mean()) if sure.any() else 1.0,
        divergence=float(divergence.mean()),
        largest_divergence=float(divergence.max()),
        worst=tuple(worst),
    )


def _standard_error(differences: Sequence[Floats], mean: float) -> float:
    """Of the mean of all positions. Those of a window share a text, so a window is one sample; a single window leaves
    only its positions to go by."""
    samples = differences if len(differences) > 1 else [differences[0][i : i + 1] for i in range(len(differences[0]))]
    count = sum(map(len, samples))
    squares = sum(float((sample - mean).sum()) ** 2 for sample in samples)
    return float(np.sqrt(squares * len(samples) / max(1, len(samples) - 1))) / count


def _log_softmax(logits: npt.NDArray[np.float32]) -> Floats:
    wide = logits.astype(np.float64)
    wide -= wide.max(-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(-1, keepdims=True))
    return wide


def _divergence(window: Window, log_probs: Floats) -> Floats:
    """Kullback-Leibler divergence of each position over the reference's kept tokens and the rest as one token.

    By the data-processing inequality (Cover and Thomas, Elements of Information Theory) putting tokens together can
    only lower it."""
    kept = window.top_log_probs.astype(np.float64)
    other = np.take_along_axis(log_probs, window.top_ids, axis=-1)
    total = (np.exp(kept) * (kept - other)).sum(-1)
    rest, other_rest = (np.maximum(1 - np.exp(part).sum(-1), 1e-12) for part in (kept, other))
    return np.asarray(np.maximum(total + rest * np.log(rest / other_rest), 0))


def _positions(index: int, window: Window, log_probs: Floats, divergence: Floats) -> Iterator[Worst]:
    for position in np.argsort(-divergence)[:_CLOSEST_LOOK].tolist():
        best = int(log_probs[position].argmax())
        yield Worst(
            window=index,
            position=position,
            following=int(window.tokens[position + 1]),
            reference_best=int(window.top_ids[position, 0]),
            reference_probability=float(np.exp(window.top_log_probs[position, 0])),
            tested_best=best,
            tested_probability=float(np.exp(log_probs[position, best])),
            divergence=float(divergence[position]),
        )


def _worst(positions: list[Worst]) -> list[Worst]:
    return sorted(positions, key=lambda one: -one.divergence)[:_CLOSEST_LOOK]
