"""Number formats of the reference: bf16 as 16-bit patterns and as values, and the arithmetic a computation runs in.

A bf16 is the upper half of a float32: 8 bits of significand, the exponent range of float32. Rounding here goes straight
from the working type to bf16, to nearest, ties to even; float64 is never rounded twice on its way.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIGNIFICAND_BITS = 8
SMALLEST_EXPONENT = -125  # of frexp: the smallest normal number is 0.5 * 2^-125


def step(x: Array) -> Array:
    """Return the distance between neighbouring bf16 numbers at x, in the type of x."""
    exponent = np.frexp(x)[1]
    return np.asarray(np.ldexp(np.ones_like(x), np.maximum(exponent, SMALLEST_EXPONENT) - SIGNIFICAND_BITS))


def half_step(x: Array) -> Array:
    """Return the largest error that one rounding of x to bf16 can make."""
    return step(x) / 2


def round_bf16(x: Array) -> Array:
    """Round to the nearest bf16, ties to even, and keep the type of x. Finite values only."""
    spacing = step(x)
    return np.asarray(np.rint(x / spacing) * spacing, dtype=x.dtype)


def bf16_bits(x: Array) -> npt.NDArray[np.uint16]:
    """Return the 16-bit patterns of x rounded to bf16."""
    patterns = round_bf16(np.asarray(x)).astype(np.float32).view(np.uint32)
    return np.asarray(patterns >> np.uint32(16), dtype=np.uint16)


def bf16_values(bits: Array, dtype: Any = np.float32) -> Array:
    """Return the numbers behind 16-bit patterns."""
    patterns = np.asarray(bits.astype(np.uint32) << np.uint32(16))
    return patterns.view(np.float32).astype(dtype)


@dataclass(frozen=True)
class Arithmetic:
    """The type every operation runs in, whether the documented points round to bf16, and whether products with affine
    matrices round their inputs to 8 bits."""

    dtype: Any
    rounding: str | None = None  # None or "bf16"
    byte_inputs: bool = False

    def array(self, x: Any) -> Array:
        return np.asarray(x, dtype=self.dtype)

    @property
    def exact_inputs(self) -> "Arithmetic":
        """The same with inputs as they are, for routers and for a decode step."""
        return replace(self, byte_inputs=False)

    def round(self, x: Array) -> Array:
        """One of the documented rounding points."""
        return round_bf16(x) if self.rounding == "bf16" else x


FLOAT64 = Arithmetic(np.float64)
FLOAT32 = Arithmetic(np.float32)
BF16 = Arithmetic(np.float32, "bf16")
BF16_FLOAT64 = Arithmetic(np.float64, "bf16")
BYTES = Arithmetic(np.float32, "bf16", byte_inputs=True)
BYTES_FLOAT64 = Arithmetic(np.float64, "bf16", byte_inputs=True)


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    return np.logaddexp(np.zeros_like(x), x)
