"""RMSNorm (Zhang and Sennrich 2019): x * rsqrt(mean(x^2) + eps) * weight, one rounding at the end."""

import numpy as np

from reference.numbers import Arithmetic, Array


def norm(x: Array, weight: Array, eps: float, arithmetic: Arithmetic) -> Array:
    """Norm x [..., cols] with weight [cols] (the gain itself, not the zero-centred one of the original model)."""
    return arithmetic.round(unrounded_norm(x, weight, eps, arithmetic))


def unrounded_norm(x: Array, weight: Array, eps: float, arithmetic: Arithmetic) -> Array:
    x = arithmetic.array(x)
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    normed: Array = x / np.sqrt(mean_square + arithmetic.array(eps)) * arithmetic.array(weight)
    return normed
