"""The ground of the oracle: bf16 rounding and the packed format. What the sublayers mean, test_parity.py settles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import PACKINGS, Draw, few_examples, seeds
from mlx_oracle import require_mlx

from reference import FLOAT32, FLOAT64, Array, Matrix, bf16_bits, bf16_values, half_step, matmul, round_bf16
from reference.attention import rope


def round_by_bits(x: Array) -> Array:
    """Round float32 to bf16 with integers: add half, and the lowest kept bit to break ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, np.uint16)


@few_examples
@given(seed=seeds)
def test_rounding_against_integers(seed: int) -> None:
    """Any finite float32 pattern that stays finite: subnormals, ties, both signs."""
    random = np.random.default_rng(seed)
    exponent = random.integers(0, 254, 4000, dtype=np.uint32) << 23
    fraction = random.integers(0, 2**23, 4000, dtype=np.uint32)
    fraction[::3] &= 0x7F0000  # exact
    fraction[::5] = (fraction[::5] & 0x7F0000) | 0x8000  # a tie
    x = (exponent | fraction | random.integers(0, 2, 4000, dtype=np.uint32) << 31).view(np.float32)
    assert np.array_equal(bf16_bits(x), round_by_bits(x))
    assert np.array_equal(round_bf16(x.astype(np.float64)), round_bf16(x))
    assert (np.abs(round_bf16(x.astype(np.float64)) - x) <= half_step(x.astype(np.float64))).all()


def test_float64_is_rounded_once() -> None:
    """A hair above a tie, too fine for float32: by way of float32 it would become the tie, and go down to even."""
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert bf16_values(bf16_bits(x)) == 1 + 2.0**-7
    assert bf16_values(bf16_bits(x.astype(np.float32))) == 1


def test_codes_by_hand() -> None:
    """Element i of a word sits at bits 4 i (or 8 i) from the lowest; scale 0.5, bias -1."""
    scale, bias = np.full((1, 1), 0x3F00, np.uint16), np.full((1, 1), 0xBF80, np.uint16)
    four = Matrix("affine4", np.array([[0x76543210] + [0xF] * 7], np.uint32), scale, bias).dense(np.float64)
    assert four[0, :9].tolist() == [-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 6.5]
    eight = Matrix("affine8", np.array([[0x03020180] + [0] * 15], np.uint32), scale, bias).dense(np.float64)
    assert eight[0, :5].tolist() == [63, -0.5, 0, 0.5, -1]


@pytest.mark.parametrize("packing", PACKINGS[:2])
def test_codes_against_mlx(packing: str) -> None:
    require_mlx()
    import mlx.core as mx

    matrix = Draw(4).matrix(24, 192, packing)
    assert matrix.scales is not None
    assert matrix.biases is not None
    scales, biases = (mx.array(bf16_values(part)) for part in (matrix.scales, matrix.biases))
    bits = 4 if packing == "affine4" else 8
    dense = np.array(mx.dequantize(mx.array(matrix.codes), scales, biases, group_size=64, bits=bits))
    assert np.abs(matrix.dense(np.float64) - dense).max() <= 2.0**-24 * np.abs(dense).max()


@few_examples
@given(seed=seeds, position=st.integers(0, 100_000))
def test_rotation_is_a_rotation(seed: int, position: int) -> None:
    """RoPE keeps the length of each pair, and scores depend on the distance of two positions only."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((1, 1, 64))
    turned = rope(x, position, 32, 1e4, FLOAT64)
    assert np.allclose(np.hypot(turned[..., :16], turned[..., 16:32]), np.hypot(x[..., :16], x[..., 16:32]))
    assert np.array_equal(turned[..., 32:], x[..., 32:])
    near = np.sum(rope(x, 7, 32, 1e4, FLOAT64) * rope(x, 12, 32, 1e4, FLOAT64))
    far = np.sum(rope(x, position, 32, 1e4, FLOAT64) * rope(x, position + 5, 32, 1e4, FLOAT64))
    # The angle is a float32: its last place is all that tells the two apart.
    assert abs(near - far) <= 64 * (position + 12) * 2.0**-23 + 1e-9


def test_float32_and_float64_say_the_same() -> None:
    matrix, x = Draw(5).matrix(40, 192, "affine4"), Draw(6).random.standard_normal((9, 192)).astype(np.float32)
    assert np.allclose(matmul(x, matrix, FLOAT32), matmul(x, matrix, FLOAT64), atol=1e-5)
