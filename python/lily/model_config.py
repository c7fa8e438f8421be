"""config.json of a checkpoint, as far as it describes the model: checked key by key, turned into an Architecture.

A config that asks for something lily does not implement is refused by name, one that contradicts itself is an error,
and a dimension that it lacks is an error. What the format itself gives a default (MLX reads the same) may be left out:
the width of the convolution (4), head_dim (hidden_size / num_attention_heads), rms_norm_eps (1e-6), norm_topk_prob
(true) and partial_rotary_factor (0.25). Quantisation is read in quantization.py, stop ids in stop_ids.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .architecture import ATTENTION_EVERY, DEFAULT_REPO, GROUP, Architecture
from .errors import CheckpointError, UnsupportedCheckpoint
from .strict_json import shown

_MODEL_TYPES = ("qwen3_5_moe", "qwen3_5_moe_text")
_ANOTHER = f"use {DEFAULT_REPO} or another checkpoint of the same architecture"
# Large enough for any real model, small enough that a lying config cannot make lily build a list of a billion names.
_MAX_SIZE = 1 << 24
_MAX_LAYERS = 1024

_SIZES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "vocab": "vocab_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_dim": "linear_key_head_dim",
    "value_dim": "linear_value_head_dim",
    "conv_width": "linear_conv_kernel_dim",
    "experts": "num_experts",
    "top_k": "num_experts_per_tok",
    "width": "moe_intermediate_size",
    "shared_width": "shared_expert_intermediate_size",
}

# What lily implements, where the config could ask for something else; an absent key means the value here.
_FIXED: dict[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "attn_output_gate": True,
    "full_attention_interval": ATTENTION_EVERY,
    "tie_word_embeddings": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def read_architecture(config: Mapping[str, Any], where: str) -> Architecture:
    """The dimensions in a parsed config.json; `where` names the file in messages.

    Raises UnsupportedCheckpoint for another architecture and CheckpointError for a config that contradicts itself.
    """
    text = text_config(config, where)
    for scope in (config, text):
        _check_fixed(scope, where)
    sizes = {field: _size(text, key, where) for field, key in _SIZES.items() if key in text}
    sizes.setdefault("conv_width", 4)
    if "hidden" in sizes and "heads" in sizes:
        sizes.setdefault("head_dim", sizes["hidden"] // sizes["heads"])
    missing = [key for field, key in _SIZES.items() if field not in sizes]
    if missing:
        raise CheckpointError(
            f"{where}: lacks {', '.join(missing)}, which {_MODEL_TYPES[0]} needs; take config.json from the same "
            "source as the weights"
        )
    theta, rotary_dim = _rope(text, sizes["head_dim"], where)
    renormalize = text.get("norm_topk_prob", True)
    if not isinstance(renormalize, bool):
        raise CheckpointError(
            f"{where}: norm_topk_prob is {shown(renormalize)}, expected true or false; correct config.json"
        )
    eps = _number(text, "rms_norm_eps", 1e-6, where)
    if not 0 < eps < 1:
        raise CheckpointError(f"{where}: rms_norm_eps is {shown(eps)}, expected between 0 and 1; correct config.json")
    architecture = Architecture(**sizes, rotary_dim=rotary_dim, theta=theta, eps=eps, renormalize=renormalize)
    _check_sizes(architecture, where)
    _check_layer_types(text, architecture, where)
    return architecture


def text_config(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The part of config.json that describes the language model, after a look at model_type."""
    found = config.get("model_type")
    if found is None:
        raise CheckpointError(
            f"{where}: has no model_type, expected {_MODEL_TYPES[0]!r}; take config.json from the "
            "same source as the weights"
        )
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise CheckpointError(
            f"{where}: text_config is a {type(text).__name__}, expected an object; correct config.json"
        )
    for model_type in (found, text.get("model_type", found)):
        if model_type not in _MODEL_TYPES:
            raise UnsupportedCheckpoint(
                f"{where}: model_type is {shown(model_type)}, lily runs {_MODEL_TYPES[0]!r} only; {_ANOTHER}"
            )
    return text


def _check_fixed(scope: Mapping[str, Any], where: str) -> None:
    for key, expected in _FIXED.items():
        found = scope.get(key)
        if found is not None and found != expected:
            raise UnsupportedCheckpoint(f"{where}: {key} is {shown(found)}, lily runs {expected!r} only; {_ANOTHER}")


