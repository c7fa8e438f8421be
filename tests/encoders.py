"""Random checkpoints of the Gate's classifier, in each form that it reads. For tests only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_files import write_tensors
from kernels import Draw

from reference import Array

GATE_NANO = Path(__file__).parent.parent / "python" / "lily" / "models" / "gate-nano"


@dataclass(frozen=True)
class Shape:
    hidden: int = 128
    layers: int = 2
    vocab: int = 320
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    width: int = 192
    theta: float = 1e4
    window: int = 64

    def config(self) -> dict[str, Any]:
        return {
            "model_type": "pii_masking",
            "architectures": ["PiiMaskingModel"],
            "backbone": {
                "model_type": "qwen3",
                "hidden_size": self.hidden,
                "num_hidden_layers": self.layers,
                "vocab_size": self.vocab,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "head_dim": self.head_dim,
                "intermediate_size": self.width,
                "rms_norm_eps": 1e-6,
                "rope_theta": self.theta,
                "hidden_act": "silu",
                "attention_bias": False,
                "is_causal": False,
            },
            "num_token_labels": 37,
            "max_seq_len": self.window,
            "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        }


def matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """Names without prefix -> [outputs, inputs]."""
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    found = {"embed_tokens": (shape.vocab, shape.hidden)}
    for index in range(shape.layers):
        layer = f"layers.{index}."
        found |= {
            f"{layer}self_attn.q_proj": (width, shape.hidden),
            f"{layer}self_attn.k_proj": (kv_width, shape.hidden),
            f"{layer}self_attn.v_proj": (kv_width, shape.hidden),
            f"{layer}self_attn.o_proj": (shape.hidden, width),
            f"{layer}mlp.gate_proj": (shape.width, shape.hidden),
            f"{layer}mlp.up_proj": (shape.width, shape.hidden),
            f"{layer}mlp.down_proj": (shape.hidden, shape.width),
        }
    return found


def vectors(shape: Shape) -> dict[str, int]:
    """The weights of norms: names without prefix -> size."""
    found = {"norm": shape.hidden}
    for index in range(shape.layers):
        layer = f"layers.{index}."
        found |= {
            f"{layer}input_layernorm": shape.hidden,
            f"{layer}post_attention_layernorm": shape.hidden,
            f"{layer}self_attn.q_norm": shape.head_dim,
            f"{layer}self_attn.k_norm": shape.head_dim,
        }
    return found


def draw_tensors(shape: Shape, seed: int, packing: str, prefix: str = "backbone.") -> dict[str, tuple[str, Array]]:
    """Every tensor of a checkpoint as (dtype, array); bf16 as bit patterns."""
    draw = Draw(seed)
    tensors: dict[str, tuple[str, Array]] = {}
    for name, (rows, cols) in matrices(shape).items():
        matrix = draw.matrix(rows, cols, packing, gain=1.0 if name != "embed_tokens" else cols**0.5 * 0.5)
        if matrix.scales is None or matrix.biases is None:
            tensors[f"{prefix}{name}.weight"] = ("BF16", matrix.codes)
        else:
            tensors[f"{prefix}{name}.weight"] = ("U32", matrix.codes)
            tensors[f"{prefix}{name}.scales"] = ("BF16", matrix.scales)
            tensors[f"{prefix}{name}.biases"] = ("BF16", matrix.biases)
    for name, size in vectors(shape).items():
        bits = (draw.gains(size).view(np.uint32) >> 16).astype(np.uint16)
        tensors[f"{prefix}{name}.weight"] = ("BF16", bits)
    normal = draw.random.standard_normal
    for head, rows in (("token_cls_head", 37), ("sensitivity_head", 1)):
        scale = 2 * shape.hidden**-0.5
        tensors[f"{head}.weight"] = ("F32", (scale * normal((rows, shape.hidden))).astype(np.float32))
        tensors[f"{head}.bias"] = ("F32", normal(rows).astype(np.float32))
    tensors["viterbi.b_bias"] = ("F32", np.zeros(1, np.float32))
    tensors["viterbi.e_bias"] = ("F32", np.zeros(1, np.float32))
    tensors["viterbi.transition_mask"] = ("BOOL", np.ones((37, 37), np.bool_))
    return tensors


def write(
    folder: Path,
    shape: Shape,
    seed: int = 0,
    packing: str = "affine8",
    prefix: str = "backbone.",
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[str, Array]] | None = None,
) -> Path:
    """A checkpoint folder without a tokenizer; `config` adds to config.json, `tensors` replaces the drawn ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config() | dict(config or {})))
    chosen = draw_tensors(shape, seed, packing, prefix) if tensors is None else tensors
    raw = {name: (dtype, list(array.shape), array.tobytes()) for name, (dtype, array) in chosen.items()}
    write_tensors(folder / "model.safetensors", raw)
    return folder
