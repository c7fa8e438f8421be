"""The dense feed-forward of an encoder: SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

from dataclasses import dataclass

from reference.matmul import Matrix, matmul
from reference.norm import norm
from reference.numbers import Arithmetic, Array, silu


@dataclass(frozen=True)
class MlpShape:
    hidden: int
    width: int
    eps: float


@dataclass(frozen=True)
class MlpWeights:
    norm: Array  # [hidden]
    gate: Matrix  # [width, hidden]
    up: Matrix
    down: Matrix  # [hidden, width]


def mlp(shape: MlpShape, weights: MlpWeights, x: Array, arithmetic: Arithmetic, round_output: bool = True) -> Array:
    """Run x [rows, hidden] -> the new x."""
    x = arithmetic.array(x)
    normed = norm(x, weights.norm, shape.eps, arithmetic)
    gate, up = matmul(normed, weights.gate, arithmetic), matmul(normed, weights.up, arithmetic)
    total = x + matmul(arithmetic.round(silu(gate) * up), weights.down, arithmetic)
    return arithmetic.round(total) if round_output else total
