"""Attention of an encoder: grouped heads, RMSNorm of queries and keys, RoPE on the whole head; a row sees its window.

No gate, no cache, no mask: the positions of a window count from 0, and windows know nothing of each other.
"""

import numpy as np

from reference.attention import AttentionShape, AttentionWeights, rope
from reference.matmul import matmul
from reference.norm import norm, unrounded_norm
from reference.numbers import Arithmetic, Array


def bidirectional(
    shape: AttentionShape,
    weights: AttentionWeights,
    x: Array,
    lengths: tuple[int, ...],
    arithmetic: Arithmetic,
    round_output: bool = True,
) -> Array:
    """Run x [rows, hidden], the windows one after another -> the new x. weights.q is [heads * head_dim, hidden]."""
    x = arithmetic.array(x)
    normed = norm(x, weights.norm, shape.eps, arithmetic)
    query = arithmetic.round(matmul(normed, weights.q, arithmetic)).reshape(len(x), shape.heads, shape.head_dim)
    key = arithmetic.round(matmul(normed, weights.k, arithmetic)).reshape(len(x), shape.kv_heads, shape.head_dim)
    value = arithmetic.round(matmul(normed, weights.v, arithmetic)).reshape(len(x), shape.kv_heads, shape.head_dim)
    query = unrounded_norm(query, weights.q_norm, shape.eps, arithmetic)
    key = unrounded_norm(key, weights.k_norm, shape.eps, arithmetic)

    mixed = np.empty_like(query)
    first = 0
    for length in lengths:
        rows = slice(first, first + length)
        turned_query = arithmetic.round(rope(query[rows], 0, shape.rotary_dim, shape.theta, arithmetic))
        turned_key = arithmetic.round(rope(key[rows], 0, shape.rotary_dim, shape.theta, arithmetic))
        for head in range(shape.heads):
            shared = head // (shape.heads // shape.kv_heads)
            mixed[rows, head] = see_all(turned_query[:, head], turned_key[:, shared], value[rows, shared], arithmetic)
        first += length
    total = x + matmul(arithmetic.round(mixed).reshape(len(x), -1), weights.o, arithmetic)
    return arithmetic.round(total) if round_output else total


def see_all(query: Array, keys: Array, values: Array, arithmetic: Arithmetic) -> Array:
    """Attend with one head over one window: query, keys and values [rows, head_dim]."""
    scores = query @ keys.T * arithmetic.array(query.shape[1] ** -0.5)
    weight = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: Array = arithmetic.round(weight) @ values / weight.sum(axis=-1, keepdims=True)
    return mixed
