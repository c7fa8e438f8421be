"""Embedding: the rows of a table, rounded once."""

from reference.matmul import Matrix
from reference.numbers import Arithmetic, Array


def embed(table: Matrix, ids: Array, arithmetic: Arithmetic) -> Array:
    """Look up ids [rows] -> x [rows, hidden]."""
    return arithmetic.round(table.dense(arithmetic.dtype)[ids])
