"""Final norm and logits against float64. Logits are float32: only ties of the norm's rounding may move them."""

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import (
    EPSILON,
    KERNELS,
    Draw,
    Kernels,
    bases,
    check_bounded,
    many_examples,
    packings,
    seeds,
    widths,
)

from reference import BF16_FLOAT64, FLOAT64, HeadWeights, bf16_values, half_step, head
from reference.norm import unrounded_norm


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(
    seed=seeds,
    rows=strategies.integers(1, 19),
    hidden=widths,
    vocab=strategies.integers(1, 300),
    packing=packings,
    base=bases,
)
def test_head(isa: str, seed: int, rows: int, hidden: int, vocab: int, packing: str, base: int) -> None:
    draw = Draw(seed)
    weights = HeadWeights(draw.gains(hidden), draw.matrix(vocab, hidden, packing, gain=3.0), 1e-6)
    x = draw.bits(rows, hidden, scale=2.0)
    fields = {"norm": weights.norm, "table": weights.table}
    logits, token = Kernels(isa).run("head", fields, weights.eps, x, base=base)
    assert token.tolist() == ([int(np.argmax(logits))] if rows == 1 else [])  # the first of the largest

    values = bf16_values(x, np.float64)
    normed = unrounded_norm(values, weights.norm, weights.eps, FLOAT64)
    # Where float32 sums blur a tie, the norm may round to the other side: one step of that element.
    blur = np.abs(normed) * (hidden / 4 + 8) * EPSILON
    to_tie = np.abs(half_step(normed) - np.abs(normed - BF16_FLOAT64.round(normed)))
    flips = np.where(to_tie <= blur, 2 * half_step(normed), 0) @ np.abs(weights.table.dense(np.float64)).T
    sums = (16 + 3 * hidden / 64) * EPSILON * (np.abs(normed) @ weights.table.magnitude().T)
    check_bounded("logits", logits, head(weights, values, BF16_FLOAT64), sums + flips)
