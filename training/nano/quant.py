"""Affine weights as MLX's converter makes them, and training as if the weights were quantised.

64 inputs share a scale and a bias: w = scale * q + bias. The end of the range that is farther from zero is met exactly,
and zero as well as the step allows. Routers have 8 bits, all other matrices 4. What is not a matrix is rounded to
bfloat16, the norms around zero after 1 was added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

GROUP = 64
ROUTERS = ("mlp.gate.weight", "mlp.shared_expert_gate.weight")


def as_stored(weight: Tensor, bits: int) -> Tensor:
    """The weights that the quantised form of `weight` [.., inputs] stands for, in float32."""
    groups = weight.bfloat16().float().unflatten(-1, (-1, GROUP))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    levels = 2**bits - 1
    from_low = low.abs() > high.abs()
    step = ((high - low) / levels).clamp(min=1e-7)
    step = torch.where(from_low, step, -step)
    edge = torch.where(from_low, low, high)
    steps = (edge / step).round()
    scale = torch.where(steps != 0, edge / steps, step)
    bias = torch.where(steps != 0, edge, 0.0)
    q = ((groups - bias) / scale).round().clamp(0, levels)
    return (q * scale.bfloat16().float() + bias.bfloat16().float()).flatten(-2)


def stored_form(name: str, p: Tensor) -> Tensor:
    """What a parameter of Decoder is after a way through the file."""
    if name.endswith("A_log"):
        return p
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return (1 + p).bfloat16().float() - 1
    if p.dim() == 1 or "conv1d" in name:
        return p.bfloat16().float()
    return as_stored(p, 8 if name.endswith(ROUTERS) else 4)


@contextmanager
def quantised(model: nn.Module, active: bool = True) -> Iterator[None]:
    """Inside, the weights are what their stored form stands for; outside, the full ones.

    A backward pass inside gives the straight-through gradient, to be applied to the full weights outside.
    """
    if not active:
        yield
        return
    full = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(stored_form(name, p))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(full[name])
