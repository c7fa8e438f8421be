"""Mixture of experts: a softmax router, top_k SwiGLU experts, and one shared expert with a sigmoid gate.

Ties in the router go to the lowest id. The sum runs in slot order: best expert first, shared expert and residual last.
"""

from dataclasses import dataclass

import numpy as np

from reference.matmul import Matrix, matmul
from reference.norm import norm
from reference.numbers import Arithmetic, Array, sigmoid, silu


@dataclass(frozen=True)
class MoeShape:
    hidden: int
    experts: int
    top_k: int
    width: int
    shared_width: int
    renormalize: bool
    eps: float


@dataclass(frozen=True)
class MoeWeights:
    norm: Array  # [hidden]
    router: Matrix  # [experts, hidden]
    gate: Matrix  # [experts, width, hidden]
    up: Matrix
    down: Matrix  # [experts, hidden, width]
    shared_router: Matrix  # [1, hidden]
    shared_gate: Matrix  # [shared_width, hidden]
    shared_up: Matrix
    shared_down: Matrix  # [hidden, shared_width]


def route(shape: MoeShape, logits: Array) -> tuple[Array, Array]:
    """Choose from logits [rows, experts] -> ids and weights, both [rows, top_k], best first."""
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, : shape.top_k]
    exponential = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probability = exponential / exponential.sum(axis=-1, keepdims=True)
    weights = np.take_along_axis(probability, ids, axis=-1)
    if shape.renormalize:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return ids, weights


def router_margin(shape: MoeShape, logits: Array) -> Array:
    """Return by how much the last chosen expert of each row beats the first one left out (infinity if none is)."""
    ranked = -np.sort(-logits, axis=-1)
    if shape.top_k == shape.experts:
        return np.full(len(logits), np.inf)
    margin: Array = ranked[:, shape.top_k - 1] - ranked[:, shape.top_k]
    return margin


def swiglu(
    x: Array, gate: Matrix, up: Matrix, down: Matrix, arithmetic: Arithmetic, expert: int | None = None
) -> Array:
    opened = silu(matmul(x, gate, arithmetic, expert)) * matmul(x, up, arithmetic, expert)
    return matmul(arithmetic.round(opened), down, arithmetic, expert)


def moe(shape: MoeShape, weights: MoeWeights, x: Array, arithmetic: Arithmetic, round_output: bool = True) -> Array:
    """Run x [rows, hidden] -> the new x."""
    x = arithmetic.array(x)
    normed = norm(x, weights.norm, shape.eps, arithmetic)
    ids, scores = route(shape, matmul(normed, weights.router, arithmetic.exact_inputs))

    outputs = np.empty((*ids.shape, shape.hidden), dtype=arithmetic.dtype)
    for expert in range(shape.experts):
        rows, slots = np.nonzero(ids == expert)
        if len(rows):
            outputs[rows, slots] = swiglu(normed[rows], weights.gate, weights.up, weights.down, arithmetic, expert)
    total = np.zeros_like(x)
    for slot in range(shape.top_k):
        total = total + scores[:, slot, None] * outputs[:, slot]
    open_share = sigmoid(matmul(normed, weights.shared_router, arithmetic.exact_inputs))
    shared = swiglu(normed, weights.shared_gate, weights.shared_up, weights.shared_down, arithmetic)
    total = total + open_share * shared + x
    return arithmetic.round(total) if round_output else total
