"""RMSNorm against float64: the result is the correctly rounded one unless float32 sums blur a tie."""

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import EPSILON, KERNELS, Draw, Kernels, check_rounded, many_examples, row_counts, seeds

from reference import FLOAT64, Array, bf16_values
from reference.norm import unrounded_norm

EPS = 1e-6


def slack(expected: Array, cols: int) -> Array:
    """A sum of cols squares in at least four lanes, a root, a division and two products, each off by half a unit."""
    return np.abs(expected) * (cols / 4 + 8) * EPSILON


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(seed=seeds, rows=row_counts, cols=strategies.integers(1, 700), exponent=strategies.integers(-12, 12))
def test_norm(isa: str, seed: int, rows: int, cols: int, exponent: int) -> None:
    draw = Draw(seed)
    x, weight = draw.bits(rows, cols, scale=2.0**exponent), draw.gains(cols)
    y = Kernels(isa).run("norm", x, weight, EPS)
    expected = unrounded_norm(bf16_values(x, np.float64), weight, EPS, FLOAT64)
    check_rounded("norm", y, expected, slack(expected, cols))


@pytest.mark.parametrize("isa", KERNELS)
def test_rows_do_not_touch_each_other(isa: str) -> None:
    """A row of zeros is normed to zeros (eps keeps it finite), a huge one stays in its row."""
    draw = Draw(0)
    x, weight = draw.bits(3, 192), draw.gains(192)
    x[0], x[1] = 0, draw.bits(192, scale=1e18)
    kernels = Kernels(isa)
    y = kernels.run("norm", x, weight, EPS)
    assert not y[0].any()
    assert y[2].tobytes() == kernels.run("norm", x[2:], weight, EPS)[0].tobytes()
    expected = unrounded_norm(bf16_values(x, np.float64), weight, EPS, FLOAT64)
    check_rounded("norm", y, expected, slack(expected, 192))
