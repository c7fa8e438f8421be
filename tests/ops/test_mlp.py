"""The dense feed-forward against float64 with the documented roundings."""

import numpy as np
import pytest
from hypothesis import given
from kernels import (
    TILES,
    Draw,
    Kernels,
    bases,
    check_bf16,
    many_examples,
    packings,
    row_counts,
    seeds,
    widths,
)

from reference import BF16_FLOAT64, FLOAT64, MlpShape, MlpWeights, bf16_values, mlp


def draw_weights(draw: Draw, shape: MlpShape, packing: str, down: str) -> MlpWeights:
    return MlpWeights(
        norm=draw.gains(shape.hidden),
        gate=draw.matrix(shape.width, shape.hidden, packing),
        up=draw.matrix(shape.width, shape.hidden, packing),
        down=draw.matrix(shape.hidden, shape.width, down),
    )


@pytest.mark.parametrize("isa", TILES)
@many_examples
@given(seed=seeds, rows=row_counts, hidden=widths, width=widths, packing=packings, down=packings, base=bases)
def test_mlp(isa: str, seed: int, rows: int, hidden: int, width: int, packing: str, down: str, base: int) -> None:
    draw, shape = Draw(seed), MlpShape(hidden, width, 1e-6)
    weights = draw_weights(draw, shape, packing, down)
    # A small residual: it must not hide what is added to it.
    x = draw.bits(rows, hidden, scale=2.0**-4)
    actual = Kernels(isa).run("mlp", shape, weights, x, base=base)
    values = bf16_values(x)
    emulated, exact = (mlp(shape, weights, values, a, round_output=False) for a in (BF16_FLOAT64, FLOAT64))
    check_bf16("x", actual, emulated, exact)


@pytest.mark.parametrize("isa", TILES)
def test_many_rows(isa: str) -> None:
    """More rows than one item of the kernel takes, and each row the same bits as in a small call."""
    draw, shape = Draw(11), MlpShape(64, 64, 1e-6)
    weights, x = draw_weights(draw, shape, "affine8", "affine8"), draw.bits(1100, 64)
    kernels = Kernels(isa)
    whole = kernels.run("mlp", shape, weights, x)
    assert np.array_equal(whole[600:610], kernels.run("mlp", shape, weights, x[600:610]))
