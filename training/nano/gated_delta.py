"""The gated delta rule over whole sequences, in chunks: what is sequential is one product of small matrices a chunk.

Yang, Kautz and Hatamizadeh 2024 (arXiv 2412.06464), section 3.3. Shapes: B rows, H value heads, N chunks of C tokens,
K key dimension, V value dimension. Scores, decays and the state are float32; large operands keep the dtype of the
input. The derivatives of the two functions whose graph would be long are written out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

CHUNK = 64


class Inverse(Function):
    """(I + A)^-1 for strictly lower triangular A [..., C, C], by blocks of doubling size.

    If T inverts the diagonal blocks of a size and M is the part of A that joins two of them, T - T M T inverts blocks
    of twice the size.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        """The inverse, unit lower triangular."""
        size = a.shape[-1]
        flat = a.reshape(-1, size, size)
        place = torch.arange(size, device=a.device)
        inverse = torch.eye(size, device=a.device, dtype=a.dtype) - flat * joins(place, 1)
        block = 2
        while block < size:
            inner = torch.bmm(flat * joins(place, block), inverse)
            inverse = torch.baddbmm(inverse, inverse, inner, alpha=-1)
            block *= 2
        inverse = inverse.view(a.shape)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """-T' G T', as far as A has entries."""
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ gradients[0] @ turned).tril(-1)


def joins(place: Tensor, block: int) -> Tensor:
    """1 where an odd block's row meets the even block before it, else 0: [C, C]."""
    mine = place // block
    return ((mine[:, None] % 2 == 1) & (mine[None, :] == mine[:, None] - 1)).float()


class Scan(Function):
    """The chain of states: S' = decay S + k'(u - w S). Gives the updates u - w S and the state before each chunk.

    u [X, N, C, V], w and k [X, N, C, K], decay [X, N] in float32, X = B H; states [X, N, K, V] in the dtype of u.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, w: Tensor, k: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
        """Updates and states."""
        states = u.new_empty(u.shape[0], u.shape[1], k.shape[-1], u.shape[-1])
        updates = torch.empty_like(u)
        state = states.new_zeros(states[:, 0].shape, dtype=torch.float32)
        for i in range(u.shape[1]):
            states[:, i] = state
            updates[:, i] = torch.baddbmm(u[:, i], w[:, i], states[:, i], alpha=-1)
            state = state * decay[:, i, None, None] + torch.bmm(k[:, i].transpose(1, 2), updates[:, i])
        ctx.save_for_backward(w, k, decay, updates, states)
        return updates, states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Backwards over the chunks, with the gradient of the state that leaves each."""
        to_updates, to_states = gradients
        w, k, decay, updates, states = ctx.saved_tensors
        after = torch.empty_like(states)
        whole = torch.empty_like(updates)
        state = states.new_zeros(states[:, 0].shape, dtype=torch.float32)
        for i in reversed(range(w.shape[1])):
            after[:, i] = state
            whole[:, i] = torch.baddbmm(to_updates[:, i], k[:, i], after[:, i])
            back = torch.bmm(w[:, i].transpose(1, 2), whole[:, i])
            state = to_states[:, i] + state * decay[:, i, None, None] - back
        to_w = -(whole @ states.transpose(-1, -2))
        to_k = updates @ after.transpose(-1, -2)
        to_decay = (after.float() * states.float()).sum((-1, -2))
        return whole, to_w, to_k, to_decay


def operands(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """What the chunks need of each other, from q and k [B, H, T, K], v [B, H, T, V], log_decay and beta [B, H, T].

    Gives A and the scores [B, H, N, C, C], then beta v, beta k with the decay before it, q likewise, k with the decay
    after it [B, H, N, C, .], and the decay of a whole chunk [B, H, N].
    """
    b, h, t, _ = q.shape
    q, k, v = (x.view(b, h, t // CHUNK, CHUNK, x.shape[-1]) for x in (q, k, v))
    log_decay = log_decay.view(b, h, t // CHUNK, CHUNK).cumsum(-1)
    beta = beta.view(b, h, t // CHUNK, CHUNK, 1)
    apart = log_decay[..., :, None] - log_decay[..., None, :]
    place = torch.arange(CHUNK, device=q.device)
    between = torch.exp(torch.where(place[:, None] >= place, apart, -torch.inf))
    keys = k.transpose(-1, -2)
    a = ((k @ keys).float() * between * beta) * (place[:, None] > place)
    scores = ((q @ keys).float() * between).to(q.dtype)
    before = log_decay.exp()[..., None]
    after = (log_decay[..., -1:] - log_decay).exp()[..., None]
    return (
        a,
        scores,
        (v.float() * beta).to(v.dtype),
        (k.float() * (beta * before)).to(k.dtype),
        (q.float() * before).to(q.dtype),
        (k.float() * after).to(k.dtype),
        log_decay[..., -1].exp(),
    )


def chain(a: Tensor, v: Tensor, k_before: Tensor, k_after: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Updates [B, H, N, C, V] and the states before each chunk [B, H, N, K, V], from what `operands` gives."""
    inverse: Tensor = Inverse.apply(a)
    inverse = inverse.to(v.dtype)
    u, w = inverse @ v, inverse @ k_before
    updates, states = Scan.apply(u.flatten(0, 1), w.flatten(0, 1), k_after.flatten(0, 1), decay.flatten(0, 1))
    return updates.view_as(u), states.view(*v.shape[:2], *states.shape[1:])
