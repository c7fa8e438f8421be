"""The whole decoder: reads an MLX checkpoint with nothing but json and numpy, and runs it a chunk at a time.

`run` takes the state and gives a new one, so that any split of a prompt into chunks, and one token at a time, can be
compared. A chunk of one row is what the library calls decode: there the attention weights are not rounded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reference.attention import AttentionShape, AttentionWeights, KvCache, attention
from reference.embed import embed
from reference.gated_delta import GatedDeltaShape, GatedDeltaState, GatedDeltaWeights, gated_delta
from reference.head import HeadWeights, head
from reference.matmul import Matrix
from reference.moe import MoeShape, MoeWeights, moe
from reference.numbers import Arithmetic, Array, bf16_values

STORED = {"U32": np.uint32, "BF16": np.uint16, "F32": np.float32, "BOOL": np.bool_}


@dataclass(frozen=True)
class DecoderState:
    """Everything that a position leaves behind, one entry a layer."""

    position: int
    layers: tuple[KvCache | GatedDeltaState, ...]


@dataclass(frozen=True)
class Layer:
    mixer: AttentionWeights | GatedDeltaWeights
    moe: MoeWeights


@dataclass(frozen=True)
class Decoder:
    attention: AttentionShape
    gated_delta: GatedDeltaShape
    moe: MoeShape
    table: Matrix
    layers: tuple[Layer, ...]
    head: HeadWeights

    def start(self, arithmetic: Arithmetic) -> DecoderState:
        layers: list[KvCache | GatedDeltaState] = []
        for layer in self.layers:
            if isinstance(layer.mixer, AttentionWeights):
                empty = np.zeros((self.attention.kv_heads, 0, self.attention.head_dim), arithmetic.dtype)
                layers.append(KvCache(empty, empty))
            else:
                shape = self.gated_delta
                state = np.zeros((shape.value_heads, shape.value_dim, shape.key_dim), arithmetic.dtype)
                layers.append(
                    GatedDeltaState(state, np.zeros((shape.conv_width - 1, shape.channels), arithmetic.dtype))
                )
        return DecoderState(0, tuple(layers))

    def run(self, tokens: Any, state: DecoderState, arithmetic: Arithmetic) -> tuple[Array, DecoderState]:
        """Read one chunk: tokens [rows] -> logits [rows, vocab] and the state after them."""
        if len(tokens) == 1:
            arithmetic = arithmetic.exact_inputs
        x = embed(self.table, np.asarray(tokens), arithmetic)
        after: list[KvCache | GatedDeltaState] = []
        for layer, before in zip(self.layers, state.layers, strict=True):
            new: KvCache | GatedDeltaState
            if isinstance(before, KvCache):
                assert isinstance(layer.mixer, AttentionWeights)
                x, new = attention(self.attention, layer.mixer, x, before, arithmetic)
            else:
                assert isinstance(layer.mixer, GatedDeltaWeights)
                x, new = gated_delta(self.gated_delta, layer.mixer, x, before, arithmetic)
            after.append(new)
            x = moe(self.moe, layer.moe, x, arithmetic)
        return head(self.head, x, arithmetic), DecoderState(state.position + len(x), tuple(after))

    def forward(self, tokens: Any, arithmetic: Arithmetic, chunk: int | None = None) -> Array:
        """Return the logits of every position, read in chunks (one chunk by default)."""
        tokens = np.asarray(tokens)
        chunk = chunk or len(tokens)
        state, parts = self.start(arithmetic), []
        for first in range(0, len(tokens), chunk):
            logits, state = self.run(tokens[first : first + chunk], state, arithmetic)
            parts.append(logits)
        return np.concatenate(parts)


def read_tensors(folder: Path) -> dict[str, Array]:
    """Read every tensor of model*.safetensors by name; bf16 as 16-bit patterns."""
    tensors: dict[str, Array] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            stored: np.ndarray[Any, Any] = np.frombuffer(data[begin:end], dtype=STORED[entry["dtype"]])
            tensors[name] = stored.reshape(entry["shape"])
    return tensors


class Reader:
    """Tensors of one prefix."""

    def __init__(self, tensors: dict[str, Array], prefix: str) -> None:
        self.tensors, self.prefix = tensors, prefix

    def under(self, prefix: str) -> "Reader":
        return Reader(self.tensors, self.prefix + prefix)

    def vector(self, name: str) -> Array:
        stored = self.tensors[self.prefix + name]
        return bf16_values(stored, np.float64) if stored.dtype == np.uint16 else stored.astype(np.float64)

    def matrix(self, name: str) -> Matrix:
        codes, scales, biases = (self.tensors[f"{self.prefix}{name}.{part}"] for part in ("weight", "scales", "biases"))
        bits = 32 * codes.shape[-1] // (64 * scales.shape[-1])
        return Matrix(f"affine{bits}", codes, scales, biases)


def load_attention(layer: Reader) -> AttentionWeights:
    part = layer.under("self_attn.")
    q, k, v, o = (part.matrix(f"{name}_proj") for name in "qkvo")
    return AttentionWeights(
        layer.vector("input_layernorm.weight"), q, k, v, o, part.vector("q_norm.weight"), part.vector("k_norm.weight")
    )


def load_gated_delta(layer: Reader) -> GatedDeltaWeights:
    part = layer.under("linear_attn.")
    qkv, z, a, b = (part.matrix(f"in_proj_{name}") for name in ("qkv", "z", "a", "b"))
    return GatedDeltaWeights(
        norm=layer.vector("input_layernorm.weight"),
        qkv=qkv,
        z=z,
        a=a,
        b=b,
        conv=part.vector("conv1d.weight")[:, :, 0].T,
        decay_rate=np.exp(part.vector("A_log")),
        dt_bias=part.vector("dt_bias"),
        head_norm=part.vector("norm.weight"),
        out=part.matrix("out_proj"),
    )


def load_moe(layer: Reader) -> MoeWeights:
    part = layer.under("mlp.")
    return MoeWeights(
        norm=layer.vector("post_attention_layernorm.weight"),
        router=part.matrix("gate"),
        gate=part.matrix("switch_mlp.gate_proj"),
        up=part.matrix("switch_mlp.up_proj"),
        down=part.matrix("switch_mlp.down_proj"),
        shared_router=part.matrix("shared_expert_gate"),
        shared_gate=part.matrix("shared_expert.gate_proj"),
        shared_up=part.matrix("shared_expert.up_proj"),
        shared_down=part.matrix("shared_expert.down_proj"),
    )


def load_decoder(folder: Path) -> Decoder:
    """Load a checkpoint folder in MLX's layout (affine 4 bits, group 64; the norms hold the gain itself)."""
    config = json.loads((folder / "config.json").read_text())["text_config"]
    hidden, eps = config["hidden_size"], config["rms_norm_eps"]
    rotation = config["rope_parameters"]
    reader = Reader(read_tensors(folder), "language_model.")
    layers = []
    for index in range(config["num_hidden_layers"]):
        layer = reader.under(f"model.layers.{index}.")
        full = (index + 1) % config["full_attention_interval"] == 0
        layers.append(Layer(load_attention(layer) if full else load_gated_delta(layer), load_moe(layer)))
    return Decoder(
        attention=AttentionShape(
            hidden=hidden,
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            rotary_dim=int(config["head_dim"] * rotation["partial_rotary_factor"]),
            theta=rotation["rope_theta"],
            eps=eps,
        ),
        gated_delta=GatedDeltaShape(
            hidden=hidden,
            key_heads=config["linear_num_key_heads"],
            value_heads=config["linear_num_value_heads"],
            key_dim=config["linear_key_head_dim"],
            value_dim=config["linear_value_head_dim"],
            conv_width=config["linear_conv_kernel_dim"],
            eps=eps,
        ),
        moe=MoeShape(
            hidden=hidden,
            experts=config["num_experts"],
            top_k=config["num_experts_per_tok"],
            width=config["moe_intermediate_size"],
            shared_width=config["shared_expert_intermediate_size"],
            renormalize=config.get("norm_topk_prob", True),
            eps=eps,
        ),
        table=reader.matrix("model.embed_tokens"),
        layers=tuple(layers),
        head=HeadWeights(reader.vector("model.norm.weight"), reader.matrix("lm_head"), eps),
    )
