"""4,096 tokens through one gated delta layer that forgets slowly, against float64.

The inputs are built so that everything before the recurrence is exact in bf16 and no rounding is near a tie: the norm
of rows of +1 and -1 gives +1 and -1, each channel is the sum of four of them, and the convolution has one tap. What
remains is the recurrence itself: the float32 decay and step size, and the sums of the state. A state kept in bf16 or
bf16 products would be off by a hundred times the bound.
"""

import numpy as np
import pytest
from kernels import EPSILON, INSTRUCTION_SETS, Draw, Kernels, hand_over, rms
from timelines import RecordProperty

from reference import (
    BF16_FLOAT64,
    Array,
    GatedDeltaShape,
    GatedDeltaState,
    GatedDeltaWeights,
    Matrix,
    bf16_bits,
    bf16_values,
    gated_delta,
    half_step,
    round_bf16,
)
from reference.numbers import silu

STEPS = 4096
SUMS = 1e-5  # what float32 sums may add to the state
SHAPE = GatedDeltaShape(64, 1, 4, 64, 64, conv_width=4, eps=1e-6)


def signs_of_four(draw: Draw, rows: int, gain: float) -> Matrix:
    """Each output is a sum of four inputs with sizes gain * (1, 1/2, 1/4, 1/8): exact in bf16 for inputs of +1, -1."""
    weight = np.zeros((rows, SHAPE.hidden))
    for row in range(rows):
        weight[row, draw.random.choice(SHAPE.hidden, 4, replace=False)] = gain * 2.0 ** -np.arange(4)
    return Matrix("bf16", bf16_bits(weight))


def make_weights(draw: Draw) -> GatedDeltaWeights:
    conv = np.zeros((4, SHAPE.channels), np.float32)
    conv[3] = 1
    values = SHAPE.value_heads * SHAPE.value_dim
    return GatedDeltaWeights(
        norm=np.ones(SHAPE.hidden, np.float32),
        qkv=signs_of_four(draw, SHAPE.channels, 1.0),
        z=signs_of_four(draw, values, 1.0),
        a=signs_of_four(draw, SHAPE.value_heads, 0.5),
        b=signs_of_four(draw, SHAPE.value_heads, 1.0),
        conv=conv,
        # Softplus of a is 0.2 to 1.3 here: the decay of a step is 1 - 1e-5, 1 - 1e-4, 1 - 1e-3 and 1 - 1e-2 or so.
        decay_rate=np.array([1e-5, 1e-4, 1e-3, 1e-2], np.float32),
        dt_bias=np.zeros(SHAPE.value_heads, np.float32),
        head_norm=np.ones(SHAPE.value_dim, np.float32),
        out=draw.matrix(SHAPE.hidden, values, "bf16"),
    )


def check_premise() -> None:
    """No sum of the four sizes has a SiLU near a tie of its rounding to bf16."""
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    sums = corners @ 2.0 ** -np.arange(4)
    assert np.array_equal(round_bf16(sums), sums)
    opened = silu(sums)
    to_tie = half_step(opened) - np.abs(opened - round_bf16(opened))
    assert (to_tie > 1e-4 * np.abs(opened)).all()


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", [1, 512], ids=["step by step", "in chunks"])
def test_slow_decay(isa: str, rows: int, record_property: RecordProperty) -> None:
    check_premise()
    draw = Draw(17)
    weights = make_weights(draw)
    x = bf16_bits(draw.random.choice((-1.0, 1.0), (STEPS, SHAPE.hidden)))
    state = np.zeros((SHAPE.value_heads, SHAPE.value_dim, SHAPE.key_dim), np.float32)
    window = np.zeros((3, SHAPE.channels), np.uint16)
    expected_x, after = gated_delta(
        SHAPE, weights, bf16_values(x), GatedDeltaState(state, bf16_values(window)), BF16_FLOAT64, round_output=False
    )

    probe = Kernels(isa).probes[-1]
    parts: list[Array] = []
    shape, fields = hand_over(SHAPE, 0), hand_over(weights, 0)
    for first in range(0, STEPS, rows):
        part, state, window = probe.gated_delta(shape, fields, x[first : first + rows], state, window, first)
        parts.append(part)

    assert np.array_equal(bf16_values(window, np.float64), after.window)
    for head in range(SHAPE.value_heads):
        off = rms(state[head] - after.state[head]) / rms(after.state[head])
        record_property(f"head {head}", off)
        print(f"{isa}, {rows} rows a call, decay 1 - {weights.decay_rate[head]:.0e}: state off by {off:.1e}")
        # The decay of a step is a float32 just below one, off by 2^-25 at most, and that adds up over the steps
        # remembered: 1 / decay_rate, or all of them. The sums of a step are off in no fixed direction.
        remembered = min(STEPS, 1 / float(weights.decay_rate[head]))
        assert off <= remembered * EPSILON / 2 + SUMS
    # What is left of x after the output: its last rounding, and few flips before it.
    error = np.abs(bf16_values(np.concatenate(parts), np.float64) - expected_x)
    assert np.mean(error <= half_step(expected_x) + 1e-4) > 0.97
