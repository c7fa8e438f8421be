"""Gated attention: grouped heads, RMSNorm of queries and keys, RoPE on the first part of each head, an output gate.

RoPE is Su et al. 2021 with the halves of the rotated part paired (j, j + rotary_dim / 2). Every row is computed on its
own against all the keys it may see; there is no blocking here, so the maximum of a row is its true maximum.
"""

from dataclasses import dataclass

import numpy as np

from reference.matmul import Matrix, matmul
from reference.norm import norm, unrounded_norm
from reference.numbers import Arithmetic, Array, sigmoid


@dataclass(frozen=True)
class AttentionShape:
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    theta: float
    eps: float


@dataclass(frozen=True)
class AttentionWeights:
    norm: Array  # [hidden]
    q: Matrix  # [heads * 2 * head_dim, hidden], per head: head_dim rows of query, then head_dim rows of gate
    k: Matrix  # [kv_heads * head_dim, hidden]
    v: Matrix
    o: Matrix  # [hidden, heads * head_dim]
    q_norm: Array  # [head_dim]
    k_norm: Array


@dataclass(frozen=True)
class KvCache:
    keys: Array  # [kv_heads, positions, head_dim]
    values: Array


def rope(x: Array, position: int, rotary_dim: int, theta: float, arithmetic: Arithmetic) -> Array:
    """Rotate x [rows, heads, head_dim]; row r sits at position + r. The angle is a float32 by definition."""
    half = rotary_dim // 2
    inverse_frequency = (float(theta) ** (-2 * np.arange(half) / rotary_dim)).astype(np.float32)
    positions = np.arange(position, position + len(x), dtype=np.float32)
    angle = arithmetic.array(positions[:, None] * inverse_frequency)[:, None, :]
    first, second, rest = x[..., :half], x[..., half:rotary_dim], x[..., rotary_dim:]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine, rest], axis=-1)


def attention(
    shape: AttentionShape,
    weights: AttentionWeights,
    x: Array,
    cache: KvCache,
    arithmetic: Arithmetic,
    round_output: bool = True,
) -> tuple[Array, KvCache]:
    """Run x [rows, hidden] at the positions after the cache -> the new x, and the cache with the rows appended."""
    rows, position = len(x), cache.keys.shape[1]
    x = arithmetic.array(x)
    normed = norm(x, weights.norm, shape.eps, arithmetic)

    both = arithmetic.round(matmul(normed, weights.q, arithmetic)).reshape(rows, shape.heads, 2, shape.head_dim)
    query, gate = both[:, :, 0], both[:, :, 1]
    key = arithmetic.round(matmul(normed, weights.k, arithmetic)).reshape(rows, shape.kv_heads, shape.head_dim)
    value = arithmetic.round(matmul(normed, weights.v, arithmetic)).reshape(rows, shape.kv_heads, shape.head_dim)

    query = unrounded_norm(query, weights.q_norm, shape.eps, arithmetic)
    key = unrounded_norm(key, weights.k_norm, shape.eps, arithmetic)
    query = arithmetic.round(rope(query, position, shape.rotary_dim, shape.theta, arithmetic))
    key = arithmetic.round(rope(key, position, shape.rotary_dim, shape.theta, arithmetic))
    keys = np.concatenate([arithmetic.array(cache.keys), key.transpose(1, 0, 2)], axis=1)
    values = np.concatenate([arithmetic.array(cache.values), value.transpose(1, 0, 2)], axis=1)

    mixed = np.empty_like(query)
    for head in range(shape.heads):
        shared = head // (shape.heads // shape.kv_heads)
        mixed[:, head] = attend(query[:, head], keys[shared], values[shared], position, arithmetic)

    gated = arithmetic.round(mixed * sigmoid(gate)).reshape(rows, -1)
    total = x + matmul(gated, weights.o, arithmetic)
    return (arithmetic.round(total) if round_output else total), KvCache(keys, values)


def attend(query: Array, keys: Array, values: Array, position: int, arithmetic: Arithmetic) -> Array:
    """Attend with one head: query [rows, head_dim], keys and values [positions, head_dim], causally."""
    rows, head_dim = query.shape
    scores = query @ keys.T * arithmetic.array(head_dim**-0.5)
    visible = np.arange(keys.shape[0])[None, :] <= np.arange(position, position + rows)[:, None]
    scores = np.where(visible, scores, -np.inf)
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    # Several rows: the product with the values takes bf16 weights, their sum does not. One row: float32 throughout.
    rounded = arithmetic.round(weight) if rows > 1 else weight
    mixed: Array = rounded @ values / weight.sum(axis=-1, keepdims=True)
    return mixed
