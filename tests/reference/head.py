"""The language-model head: final norm and the logits, which are never rounded."""

from dataclasses import dataclass

from reference.matmul import Matrix, matmul
from reference.norm import norm
from reference.numbers import Arithmetic, Array


@dataclass(frozen=True)
class HeadWeights:
    norm: Array  # [hidden]
    table: Matrix  # [vocab, hidden]
    eps: float


def head(weights: HeadWeights, x: Array, arithmetic: Arithmetic) -> Array:
    """Turn x [rows, hidden] into logits [rows, vocab]."""
    return matmul(norm(x, weights.norm, weights.eps, arithmetic), weights.table, arithmetic.exact_inputs)
