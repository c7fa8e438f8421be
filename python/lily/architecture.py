"""The one architecture that lily runs: its dimensions, and the tensors and sizes that follow from them.

Qwen3.6-35B-A3B (model_type qwen3_5_moe): blocks of three gated delta net layers and one gated attention layer, each
followed by a mixture of experts. Dimensions are free, so that small checkpoints load as well; everything else is fixed.
Where dimensions come from (config.json) is model_config.py's business, how matrices are quantised quantization.py's.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

DEFAULT_REPO = "mlx-community/Qwen3.6-35B-A3B-4bit"
DEFAULT_REVISION = "38740b847e4cb78f352aba30aa41c76e08e6eb46"

ATTENTION_EVERY = 4
GROUP = 64
PREFIX = "language_model."


@dataclass(frozen=True)
class Vector:
    """A tensor that is not quantised: a norm weight, the convolution, a per-head constant."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Projection:
    """A quantised matrix [rows, cols], y = x . w^T, or a stack [experts, rows, cols] when `experts` is not None.

    On disk it is `path`.weight (codes, U32), `path`.scales and `path`.biases.
    """

    path: str
    rows: int
    cols: int
    experts: int | None = None

    @property
    def is_router(self) -> bool:
        """True for the two matrices that must keep 8 bits: errors there pick other experts for a token."""
        return self.path.endswith((".mlp.gate", ".mlp.shared_expert_gate"))

    @property
    def lead(self) -> tuple[int, ...]:
        """All dimensions but the last."""
        return (self.rows,) if self.experts is None else (self.experts, self.rows)

    @property
    def parameters(self) -> int:
        """Logical weights, however they are packed."""
        return math.prod(self.lead) * self.cols


@dataclass(frozen=True)
class Architecture:
    """The dimensions of a model, under the names of the C++ decoder's config."""

    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int  # head_dim * partial_rotary_factor
    theta: float
    eps: float
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_width: int
    experts: int
    top_k: int
    width: int
    shared_width: int
    renormalize: bool = True  # norm_topk_prob

    def decoder_config(self) -> dict[str, Any]:
        """The config dict of the C++ engine."""
        return {**dataclasses.asdict(self), "attention_every": ATTENTION_EVERY}

    def is_attention(self, layer: int) -> bool:
        """Whether a layer is gated attention; the others are gated delta nets."""
        return layer % ATTENTION_EVERY == ATTENTION_EVERY - 1

    @property
    def attention_layers(self) -> int:
        """How many layers are gated attention."""
        return self.layers // ATTENTION_EVERY

    @property
    def delta_layers(self) -> int:
        """How many layers are gated delta nets."""
        return self.layers - self.attention_layers

    @property
    def channels(self) -> int:
        """Channels of the convolution: q, k and v of the gated delta net side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of bf16 keys and values that one position takes, over all attention layers."""
        return self.attention_layers * 2 * self.kv_heads * self.head_dim * 2

    @property
    def state_bytes(self) -> int:
        """Bytes of one timeline's recurrent state: f32 delta state and bf16 convolution window, over all layers."""
        state = self.value_heads * self.value_dim * self.key_dim * 4
        window = (self.conv_width - 1) * self.channels * 2
        return self.delta_layers * (state + window)

    @property
    def parameters(self) -> int:
        """Logical weights of the model, however they are packed."""
        return sum(p.parameters for p in self.projections()) + sum(math.prod(v.shape) for v in self.vectors())

    @property
    def active_parameters(self) -> int:
        """Parameters that take part in one token: top_k of the experts, one row of the embedding."""
        idle_experts = self.layers * (self.experts - self.top_k) * 3 * self.width * self.hidden
        return self.parameters - idle_experts - (self.vocab - 1) * self.hidden

    def projections(self) -> list[Projection]:
        """Every quantised matrix, in the order of the model."""
        found = [Projection(f"{PREFIX}model.embed_tokens", self.vocab, self.hidden)]
        for layer in range(self.layers):
            base = f"{PREFIX}model.layers.{layer}."
            found += self._attention(base) if self.is_attention(layer) else self._delta(base)
            found += self._experts(base + "mlp.")
        found.append(Projection(f"{PREFIX}lm_head", self.vocab, self.hidden))
        return found

    def vectors(self) -> list[Vector]:
        """Every tensor that is not quantised, in the order of the model."""
        found: list[Vector] = []
        for layer in range(self.layers):
            base = f"{PREFIX}model.layers.{layer}."
            norms = ("input_layernorm", "post_attention_layernorm")
            found += [Vector(f"{base}{norm}.weight", (self.hidden,)) for norm in norms]
            if self.is_attention(layer):
                found += [Vector(f"{base}self_attn.{name}.weight", (self.head_dim,)) for name in ("q_norm", "k_norm")]
            else:
                delta = base + "linear_attn."
                found.append(Vector(f"{delta}conv1d.weight", (self.channels, self.conv_width, 1)))
                found.append(Vector(f"{delta}A_log", (self.value_heads,)))
                found.append(Vector(f"{delta}dt_bias", (self.value_heads,)))
                found.append(Vector(f"{delta}norm.weight", (self.value_dim,)))
        found.append(Vector(f"{PREFIX}model.norm.weight", (self.hidden,)))
        return found

    def _attention(self, base: str) -> list[Projection]:
        at, queries, keys = base + "self_attn.", self.heads * self.head_dim, self.kv_heads * self.head_dim
        return [
            Projection(at + "q_proj", 2 * queries, self.hidden),
            Projection(at + "k_proj", keys, self.hidden),
            Projection(at + "v_proj", keys, self.hidden),
            Projection(at + "o_proj", self.hidden, queries),
        ]

    def _delta(self, base: str) -> list[Projection]:
        at, values = base + "linear_attn.", self.value_heads * self.value_dim
        return [
            Projection(at + "in_proj_qkv", self.channels, self.hidden),
            Projection(at + "in_proj_z", values, self.hidden),
            Projection(at + "in_proj_a", self.value_heads, self.hidden),
            Projection(at + "in_proj_b", self.value_heads, self.hidden),
            Projection(at + "out_proj", self.hidden, values),
        ]

    def _experts(self, at: str) -> list[Projection]:
        found = [Projection(at + "gate", self.experts, self.hidden)]
        for part, width, experts in (
            ("switch_mlp", self.width, self.experts),
            ("shared_expert", self.shared_width, None),
        ):
            found.append(Projection(f"{at}{part}.gate_proj", width, self.hidden, experts))
            found.append(Projection(f"{at}{part}.up_proj", width, self.hidden, experts))
            found.append(Projection(f"{at}{part}.down_proj", self.hidden, width, experts))
        found.append(Projection(at + "shared_expert_gate", 1, self.hidden))
        return found


QWEN36_35B_A3B = Architecture(
    hidden=2048,
    layers=40,
    vocab=248320,
    heads=16,
    kv_heads=2,
    head_dim=256,
    rotary_dim=64,
    theta=1e7,
    eps=1e-6,
    key_heads=16,
    value_heads=32,
    key_dim=128,
    value_dim=128,
    conv_width=4,
    experts=256,
    top_k=8,
    width=512,
    shared_width=512,
)
