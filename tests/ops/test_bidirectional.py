"""Attention of an encoder against float64 with the documented roundings: windows of any length, one call."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import (
    ALIKE,
    KERNELS,
    Draw,
    Kernels,
    bases,
    check_bf16,
    few_examples,
    many_examples,
    packings,
    seeds,
)

from lily.errors import InvalidInput
from reference import (
    BF16_FLOAT64,
    FLOAT64,
    Array,
    AttentionShape,
    AttentionWeights,
    bf16_values,
    bidirectional,
)

BLOCK = 64  # keys are taken in blocks of no less
THETA, EPS = 1e4, 1e-6

window_lengths = strategies.lists(
    strategies.one_of(
        strategies.sampled_from((1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129)), strategies.integers(1, 200)
    ),
    min_size=1,
    max_size=5,
).map(tuple)


def draw_weights(draw: Draw, shape: AttentionShape, packing: str) -> AttentionWeights:
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return AttentionWeights(
        norm=draw.gains(shape.hidden),
        q=draw.matrix(width, shape.hidden, packing),
        k=draw.matrix(kv_width, shape.hidden, packing),
        v=draw.matrix(kv_width, shape.hidden, packing),
        o=draw.matrix(shape.hidden, width, packing),
        q_norm=draw.gains(shape.head_dim) * np.float32(draw.random.choice((0.5, 1, 2))),
        k_norm=draw.gains(shape.head_dim),
    )


def turns(shape: AttentionShape, positions: int) -> Array:
    """The table that a graph hands to the sublayer: cosines, then sines."""
    half = shape.rotary_dim // 2
    inverse_frequency = (shape.theta ** (-2 * np.arange(half) / shape.rotary_dim)).astype(np.float32)
    angle = (np.arange(positions, dtype=np.float32)[:, None] * inverse_frequency).astype(np.float64)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def run(
    kernels: Kernels,
    shape: AttentionShape,
    weights: AttentionWeights,
    x: Array,
    lengths: tuple[int, ...],
    base: int = 0,
) -> Array:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    table = turns(shape, max(lengths))
    result: Array = kernels.run("bidirectional", shape, weights, table, x, starts, base=base)
    return result


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(
    seed=seeds,
    lengths=window_lengths,
    heads=strategies.sampled_from(((1, 1), (2, 1), (4, 2), (6, 2), (3, 3), (8, 1))),
    head_dim=strategies.sampled_from((64, 128)),
    hidden=strategies.sampled_from((64, 192)),
    packing=packings,
    base=bases,
)
def test_bidirectional(
    isa: str,
    seed: int,
    lengths: tuple[int, ...],
    heads: tuple[int, int],
    head_dim: int,
    hidden: int,
    packing: str,
    base: int,
) -> None:
    draw = Draw(seed)
    shape = AttentionShape(hidden, *heads, head_dim, head_dim, THETA, EPS)
    weights = draw_weights(draw, shape, packing)
    # A small residual: it must not hide what is added to it.
    x = draw.bits(sum(lengths), hidden, scale=2.0**-4)
    actual = run(Kernels(isa), shape, weights, x, lengths, base)
    emulated, exact = (
        bidirectional(shape, weights, bf16_values(x), lengths, a, round_output=False) for a in (BF16_FLOAT64, FLOAT64)
    )
    # Several blocks of keys round their weights on another grid than one: see test_attention.
    check_bf16("x", actual, emulated, exact, ALIKE if max(lengths) <= BLOCK else 0.3)


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, rows=strategies.integers(2, 200))
def test_the_last_row_changes_the_first(isa: str, seed: int, rows: int) -> None:
    """A causal mask would leave every row before the changed one as it is."""
    draw, kernels = Draw(seed), Kernels(isa)
    shape = AttentionShape(64, 4, 2, 64, 64, THETA, EPS)
    weights, x = draw_weights(draw, shape, "affine8"), draw.bits(rows, 64)
    other = x.copy()
    other[-1] = draw.bits(64)
    first, second = (run(kernels, shape, weights, array, (rows,)) for array in (x, other))
    changed = np.any(first[:-1] != second[:-1], axis=1)
    assert changed.mean() > 0.5


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, lengths=window_lengths.filter(lambda lengths: len(lengths) > 1))
def test_windows_do_not_see_each_other(isa: str, seed: int, lengths: tuple[int, ...]) -> None:
    """A window gives the same bits alone and beside others."""
    draw, kernels = Draw(seed), Kernels(isa)
    shape = AttentionShape(64, 4, 2, 64, 64, THETA, EPS)
    weights, x = draw_weights(draw, shape, "affine4"), draw.bits(sum(lengths), 64)
    together = run(kernels, shape, weights, x, lengths)
    first = 0
    for length in lengths:
        if length > 1:  # one row alone takes the kernels of a decode step
            alone = run(kernels, shape, weights, x[first : first + length], (length,))
            assert np.array_equal(together[first : first + length], alone)
        first += length


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, sharpness=strategies.sampled_from((8.0, 40.0)), length=strategies.sampled_from((5, 70, 300)))
def test_sharp_scores(isa: str, seed: int, sharpness: float, length: int) -> None:
    """Scores of hundreds: the softmax must stay finite and pick the same keys."""
    draw, shape = Draw(seed), AttentionShape(64, 2, 1, 64, 64, THETA, EPS)
    weights = draw_weights(draw, shape, "affine8")
    weights = dataclasses.replace(weights, q_norm=weights.q_norm * np.float32(sharpness))
    x = draw.bits(length, 64, scale=2.0**-4)
    actual = run(Kernels(isa), shape, weights, x, (length,))
    emulated, exact = (
        bidirectional(shape, weights, bf16_values(x), (length,), a, round_output=False) for a in (BF16_FLOAT64, FLOAT64)
    )
    check_bf16("x", actual, emulated, exact, 0.3)


@pytest.mark.parametrize("starts", [[0, 3], [1, 4], [0, 2, 2, 4], [0, 3, 2, 4], [0], [0, 4]])
def test_borders_that_do_not_fit_are_refused(starts: list[int]) -> None:
    """Four rows, angles for three positions."""
    draw, shape = Draw(5), AttentionShape(64, 1, 1, 64, 64, THETA, EPS)
    weights, x = draw_weights(draw, shape, "bf16"), draw.bits(4, 64)
    with pytest.raises(InvalidInput, match="starts"):
        Kernels(KERNELS[0]).run("bidirectional", shape, weights, turns(shape, 3), x, np.array(starts, np.int32))
