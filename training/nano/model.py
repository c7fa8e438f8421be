"""The decoder's graph in plain PyTorch: three gated delta nets to one gated attention, each with a mixture of experts.

Names of parameters are those of the original checkpoints (model_type qwen3_5_moe), norms but that of the delta net
around zero. Computation is in the dtype that `forward` is given; the routers, decays and the loss are float32. Shapes:
B rows, T tokens, D hidden. Each stretch between two long chains of products is one function, compiled on a GPU once for
all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from .gated_delta import chain, operands

ATTENTION_EVERY = 4


@dataclass(frozen=True)
class Config:
    """The shape of nano."""

    vocab_size: int = 8192
    hidden_size: int = 384
    num_hidden_layers: int = 8
    num_attention_heads: int = 2
    num_key_value_heads: int = 1
    head_dim: int = 256
    rotary_dim: int = 64
    rope_theta: float = 1e5
    linear_num_key_heads: int = 2
    linear_num_value_heads: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    num_experts: int = 10
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    rms_norm_eps: float = 1e-6

    def is_attention(self, layer: int) -> bool:
        """Whether a layer is attention; the others are gated delta nets."""
        return layer % ATTENTION_EVERY == ATTENTION_EVERY - 1


class Norm(nn.Module):
    """The weight of an RMSNorm: kept around zero, 1 is added where it is used."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size]."""
        return normed(x, self.weight, self.eps)


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm in float32, in the dtype of its input."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (1 + weight)).to(x.dtype)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x times the transposed weight, in the dtype of x."""
    return F.linear(x, weight.to(x.dtype))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the halves of the first dimensions are turned. x [B, T, H, S], cos and sin [T, R/2]."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest.float()], -1).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with q/k norm, rotary positions on a part of each head, and an output gate."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads, self.kv, self.size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, 2 * self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv * self.size, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, c.hidden_size, bias=False)
        self.q_norm, self.k_norm = Norm(self.size, c.rms_norm_eps), Norm(self.size, c.rms_norm_eps)

    def forward(self, x: Tensor, norm: Norm, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, D] with the sublayer added."""
        b, t, _ = x.shape
        h = norm(x)
        q, gate = linear(h, self.q_proj.weight).view(b, t, self.heads, 2 * self.size).chunk(2, -1)
        k = linear(h, self.k_proj.weight).view(b, t, self.kv, self.size)
        v = linear(h, self.v_proj.weight).view(b, t, self.kv, self.size).transpose(1, 2)
        q = rotate(self.q_norm(q), cos, sin).transpose(1, 2)
        k = rotate(self.k_norm(k), cos, sin).transpose(1, 2)
        group = self.heads // self.kv
        y = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True
        )
        y = y.transpose(1, 2) * torch.sigmoid(gate)
        return x + linear(y.reshape(b, t, -1), self.o_proj.weight)


class Convolution(nn.Module):
    """The weight of a causal depthwise convolution: [channels, 1, taps], the newest token at the last tap."""

    def __init__(self, channels: int, taps: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps) * taps**-0.5)


class GatedDelta(nn.Module):
    """A gated delta net: convolution over q, k and v, the delta rule, a gated norm."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.key_heads, self.heads = c.linear_num_key_heads, c.linear_num_value_heads
        self.key_dim, self.value_dim = c.linear_key_head_dim, c.linear_value_head_dim
        channels = 2 * self.key_heads * self.key_dim + self.heads * self.value_dim
        self.in_proj_qkv = nn.Linear(c.hidden_size, channels, bias=False)
        self.in_proj_z = nn.Linear(c.hidden_size, self.heads * self.value_dim, bias=False)
        self.in_proj_b = nn.Linear(c.hidden_size, self.heads, bias=False)
        self.in_proj_a = nn.Linear(c.hidden_size, self.heads, bias=False)
        self.conv1d = Convolution(channels)
        # Decays from slow to fast: of the rate times softplus(dt_bias) a token keeps 0.999 in one head, 0.5 in another.
        self.A_log = nn.Parameter(torch.log(torch.linspace(0.5, 8.0, self.heads)))
        self.dt_bias = nn.Parameter(torch.linspace(-5.0, -2.0, self.heads))
        self.norm = Norm(self.value_dim, c.rms_norm_eps)
        self.norm.weight.data.fill_(1.0)  # this one norm is not around zero
        self.out_proj = nn.Linear(self.heads * self.value_dim, c.hidden_size, bias=False)

    def forward(self, x: Tensor, norm: Norm) -> Tensor:
        """x [B, T, D] with the sublayer added; T is a multiple of the chunk."""
        a, scores, v, k_before, q, k_after, decay, z = self.inputs(x, norm)
        updates, states = chain(a, v, k_before, k_after, decay)
        return self.outputs(x, q, states, scores, updates, z)

    def inputs(self, x: Tensor, norm: Norm) -> tuple[Tensor, ...]:
        """Everything that does not wait for another chunk."""
        b, t, _ = x.shape
        h = norm(x)
        mixed = F.silu(convolved(linear(h, self.in_proj_qkv.weight), self.conv1d.weight)).to(x.dtype)
        keys = self.key_heads * self.key_dim
        q, k, v = mixed.split([keys, keys, self.heads * self.value_dim], -1)
        q, k = (unit(part.reshape(b, t, self.key_heads, self.key_dim)) for part in (q, k))
        repeat = self.heads // self.key_heads
        q = (q * self.key_dim**-0.5).to(x.dtype).repeat_interleave(repeat, 2).transpose(1, 2).contiguous()
        k = k.to(x.dtype).repeat_interleave(repeat, 2).transpose(1, 2).contiguous()
        v = v.reshape(b, t, self.heads, self.value_dim).transpose(1, 2).contiguous()
        wide = h.float()
        rate = F.softplus(F.linear(wide, self.in_proj_a.weight) + self.dt_bias)
        log_decay = (-self.A_log.exp() * rate).transpose(1, 2).contiguous()
        beta = torch.sigmoid(F.linear(wide, self.in_proj_b.weight)).transpose(1, 2).contiguous()
        return (*operands(q, k, v, log_decay, beta), linear(h, self.in_proj_z.weight))

    def outputs(self, x: Tensor, q: Tensor, states: Tensor, scores: Tensor, updates: Tensor, z: Tensor) -> Tensor:
        """The answers to the queries, normed, gated and projected."""
        b, t, _ = x.shape
        y = (q @ states + scores @ updates).reshape(b, self.heads, t, self.value_dim).transpose(1, 2)
        y = normed(y.float(), self.norm.weight - 1, self.norm.eps)
        gated = y * F.silu(z.view(b, t, self.heads, self.value_dim).float())
        return x + linear(gated.to(x.dtype).reshape(b, t, -1), self.out_proj.weight)


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """x [B, T, channels] through a causal depthwise convolution, in float32."""
    taps, t = weight.shape[-1], x.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0))
    return torch.stack([padded[:, i : i + t].float() * weight[:, 0, i] for i in range(taps)]).sum(0)


