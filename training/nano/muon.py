"""Muon: momentum, made orthogonal. For matrices inside the network; what else there is goes to AdamW.

Jordan et al. 2024 (kellerjordan.github.io/posts/muon): the update is the nearest orthogonal matrix of the momentum,
approached by five steps of a quintic Newton-Schulz iteration. It is scaled as Liu et al. 2025 (arXiv 2502.16982), so
that its elements are of the size of AdamW's and one learning rate suits both.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)
STEPS = 5
MOMENTUM = 0.95


def orthogonal(x: Tensor) -> Tensor:
    """Each matrix of x [n, rows, columns] with its singular values brought near 1."""
    turned = x.shape[-2] > x.shape[-1]
    y = x.transpose(-1, -2) if turned else x
    y = (y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
    a, b, c = QUINTIC
    for _ in range(STEPS):
        square = y @ y.transpose(-1, -2)
        y = a * y + (b * square + c * (square @ square)) @ y
    return (y.transpose(-1, -2) if turned else y).to(x.dtype)


class Muon:
    """Steps of parameters that are matrices or stacks of them; those of one shape go together."""

    def __init__(self, parameters: list[nn.Parameter], decay: float) -> None:
        self.decay = decay
        shapes = dict.fromkeys(tuple(p.shape) for p in parameters)
        self.groups = [[p for p in parameters if tuple(p.shape) == shape] for shape in shapes]
        self.momenta = [torch.zeros(len(group), *group[0].shape, device=group[0].device) for group in self.groups]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One step along the gradients, with the learning rate."""
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            momentum.lerp_(gradient, 1 - MOMENTUM)
            ahead = gradient.lerp_(momentum, MOMENTUM)
            rows, columns = ahead.shape[-2:]
            update = orthogonal(ahead.view(-1, rows, columns)).view_as(ahead)
            torch._foreach_mul_(group, 1 - rate * self.decay)
            torch._foreach_add_(group, list(update.unbind()), alpha=-rate * 0.2 * max(rows, columns) ** 0.5)
