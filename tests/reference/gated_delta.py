"""The gated delta rule (Yang et al. 2024, "Gated Delta Networks"), one token after another.

Causal depthwise convolution and SiLU over q, k and v; q and k normalised to length one; then per value head
S *= decay; S += beta * (v - S k) k^T; y = S q. The output is normed per head and gated by silu(z). There is no
chunked form here: this is the definition that chunked forms must meet.
"""

from dataclasses import dataclass

import numpy as np

from reference.matmul import Matrix, matmul
from reference.norm import norm, unrounded_norm
from reference.numbers import Arithmetic, Array, sigmoid, silu, softplus

LENGTH_EPS = 1e-6  # under the root of the length of q and k


@dataclass(frozen=True)
class GatedDeltaShape:
    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int
    eps: float

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True)
class GatedDeltaWeights:
    norm: Array  # [hidden]
    qkv: Matrix  # [channels, hidden]: q, then k, then v
    z: Matrix  # [value_heads * value_dim, hidden]
    a: Matrix  # [value_heads, hidden]
    b: Matrix
    conv: Array  # [conv_width, channels], oldest tap first
    decay_rate: Array  # [value_heads]: exp(A_log)
    dt_bias: Array  # [value_heads]
    head_norm: Array  # [value_dim]
    out: Matrix  # [hidden, value_heads * value_dim]


@dataclass(frozen=True)
class GatedDeltaState:
    state: Array  # [value_heads, value_dim, key_dim]
    window: Array  # [conv_width - 1, channels], raw inputs of the convolution, oldest first


def gated_delta(
    shape: GatedDeltaShape,
    weights: GatedDeltaWeights,
    x: Array,
    before: GatedDeltaState,
    arithmetic: Arithmetic,
    round_output: bool = True,
) -> tuple[Array, GatedDeltaState]:
    """Run x [rows, hidden] -> the new x and the state after the last row."""
    rows = len(x)
    x = arithmetic.array(x)
    normed = norm(x, weights.norm, shape.eps, arithmetic)
    raw = arithmetic.round(matmul(normed, weights.qkv, arithmetic))
    z = arithmetic.round(matmul(normed, weights.z, arithmetic)).reshape(rows, shape.value_heads, shape.value_dim)
    decay = np.exp(
        -arithmetic.array(weights.decay_rate)
        * softplus(matmul(normed, weights.a, arithmetic) + arithmetic.array(weights.dt_bias))
    )
    beta = sigmoid(matmul(normed, weights.b, arithmetic))

    inputs = np.concatenate([arithmetic.array(before.window), raw])
    q, k, v = split_heads(shape, arithmetic.round(silu(convolve(inputs, weights.conv, rows, arithmetic))))
    q = unit_length(q) * arithmetic.array(shape.key_dim**-0.5)
    y, state = recur(q, unit_length(k), v, decay, beta, arithmetic.array(before.state))

    gated = unrounded_norm(y, weights.head_norm, shape.eps, arithmetic) * silu(z)
    total = x + matmul(arithmetic.round(gated).reshape(rows, -1), weights.out, arithmetic)
    after = GatedDeltaState(state, inputs[rows:])
    return (arithmetic.round(total) if round_output else total), after


def convolve(inputs: Array, conv: Array, rows: int, arithmetic: Arithmetic) -> Array:
    """Convolve: row r of the result sees inputs r .. r + width - 1; the newest input meets the last tap."""
    total = np.zeros((rows, inputs.shape[1]), dtype=arithmetic.dtype)
    for tap in range(len(conv)):
        total += inputs[tap : tap + rows] * arithmetic.array(conv[tap])
    return total


def split_heads(shape: GatedDeltaShape, mixed: Array) -> tuple[Array, Array, Array]:
    """Cut into q and k, repeated so that value head h has key head h // (value_heads / key_heads), and v."""
    keys = shape.key_heads * shape.key_dim
    repeat = shape.value_heads // shape.key_heads
    q = mixed[:, :keys].reshape(-1, shape.key_heads, shape.key_dim).repeat(repeat, axis=1)
    k = mixed[:, keys : 2 * keys].reshape(-1, shape.key_heads, shape.key_dim).repeat(repeat, axis=1)
    return q, k, mixed[:, 2 * keys :].reshape(-1, shape.value_heads, shape.value_dim)


def unit_length(x: Array) -> Array:
    scaled: Array = x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + x.dtype.type(LENGTH_EPS))
    return scaled


def recur(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> tuple[Array, Array]:
    """Step through q, k [rows, heads, key_dim], v [rows, heads, value_dim], decay, beta [rows, heads] -> y, state."""
    y = np.empty_like(v)
    for row in range(len(v)):
        state = state * decay[row, :, None, None]
        predicted = np.einsum("hvk,hk->hv", state, k[row])
        change = (v[row] - predicted) * beta[row, :, None]
        state = state + change[:, :, None] * k[row, :, None, :]
        y[row] = np.einsum("hvk,hk->hv", state, q[row])
    return y, state
