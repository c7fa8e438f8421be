"""The heads of the classifier: tags of every row, and one number on the mean of a window's rows. Nothing is rounded
after the final norm."""

from dataclasses import dataclass

import numpy as np

from reference.norm import norm
from reference.numbers import Arithmetic, Array


@dataclass(frozen=True)
class ClassifyWeights:
    norm: Array  # [hidden]
    tags: Array  # [labels, hidden]
    tags_bias: Array  # [labels]
    sensitivity: Array  # [1, hidden]
    sensitivity_bias: Array  # [1]


def classify(
    weights: ClassifyWeights, eps: float, x: Array, lengths: tuple[int, ...], arithmetic: Arithmetic
) -> tuple[Array, Array]:
    """Turn x [rows, hidden], the windows one after another, into logits [rows, labels] and scores [windows]."""
    hidden = norm(x, weights.norm, eps, arithmetic)
    logits = hidden @ arithmetic.array(weights.tags).T + arithmetic.array(weights.tags_bias)
    means = np.stack([window.mean(axis=0) for window in np.split(hidden, np.cumsum(lengths)[:-1])])
    scores = means @ arithmetic.array(weights.sensitivity)[0] + arithmetic.array(weights.sensitivity_bias)[0]
    return logits, scores