def _size(text: Mapping[str, Any], key: str, where: str) -> int:
    value = text[key]
    limit = _MAX_LAYERS if key == "num_hidden_layers" else _MAX_SIZE
    if type(value) is not int or not 1 <= value <= limit:
        raise CheckpointError(
            f"{where}: {key} is {shown(value)}, expected an integer from 1 to {limit:,}; correct config.json"
        )
    return value


def _number(scope: Mapping[str, Any], key: str, default: float | None, where: str) -> float:
    value = scope.get(key, default)
    if type(value) not in (int, float) or not abs(value) < 1e30:
        raise CheckpointError(f"{where}: {key} is {shown(value)}, expected a finite number; correct config.json")
    return float(value)


def _rope(text: Mapping[str, Any], head_dim: int, where: str) -> tuple[float, int]:
    rope = text.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise CheckpointError(f"{where}: rope_parameters is {shown(rope)}, expected an object; correct config.json")
    for scope, key in ((rope, "type"), (rope, "rope_type")):
        if scope.get(key, "default") != "default":
            raise UnsupportedCheckpoint(
                f"{where}: rope_parameters.{key} is {shown(scope[key])}, lily runs 'default' (no scaling) only; "
                "restore the rope_parameters of the original config.json"
            )
    if text.get("rope_scaling"):
        raise UnsupportedCheckpoint(
            f"{where}: rope_scaling is {shown(text['rope_scaling'])}, lily runs without scaling only; "
            "remove it from config.json"
        )
    theta = _number(rope if "rope_theta" in rope else text, "rope_theta", None, where)
    factor = _number(rope if "partial_rotary_factor" in rope else text, "partial_rotary_factor", 0.25, where)
    rotary = head_dim * factor
    if theta <= 1 or not 0 < rotary <= head_dim or rotary % 2:
        raise CheckpointError(
            f"{where}: rope_theta {theta!r} and partial_rotary_factor {factor!r} of head_dim {head_dim} rotate "
            f"{rotary!r} dimensions, expected theta above 1 and an even count up to head_dim; correct config.json"
        )
    return theta, int(rotary)


def _check_sizes(a: Architecture, where: str) -> None:
    inputs = {
        "hidden_size": a.hidden,
        "num_attention_heads * head_dim": a.heads * a.head_dim,
        "linear_num_value_heads * linear_value_head_dim": a.value_heads * a.value_dim,
        "moe_intermediate_size": a.width,
        "shared_expert_intermediate_size": a.shared_width,
    }
    for name, cols in inputs.items():
        if cols % GROUP:
            raise UnsupportedCheckpoint(
                f"{where}: {name} is {cols}, expected a multiple of {GROUP}, the group of a "
                f"quantised matrix; {_ANOTHER}"
            )
    for many, few, names in (
        (a.heads, a.kv_heads, "num_attention_heads {} is no multiple of num_key_value_heads {}"),
        (a.value_heads, a.key_heads, "linear_num_value_heads {} is no multiple of linear_num_key_heads {}"),
    ):
        if many % few:
            raise CheckpointError(f"{where}: {names.format(many, few)}, expected whole groups; correct config.json")
    if a.top_k > a.experts:
        raise CheckpointError(
            f"{where}: num_experts_per_tok is {a.top_k}, expected at most num_experts, {a.experts}; correct config.json"
        )
    if a.conv_width < 2:
        raise UnsupportedCheckpoint(
            f"{where}: linear_conv_kernel_dim is 1, expected 2 or more (4 in Qwen3.6); {_ANOTHER}"
        )


def _check_layer_types(text: Mapping[str, Any], a: Architecture, where: str) -> None:
    found = text.get("layer_types")
    if found is None:
        return
    expected = ["full_attention" if a.is_attention(layer) else "linear_attention" for layer in range(a.layers)]
    if found == expected:
        return
    if not isinstance(found, list) or len(found) != a.layers:
        count = f"{len(found)} entries" if isinstance(found, list) else f"a {type(found).__name__}"
        raise CheckpointError(
            f"{where}: layer_types has {count}, expected a list of {a.layers} (num_hidden_layers); correct config.json"
        )
    layer = next(i for i in range(a.layers) if found[i] != expected[i])
    raise UnsupportedCheckpoint(
        f"{where}: layer_types[{layer}] is {shown(found[layer])}, expected {expected[layer]!r}: lily runs full "
        f"attention in every {ATTENTION_EVERY}th layer and linear attention in the others; {_ANOTHER}"
    )
