"""The classifier's graph in plain PyTorch: a bidirectional Qwen3 with a head for tags and one for sensitivity.

Names of parameters are those of the checkpoint. Shapes: B rows, T tokens, D hidden.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from .labels import TAGS


@dataclass(frozen=True)
class Config:
    """The shape of gate-nano."""

    vocab_size: int = 12_288
    hidden_size: int = 320
    num_hidden_layers: int = 8
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 896
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e4

    def backbone(self) -> dict[str, object]:
        """The `backbone` entry of config.json."""
        return asdict(self) | {
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "max_position_embeddings": 32_768,
            "use_bidirectional_attention": True,
            "is_causal": False,
        }


class Norm(nn.Module):
    """RMSNorm over the last dimension, in the dtype of its input."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size]."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with q/k norm and rotary positions; `bias` [B, 1, T, T] keeps it inside a segment."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads, self.kv, self.size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, self.kv * self.size, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, self.kv * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, c.hidden_size, bias=False)
        self.q_norm, self.k_norm = Norm(self.size, c.rms_norm_eps), Norm(self.size, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """x [B, T, D]."""
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.heads, self.size)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, self.kv, self.size)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(b, t, -1))
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the halves of the last dimension are turned. x [B, H, T, S], cos and sin [T, S/2]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, D]."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Attention and MLP, each behind its norm and beside its residual."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(c.hidden_size, c.rms_norm_eps),
            Norm(c.hidden_size, c.rms_norm_eps),
        )
        self.self_attn, self.mlp = Attention(c), Mlp(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        """x [B, T, D]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, bias)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Backbone(nn.Module):
    """Tokens to final hidden states."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, ids: Tensor, bias: Tensor) -> Tensor:
        """ids [B, T], bias [B, 1, T, T] in the dtype to compute in; gives [B, T, D]."""
        half = self.config.head_dim // 2
        frequency = self.config.rope_theta ** (-torch.arange(half, device=ids.device).float() / half)
        angle = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * frequency
        cos, sin = angle.cos().to(bias.dtype), angle.sin().to(bias.dtype)
        x = self.embed_tokens(ids).to(bias.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin, bias)
        out: Tensor = self.norm(x)
        return out


class Classifier(nn.Module):
    """The whole model."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.backbone = Backbone(c)
        self.token_cls_head = nn.Linear(c.hidden_size, len(TAGS))
        self.sensitivity_head = nn.Linear(c.hidden_size, 1)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = (2 * c.num_hidden_layers) ** -0.5 if "o_proj" in name or "down_proj" in name else 1.0
                nn.init.normal_(p, std=0.02 if "embed" in name else scale * p.shape[1] ** -0.5)


def same_segment(segment: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias [B, 1, T, T] that lets a token see its own segment only. segment [B, T]."""
    apart = segment[:, :, None] != segment[:, None, :]
    return torch.zeros(apart.shape, dtype=dtype, device=segment.device).masked_fill_(apart, float("-inf"))[:, None]


def segment_means(hidden: Tensor, segment: Tensor, segments: int) -> Tensor:
    """Mean hidden state of each segment [B, segments + 1, D], in float32; zeros where there is none."""
    b, _, d = hidden.shape
    index = (segment + torch.arange(b, device=segment.device)[:, None] * (segments + 1)).flatten()
    sums = torch.zeros(b * (segments + 1), d, device=hidden.device).index_add_(0, index, hidden.float().flatten(0, 1))
    counts = torch.zeros(b * (segments + 1), device=hidden.device).index_add_(
        0, index, torch.ones_like(index, dtype=torch.float32)
    )
    return (sums / counts.clamp(min=1)[:, None]).view(b, segments + 1, d)
