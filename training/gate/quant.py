"""Affine 8-bit weights in MLX's layout, and training as if the weights were quantised.

64 inputs share a scale and a bias: w = scale * q + bias with q from 0 to 255; four q to a 32-bit word, lowest byte
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

GROUP = 64


def affine(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q as uint8 [out, in], scales and biases as bfloat16 [out, in / 64]; q is chosen for the rounded two."""
    groups = weight.float().view(*weight.shape[:-1], -1, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    bias = low.bfloat16()
    scale = ((high - bias.float()) / 255).clamp(min=1e-8).bfloat16()
    q = ((groups - bias.float()[..., None]) / scale.float()[..., None]).round().clamp(0, 255)
    return q.flatten(-2).to(torch.uint8), scale, bias


def restore(q: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """The float32 weights that q stands for."""
    groups = q.float().view(*q.shape[:-1], -1, GROUP)
    weights: Tensor = groups * scale.float()[..., None] + bias.float()[..., None]
    return weights.flatten(-2)


def quantised_names(model: nn.Module) -> list[str]:
    """Parameters that are stored in 8 bits: the backbone's matrices, embeddings included."""
    return [name for name, p in model.named_parameters() if name.startswith("backbone.") and p.dim() == 2]


@contextmanager
def as_quantised(model: nn.Module, active: bool = True) -> Iterator[None]:
    """Inside, the weights are what their 8-bit form stands for; outside, the full ones.

    A backward pass inside gives the straight-through gradient, to be applied to the full weights outside.
    """
    if not active:
        yield
        return
    names = set(quantised_names(model))
    chosen = [p for name, p in model.named_parameters() if name in names]
    full = [p.detach().clone() for p in chosen]
    with torch.no_grad():
        for p in chosen:
            p.copy_(restore(*affine(p)))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, kept in zip(chosen, full, strict=True):
                p.copy_(kept)


def pack(q: Tensor) -> Tensor:
    """Four q to a word: uint8 [out, in] as uint32 [out, in / 4]."""
    return q.contiguous().view(torch.uint32)


def unpack(words: Tensor) -> Tensor:
    """The inverse of `pack`."""
    return words.contiguous().view(torch.uint8)
