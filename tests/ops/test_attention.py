"""Gated attention against float64 with the documented roundings: the stream, and the keys and values it appends."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import (
    FAINT,
    KERNELS,
    Draw,
    Kernels,
    bases,
    check_alike,
    check_bf16,
    few_examples,
    loudness,
    many_examples,
    one_example,
    packings,
    row_counts,
    seeds,
    share_alike,
)

from reference import (
    FLOAT64,
    Arithmetic,
    Array,
    AttentionShape,
    AttentionWeights,
    KvCache,
    attention,
    bf16_values,
)

POISON = 0x7FC1  # a NaN: what lies behind the last position must not matter


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: the past as bf16 patterns, and rows to append to it."""

    shape: AttentionShape
    weights: AttentionWeights
    x: Array
    keys: Array  # [kv_heads, positions, head_dim]
    values: Array

    @property
    def position(self) -> int:
        return int(self.keys.shape[1])

    def reference(self, arithmetic: Arithmetic) -> tuple[Array, Array, Array]:
        """Return x before its last rounding, and the appended keys and values."""
        past = KvCache(bf16_values(self.keys, np.float64), bf16_values(self.values, np.float64))
        x, cache = attention(self.shape, self.weights, bf16_values(self.x), past, arithmetic, round_output=False)
        return x, cache.keys[:, self.position :], cache.values[:, self.position :]

    def run(self, kernels: Kernels, spare: int, base: int) -> tuple[Array, Array, Array]:
        """Return the same of the library, after a look at what it must leave alone."""
        rows, end = len(self.x), self.position + len(self.x)
        room = np.full((self.shape.kv_heads, rows + spare, self.shape.head_dim), POISON, np.uint16)
        keys = np.concatenate([self.keys, room], axis=1)
        values = np.concatenate([self.values, room], axis=1)
        x, new_keys, new_values = kernels.run(
            "attention", self.shape, self.weights, self.x, keys, values, self.position, base=base
        )
        for old, new in ((keys, new_keys), (values, new_values)):
            assert np.array_equal(new[:, : self.position], old[:, : self.position]), "the past was changed"
            assert np.array_equal(new[:, end:], old[:, end:]), "the cache was written behind the last position"
        return x, new_keys[:, self.position : end], new_values[:, self.position : end]


def draw_case(
    draw: Draw, shape: AttentionShape, packing: str, rows: int, position: int, size: float = 2.0**-4, gain: float = 1.0
) -> Case:
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = AttentionWeights(
        norm=draw.gains(shape.hidden),
        q=draw.matrix(2 * width, shape.hidden, packing, gain=gain),
        k=draw.matrix(kv_width, shape.hidden, packing, gain=gain),
        v=draw.matrix(kv_width, shape.hidden, packing),
        o=draw.matrix(shape.hidden, width, packing),
        q_norm=draw.gains(shape.head_dim) * np.float32(draw.random.choice((0.5, 1, 2))),
        k_norm=draw.gains(shape.head_dim),
    )
    x = draw.bits(rows, shape.hidden, scale=size)
    past = (shape.kv_heads, position, shape.head_dim)
    return Case(shape, weights, x, draw.bits(*past), draw.bits(*past))