def unit(x: Tensor) -> Tensor:
    """The last dimension scaled to length 1, in float32."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + 1e-6)


class Experts(nn.Module):
    """The weights of all experts, gate above up."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        width = c.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(c.num_experts, 2 * width, c.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(c.num_experts, c.hidden_size, width))


class SharedExpert(nn.Module):
    """The expert that reads every token."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        width = c.shared_expert_intermediate_size
        self.gate_proj = nn.Linear(c.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, c.hidden_size, bias=False)


class Moe(nn.Module):
    """A mixture of experts. All of them are computed for all tokens: with so few, that is faster than sorting."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.top_k = c.num_experts_per_tok
        self.gate = nn.Linear(c.hidden_size, c.num_experts, bias=False)
        self.experts = Experts(c)
        self.shared_expert = SharedExpert(c)
        self.shared_expert_gate = nn.Linear(c.hidden_size, 1, bias=False)

    def forward(self, x: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """x [B, T, D] with the sublayer added, and how unevenly the router chose (1 is even)."""
        h = norm(x)
        wide = h.float()
        share, chosen = route(F.linear(wide, self.gate.weight), self.top_k)
        weight = share * chosen
        weight = weight / weight.sum(-1, keepdim=True)
        opened = linear(h, self.experts.gate_up_proj.flatten(0, 1)).unflatten(-1, (len(self.experts.down_proj), 2, -1))
        inner = F.silu(opened[..., 0, :].float()) * opened[..., 1, :].float() * weight[..., None]
        y = linear(inner.to(x.dtype).flatten(-2), self.experts.down_proj.transpose(0, 1).flatten(1))
        part = self.shared_expert
        opened = F.silu(linear(h, part.gate_proj.weight).float()) * linear(h, part.up_proj.weight).float()
        shared = linear(opened.to(x.dtype), part.down_proj.weight)
        y = y + torch.sigmoid(F.linear(wide, self.shared_expert_gate.weight)) * shared
        used = chosen.float().mean((0, 1)) / self.top_k
        return x + y.to(x.dtype), share.shape[-1] * (used * share.mean((0, 1))).sum()


def route(logits: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Softmax over all experts, and which are among the best, [B, T, E]; of equal ones the first is better."""
    place = torch.arange(logits.shape[-1], device=logits.device)
    mine, other = logits[..., :, None], logits[..., None, :]
    better = (other > mine) | ((other == mine) & (place < place[:, None]))
    return logits.softmax(-1), better.sum(-1) < top_k


class Layer(nn.Module):
    """A mixer and a mixture of experts, each behind its norm and beside its residual."""

    def __init__(self, c: Config, layer: int) -> None:
        super().__init__()
        self.attends = c.is_attention(layer)
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        if self.attends:
            self.self_attn = Attention(c)
        else:
            self.linear_attn = GatedDelta(c)
        self.mlp = Moe(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, D], and the unevenness of the router."""
        if self.attends:
            x = self.self_attn(x, self.input_layernorm, cos, sin)
        else:
            x = self.linear_attn(x, self.input_layernorm)
        out: tuple[Tensor, Tensor] = self.mlp(x, self.post_attention_layernorm)
        return out


class Decoder(nn.Module):
    """The whole model."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1 and "conv1d" not in name:
                scale = (
                    (2 * c.num_hidden_layers) ** -0.5
                    if "o_proj" in name or "out_proj" in name or "down_proj" in name
                    else 1.0
                )
                nn.init.normal_(p, std=0.5 if "embed" in name else scale * 0.6 * p.shape[-1] ** -0.5)

    def hidden(self, ids: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """ids [B, T] to what the head reads, before its norm: [B, T, D]; and the mean unevenness of the routers."""
        c = self.config
        frequency = c.rope_theta ** (-torch.arange(0, c.rotary_dim, 2, device=ids.device).float() / c.rotary_dim)
        angle = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        x = self.embed_tokens(ids).to(dtype)
        uneven = x.new_zeros((), dtype=torch.float32)
        for layer in self.layers:
            x, one = layer(x, cos, sin)
            uneven = uneven + one
        return x, uneven / c.num_hidden_layers

    def logits(self, x: Tensor) -> Tensor:
        """Final norm and head: [B, T, vocabulary]."""
        return linear(self.norm(x), self.lm_head.weight)

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy of the targets [B, T] that are not negative."""
        return F.cross_entropy(self.logits(x).flatten(0, 1).float(), target.flatten(), ignore_index=-1)


def compiled(model: Decoder) -> None:
    """Compiles the stretches, once for all layers of a kind."""
    GatedDelta.inputs = torch.compile(GatedDelta.inputs, dynamic=False)  # type: ignore[method-assign]
    GatedDelta.outputs = torch.compile(GatedDelta.outputs, dynamic=False)  # type: ignore[method-assign]
    Attention.forward = torch.compile(Attention.forward, dynamic=False)  # type: ignore[method-assign]
    Moe.forward = torch.compile(Moe.forward, dynamic=False)  # type: ignore[method-assign]
    model.loss = torch.compile(model.loss, dynamic=False)  # type: ignore[method-assign]
