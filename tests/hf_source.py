"""Writes a small random checkpoint the way the model's authors publish it: Hugging Face names and layouts, bf16, one
safetensors file, norms zero-centred, conv1d [channels, 1, taps], experts' gate and up in one tensor, and the parts a
converter must drop (an mtp head, a vision tower). It is what mlx-lm's converter reads; it is not a trained model.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reference import bf16_bits

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Model:
    """Sizes of a checkpoint. The defaults are the smallest that still have every part."""

    hidden: int = 128
    layers: int = 4
    vocab: int = 384
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 64
    value_dim: int = 64
    experts: int = 8
    top_k: int = 2
    width: int = 64
    shared_width: int = 64
    renormalize: bool = True

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def full_attention(self, layer: int) -> bool:
        return layer % 4 == 3

    def text_config(self) -> dict[str, object]:
        kinds = ["full_attention" if self.full_attention(layer) else "linear_attention" for layer in range(self.layers)]
        config: dict[str, object] = {
            "model_type": "qwen3_5_moe_text",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "attention_bias": False,
            "attn_output_gate": True,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "vocab_size": self.vocab,
            "max_position_embeddings": 262144,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.key_dim,
            "linear_value_head_dim": self.value_dim,
            "linear_conv_kernel_dim": 4,
            "full_attention_interval": 4,
            "layer_types": kinds,
            "num_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "moe_intermediate_size": self.width,
            "shared_expert_intermediate_size": self.shared_width,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
            "eos_token_id": 1,
            "rope_parameters": {
                "mrope_interleaved": True,
                "mrope_section": [11, 11, 10],
                "partial_rotary_factor": 0.25,
                "rope_theta": 10000000,
                "rope_type": "default",
            },
        }
        if not self.renormalize:
            config["norm_topk_prob"] = False
        return config


class Weights:
    """Draws tensors and keeps them by name, as 16-bit patterns."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, tuple[str, npt.NDArray[np.generic]]] = {}

    def bf16(self, name: str, values: npt.NDArray[np.floating]) -> None:
        self.tensors[name] = ("BF16", bf16_bits(values.astype(np.float32)))

    def float32(self, name: str, values: npt.NDArray[np.floating]) -> None:
        self.tensors[name] = ("F32", values.astype(np.float32))

    def normal(self, name: str, *shape: int, scale: float) -> None:
        self.bf16(name, scale * self.random.standard_normal(shape, dtype=np.float32))

    def linear(self, name: str, outputs: int, inputs: int, gain: float = 1.0) -> None:
        self.normal(f"{name}.weight", outputs, inputs, scale=gain * inputs**-0.5)

    def gain(self, name: str, width: int) -> None:
        self.normal(f"{name}.weight", width, scale=0.15)  # zero-centred: the model applies 1 + w

    def save(self, path: Path) -> None:
        """Write the safetensors format: the length of the header, the header, the data."""
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, (dtype, values) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [end, end + values.nbytes]}
            end += values.nbytes
        text = json.dumps(header).encode()
        with path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, values in self.tensors.values():
                file.write(np.ascontiguousarray(values).tobytes())


def draw_gated_delta(weights: Weights, part: str, model: Model) -> None:
    values = model.value_heads * model.value_dim
    weights.linear(f"{part}.in_proj_qkv", model.channels, model.hidden)
    weights.linear(f"{part}.in_proj_z", values, model.hidden)
    weights.linear(f"{part}.in_proj_b", model.value_heads, model.hidden)
    weights.linear(f"{part}.in_proj_a", model.value_heads, model.hidden)
    weights.normal(f"{part}.conv1d.weight", model.channels, 1, 4, scale=0.5)
    weights.bf16(f"{part}.dt_bias", weights.random.uniform(-4, 1, model.value_heads))
    weights.float32(f"{part}.A_log", np.log(weights.random.uniform(0.1, 16, model.value_heads)))
    weights.float32(f"{part}.norm.weight", 1 + 0.15 * weights.random.standard_normal(model.value_dim))
    weights.linear(f"{part}.out_proj", model.hidden, values)


def draw_attention(weights: Weights, part: str, model: Model) -> None:
    weights.linear(f"{part}.q_proj", 2 * model.heads * model.head_dim, model.hidden)
    weights.linear(f"{part}.k_proj", model.kv_heads * model.head_dim, model.hidden)
    weights.linear(f"{part}.v_proj", model.kv_heads * model.head_dim, model.hidden)
    weights.linear(f"{part}.o_proj", model.hidden, model.heads * model.head_dim)
    weights.gain(f"{part}.q_norm", model.head_dim)
    weights.gain(f"{part}.k_norm", model.head_dim)


def draw_moe(weights: Weights, part: str, model: Model) -> None:
    hidden, width = model.hidden, model.width
    weights.linear(f"{part}.gate", model.experts, hidden, gain=2.0)
    weights.normal(f"{part}.experts.gate_up_proj", model.experts, 2 * width, hidden, scale=hidden**-0.5)
    weights.normal(f"{part}.experts.down_proj", model.experts, hidden, width, scale=width**-0.5)
    weights.linear(f"{part}.shared_expert.gate_proj", model.shared_width, hidden)
    weights.linear(f"{part}.shared_expert.up_proj", model.shared_width, hidden)
    weights.linear(f"{part}.shared_expert.down_proj", hidden, model.shared_width)
    weights.linear(f"{part}.shared_expert_gate", 1, hidden)


def write_source(folder: Path, model: Model, seed: int) -> None:
    """Write the whole checkpoint: config.json, model.safetensors and a tokenizer of one word per id."""
    folder.mkdir(parents=True)
    weights = Weights(seed)
    weights.normal("model.language_model.embed_tokens.weight", model.vocab, model.hidden, scale=1.0)
    weights.linear("lm_head", model.vocab, model.hidden, gain=3.0)
    weights.gain("model.language_model.norm", model.hidden)
    for index in range(model.layers):
        layer = f"model.language_model.layers.{index}"
        weights.gain(f"{layer}.input_layernorm", model.hidden)
        weights.gain(f"{layer}.post_attention_layernorm", model.hidden)
        if model.full_attention(index):
            draw_attention(weights, f"{layer}.self_attn", model)
        else:
            draw_gated_delta(weights, f"{layer}.linear_attn", model)
        draw_moe(weights, f"{layer}.mlp", model)
    weights.gain("mtp.norm", model.hidden)
    weights.linear("mtp.fc", model.hidden, 2 * model.hidden)
    weights.gain("model.visual.merger.norm", 64)
    weights.save(folder / "model.safetensors")

    config = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": model.text_config(),
        "vision_config": {"model_type": "qwen3_5_moe", "depth": 1, "hidden_size": 64},
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, model.vocab)


def write_tokenizer(folder: Path, vocab: int) -> None:
    words = {f"t{index}": index for index in range(vocab)}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "t1", "unk_token": "t0"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
