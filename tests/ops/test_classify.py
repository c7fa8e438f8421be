"""The classifier's heads against float64: logits of rows and scores of windows are float32, never rounded to bf16."""

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import EPSILON, KERNELS, Draw, Kernels, bases, check_bounded, many_examples, seeds, widths

from reference import BF16_FLOAT64, FLOAT64, ClassifyWeights, bf16_values, classify, half_step
from reference.norm import unrounded_norm


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(
    seed=seeds,
    lengths=strategies.lists(strategies.integers(1, 60), min_size=1, max_size=5).map(tuple),
    hidden=widths,
    labels=strategies.sampled_from((1, 3, 4, 37)),
    base=bases,
)
def test_classify(isa: str, seed: int, lengths: tuple[int, ...], hidden: int, labels: int, base: int) -> None:
    draw = Draw(seed)
    draws = draw.random.standard_normal
    weights = ClassifyWeights(
        norm=draw.gains(hidden),
        tags=draws((labels, hidden)).astype(np.float32),
        tags_bias=draws(labels).astype(np.float32),
        sensitivity=draws((1, hidden)).astype(np.float32),
        sensitivity_bias=draws(1).astype(np.float32),
    )
    x = draw.bits(sum(lengths), hidden, scale=2.0)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    logits, scores = Kernels(isa).run("classify", weights, 1e-6, x, starts, base=base)

    values = bf16_values(x, np.float64)
    normed = unrounded_norm(values, weights.norm, 1e-6, FLOAT64)
    # Where float32 sums blur a tie, the norm may round to the other side: one step of that element.
    blur = np.abs(normed) * (hidden / 4 + 8) * EPSILON
    to_tie = np.abs(half_step(normed) - np.abs(normed - BF16_FLOAT64.round(normed)))
    flips = np.where(to_tie <= blur, 2 * half_step(normed), 0)
    error = flips + hidden * EPSILON * np.abs(normed)
    expected = classify(weights, 1e-6, values, lengths, BF16_FLOAT64)
    slack = 4 * EPSILON
    check_bounded("logits", logits, expected[0], error @ np.abs(weights.tags).T + slack * (1 + np.abs(expected[0])))
    row_errors = error @ np.abs(weights.sensitivity[0]) + max(lengths) * EPSILON * (
        np.abs(normed) @ np.abs(weights.sensitivity[0])
    )
    means = np.array([part.mean() for part in np.split(row_errors, starts[1:-1])])
    check_bounded("scores", scores, expected[1], means + slack * (1 + np.abs(expected[1])))
