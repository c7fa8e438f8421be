"""Weight matrices and the product y = x . w^T.

A matrix is stored the way MLX stores it: affine 4 or 8 bits with one bf16 scale and bias for each 64 inputs, codes in
little-endian 32-bit words, lowest bits first; or plain bf16. The product rounds nothing, except for inputs that are
taken as bytes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reference.numbers import Arithmetic, Array, bf16_values

GROUP = 64
BITS = {"affine4": 4, "affine8": 8}


def unpack(words: Array, bits: int) -> Array:
    """Return codes [..., cols] of words [..., cols * bits / 32]."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    codes: Array = (words[..., None] >> shifts) & np.uint32(2**bits - 1)
    return codes.reshape(*words.shape[:-1], -1)


@dataclass(frozen=True, eq=False)
class Matrix:
    """[rows, cols] or [experts, rows, cols]; rows are outputs."""

    packing: str  # affine4, affine8 or bf16
    codes: Array  # uint32 words, or uint16 patterns for bf16
    scales: Array | None = None  # uint16 patterns
    biases: Array | None = None
    _dense: dict[Any, Array] = field(default_factory=dict, repr=False)

    def dense(self, dtype: Any) -> Array:
        """Return scale * code + bias in the given type, and keep it: a whole model asks at every token."""
        if dtype not in self._dense:
            self._dense[dtype] = self._dequantise(dtype)
        return self._dense[dtype]

    def _dequantise(self, dtype: Any) -> Array:
        if self.scales is None or self.biases is None:
            return bf16_values(self.codes, dtype)
        codes = unpack(self.codes, BITS[self.packing]).astype(dtype)
        groups = codes.reshape(*codes.shape[:-1], -1, GROUP)
        scales = bf16_values(self.scales, dtype)[..., None]
        biases = bf16_values(self.biases, dtype)[..., None]
        return (groups * scales + biases).reshape(codes.shape)

    def magnitude(self) -> Array:
        """Return |scale| * code + |bias|: the size of the terms that a product adds up, for error bounds."""
        if self.scales is None or self.biases is None:
            return np.abs(bf16_values(self.codes, np.float64))
        absolute = Matrix(self.packing, self.codes, self.scales & 0x7FFF, self.biases & 0x7FFF)
        return absolute.dense(np.float64)


def matmul(x: Array, matrix: Matrix, arithmetic: Arithmetic, expert: int | None = None) -> Array:
    """Multiply x [rows, cols] by w^T -> [rows, rows of w]."""
    weight = matrix.dense(arithmetic.dtype)
    if expert is not None:
        weight = weight[expert]
    inputs = arithmetic.array(x)
    if arithmetic.byte_inputs and matrix.packing != "bf16":
        inputs = arithmetic.array(round_to_bytes(inputs))
    product: Array = inputs @ weight.T
    return product


def round_to_bytes(x: Array) -> Array:
    """Round each group of x [rows, cols] to whole multiples of 1/127 of its largest magnitude, in float32 steps."""
    groups = x.astype(np.float32).reshape(len(x), -1, GROUP)
    peak = np.abs(groups).max(axis=-1, keepdims=True)
    inverse = np.float32(127) / np.where(peak > 0, peak, np.float32(1))
    rounded: Array = np.rint(groups * inverse) * (peak / np.float32(127))
    return rounded.reshape(x.shape)
