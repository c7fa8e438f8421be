"""The gated delta rule against float64, one token after another: the stream, the state and the convolution window."""

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
    check_float32,
    few_examples,
    loudness,
    many_examples,
    noise,
    one_example,
    packings,
    rms,
    row_counts,
    seeds,
    share_alike,
)

from reference import (
    BF16_FLOAT64,
    FLOAT64,
    Arithmetic,
    Array,
    GatedDeltaShape,
    GatedDeltaState,
    GatedDeltaWeights,
    bf16_bits,
    bf16_values,
    gated_delta,
)

BLOCK = 64  # the recurrence is cut at absolute multiples of this


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: rows, and the state they meet."""

    shape: GatedDeltaShape
    weights: GatedDeltaWeights
    x: Array
    state: Array  # float32
    window: Array  # bf16 patterns
    position: int

    def reference(self, arithmetic: Arithmetic) -> tuple[Array, Array, Array]:
        """Return x before its last rounding, the state and the window."""
        before = GatedDeltaState(self.state, bf16_values(self.window, np.float64))
        x, after = gated_delta(self.shape, self.weights, bf16_values(self.x), before, arithmetic, round_output=False)
        return x, after.state, after.window

    def run(self, kernels: Kernels, base: int = 0) -> tuple[Array, Array, Array]:
        result: tuple[Array, Array, Array] = kernels.run(
            "gated_delta", self.shape, self.weights, self.x, self.state, self.window, self.position, base=base
        )
        return result

    def after(self, rows: int, state: Array, window: Array) -> "Case":
        """Return the rest of the rows, from the state that the first ones left."""
        return dataclasses.replace(self, x=self.x[rows:], state=state, window=window, position=self.position + rows)


def draw_case(
    draw: Draw, shape: GatedDeltaShape, packing: str, rows: int, position: int, size: float = 2.0**-4, gain: float = 1.0
) -> Case:
    values = shape.value_heads * shape.value_dim
    rate = np.exp(draw.random.uniform(np.log(1e-4), np.log(60), shape.value_heads))
    weights = GatedDeltaWeights(
        norm=draw.gains(shape.hidden),
        qkv=draw.matrix(shape.channels, shape.hidden, packing, gain=gain),
        z=draw.matrix(values, shape.hidden, packing),
        a=draw.matrix(shape.value_heads, shape.hidden, packing),
        b=draw.matrix(shape.value_heads, shape.hidden, packing),
        conv=bf16_values(draw.bits(shape.conv_width, shape.channels, scale=0.5)),
        decay_rate=rate.astype(np.float32),
        dt_bias=bf16_values(bf16_bits(draw.random.uniform(-4, 3, shape.value_heads))),
        head_norm=draw.gains(shape.value_dim),
        out=draw.matrix(shape.hidden, values, packing),
    )
    if position:
        state = draw.random.standard_normal((shape.value_heads, shape.value_dim, shape.key_dim))
        window = draw.bits(shape.conv_width - 1, shape.channels, scale=gain)
    else:
        state = np.zeros((shape.value_heads, shape.value_dim, shape.key_dim))
        window = np.zeros((shape.conv_width - 1, shape.channels), np.uint16)
    x = draw.bits(rows, shape.hidden, scale=size)
    return Case(shape, weights, x, state.astype(np.float32), window, position)


def check(case: Case, actual: tuple[Array, Array, Array], arithmetic: Arithmetic = BF16_FLOAT64) -> None:
    emulated, exact = case.reference(arithmetic), case.reference(FLOAT64)
    # A flip in an early row stays in the state, and may move all the later rows.
    check_bf16("x", actual[0], emulated[0], exact[0], alike=0.4)
    check_float32("state", actual[1], emulated[1], exact[1])
    check_bf16("window", actual[2], emulated[2], exact[2])


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(
    seed=seeds,
    rows=row_counts,
    position=strategies.one_of(strategies.just(0), strategies.integers(1, 300)),
    heads=strategies.sampled_from(((1, 1), (1, 3), (2, 4), (3, 3), (2, 8))),
    dims=strategies.sampled_from(((64, 64), (128, 128), (64, 128))),
    hidden=strategies.sampled_from((64, 192)),
    packing=packings,
    size=loudness,
    gain=strategies.sampled_from((1.0, FAINT)),
    byte_inputs=strategies.booleans(),
    base=bases,
)
def test_gated_delta(
    isa: str,
    seed: int,
    rows: int,
    position: int,
    heads: tuple[int, int],
    dims: tuple[int, int],
    hidden: int,
    packing: str,
    size: float,
    gain: float,
    byte_inputs: bool,
    base: int,
) -> None:
    shape = GatedDeltaShape(hidden, *heads, *dims, conv_width=4, eps=1e-6)
    case = draw_case(Draw(seed), shape, packing, rows, position, size, gain)
    kernels = Kernels(isa, byte_inputs)
    check(case, case.run(kernels, base), kernels.arithmetic)


@pytest.mark.parametrize("isa", KERNELS)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("byte_inputs", [False, True])
@one_example
@given(seed=seeds)
def test_it_rounds_where_it_says(isa: str, byte_inputs: bool, rows: int, seed: int) -> None:
    """Twenty draws; the state is off by far less than the roundings before it move it, but for flips."""
    shape, draw = GatedDeltaShape(64, 2, 4, 64, 64, conv_width=4, eps=1e-6), Draw(seed)
    kernels = Kernels(isa, byte_inputs)
    shares, states = [], []
    for position in range(20, 40):
        case = draw_case(draw, shape, "affine4", rows, position)
        emulated, exact = case.reference(kernels.arithmetic), case.reference(FLOAT64)
        actual = case.run(kernels)
        shares += [share_alike(actual[0], emulated[0]), share_alike(actual[2], emulated[2])]
        states.append(rms(actual[1] - emulated[1]) / rms(noise(emulated[1], exact[1])))
    for part in range(2):  # x and window
        check_alike(shares[part::2])
    assert np.median(states) < 0.05


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, rows=strategies.integers(2, 129), position=strategies.integers(0, 130))
def test_any_split_is_the_same_function(isa: str, seed: int, rows: int, position: int) -> None:
    shape = GatedDeltaShape(64, 2, 4, 64, 64, conv_width=4, eps=1e-6)
    draw, kernels = Draw(seed), Kernels(isa)
    case = draw_case(draw, shape, "affine4", rows, position)
    cut = int(draw.random.integers(1, rows))
    first = dataclasses.replace(case, x=case.x[:cut]).run(kernels)
    second = case.after(cut, first[1], first[2]).run(kernels)
    check(case, (np.concatenate([first[0], second[0]]), second[1], second[2]))


@pytest.mark.parametrize("isa", KERNELS)
@few_examples
@given(seed=seeds, tail=strategies.integers(2, 64), head=strategies.integers(2, 64))
def test_a_split_at_a_block_edge_keeps_every_bit(isa: str, seed: int, tail: int, head: int) -> None:
    """Rows head before and tail after an absolute multiple of 64, at once and in two calls."""
    shape = GatedDeltaShape(64, 2, 4, 64, 64, conv_width=4, eps=1e-6)
    kernels = Kernels(isa)
    case = draw_case(Draw(seed), shape, "affine4", head + tail, 3 * BLOCK - head)
    whole = case.run(kernels)
    first = dataclasses.replace(case, x=case.x[:head]).run(kernels)
    second = case.after(head, first[1], first[2]).run(kernels)
    assert np.array_equal(np.concatenate([first[0], second[0]]), whole[0])
    assert second[1].tobytes() == whole[1].tobytes()
    assert np.array_equal(second[2], whole[2])


@pytest.mark.parametrize("isa", KERNELS)
@pytest.mark.parametrize("rows", [1, 2, 64, 129])
@pytest.mark.parametrize("rate", [1e-7, 0.5, 300.0])
def test_extreme_decay(isa: str, rows: int, rate: float) -> None:
    """A decay that rounds to one and one that underflows to zero within a block: ratios of decays must not overflow."""
    shape = GatedDeltaShape(64, 1, 2, 64, 64, conv_width=4, eps=1e-6)
    case = draw_case(Draw(rows), shape, "affine8", rows, 70)
    rates = np.array([rate, 1.0], np.float32)
    case = dataclasses.replace(case, weights=dataclasses.replace(case.weights, decay_rate=rates))
    check(case, case.run(Kernels(isa)))