def check(case: Case, kernels: Kernels, spare: int = 0, base: int = 0) -> None:
    actual = case.run(kernels, spare, base)
    emulated, exact = case.reference(kernels.arithmetic), case.reference(FLOAT64)
    # With several rows the weights are rounded relative to the largest score so far, not to that of the whole row: the
    # same rounding on another grid, once there are several blocks of keys. And a flip in an early key moves all rows.
    check_bf16("x", actual[0], emulated[0], exact[0], alike=0.3)
    check_bf16("keys", actual[1], emulated[1], exact[1])
    check_bf16("values", actual[2], emulated[2], exact[2])


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(
    seed=seeds,
    rows=row_counts,
    position=strategies.one_of(strategies.just(0), strategies.integers(1, 200)),
    heads=strategies.sampled_from(((1, 1), (2, 1), (4, 2), (6, 2), (3, 3), (8, 1))),
    head=strategies.sampled_from(((64, 16), (64, 64), (128, 32), (256, 64))),
    hidden=strategies.sampled_from((64, 192)),
    packing=packings,
    size=loudness,
    gain=strategies.sampled_from((1.0, FAINT)),
    spare=strategies.integers(0, 70),
    byte_inputs=strategies.booleans(),
    base=bases,
)
def test_attention(
    isa: str,
    seed: int,
    rows: int,
    position: int,
    heads: tuple[int, int],
    head: tuple[int, int],
    hidden: int,
    packing: str,
    size: float,
    gain: float,
    spare: int,
    byte_inputs: bool,
    base: int,
) -> None:
    shape = AttentionShape(hidden, *heads, *head, theta=1e7, eps=1e-6)
    kernels = Kernels(isa, byte_inputs)
    check(draw_case(Draw(seed), shape, packing, rows, position, size, gain), kernels, spare, base)


@pytest.mark.parametrize("isa", KERNELS)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("byte_inputs", [False, True])
@one_example
@given(seed=seeds)
def test_it_rounds_where_it_says(isa: str, byte_inputs: bool, rows: int, seed: int) -> None:
    """Twenty draws, each with few enough keys for one block: then the largest score is that of the whole row."""
    shape, draw = AttentionShape(64, 4, 2, 64, 16, theta=1e7, eps=1e-6), Draw(seed)
    kernels = Kernels(isa, byte_inputs)
    shares: list[float] = []
    for position in range(20, 40):
        case = draw_case(draw, shape, "affine4", rows, position)
        pairs = zip(case.run(kernels, 0, 0), case.reference(kernels.arithmetic), strict=True)
        shares += [share_alike(bits, emulated) for bits, emulated in pairs]
    for part in range(3):  # x, keys, values
        check_alike(shares[part::3])


@pytest.mark.parametrize("isa", KERNELS)
@pytest.mark.parametrize("rows", [1, 3])
def test_far_positions_turn_by_the_right_angle(isa: str, rows: int) -> None:
    """At 262,000 the angle of the fastest pair is 41,000 turns: a sine without range reduction is noise there."""
    shape = AttentionShape(64, 1, 1, 64, 64, theta=1e7, eps=1e-6)
    case = draw_case(Draw(3), shape, "affine4", rows, 1000)
    far = dataclasses.replace(case, keys=case.keys.repeat(262, axis=1), values=case.values.repeat(262, axis=1))
    check(far, Kernels(isa))


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, sharpness=strategies.sampled_from((8.0, 40.0)), rows=strategies.sampled_from((1, 5, 70)))
def test_sharp_scores(isa: str, seed: int, sharpness: float, rows: int) -> None:
    """Scores of hundreds: the softmax must stay finite and pick the same keys."""
    shape = AttentionShape(64, 2, 1, 64, 16, theta=1e7, eps=1e-6)
    case = draw_case(Draw(seed), shape, "affine8", rows, 90)
    weights = dataclasses.replace(case.weights, q_norm=case.weights.q_norm * np.float32(sharpness))
    check(dataclasses.replace(case, weights=weights), Kernels(isa))


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, rows=strategies.integers(4, 129), position=strategies.integers(0, 150))
def test_rows_see_only_the_past(isa: str, seed: int, rows: int, position: int) -> None:
    """Changing the later rows of a chunk changes no bit of the earlier ones."""
    shape = AttentionShape(64, 4, 2, 64, 16, theta=1e7, eps=1e-6)
    draw, kernels = Draw(seed), Kernels(isa)
    case = draw_case(draw, shape, "affine4", rows, position)
    cut = int(draw.random.integers(2, rows))
    other = case.x.copy()
    other[cut:] = draw.bits(rows - cut, 64)
    first, second = (dataclasses.replace(case, x=x).run(kernels, 0, 0) for x in (case.x, other))
    assert np.array_equal(first[0][:cut], second[0][:cut])
    assert not np.array_equal(first[0][cut:], second[0][cut:])
