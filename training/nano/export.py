"""Writes and reads the trained weights in the layout of the original checkpoints, which MLX's converter takes.

bfloat16, because the converter goes through it anyway, and in shards of a few megabytes; config.json says what it is.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from .model import ATTENTION_EVERY, Config, Decoder

SHARDS = 4
POSITIONS = 262_144


def config(c: Config, stop: int) -> dict[str, object]:
    """config.json."""
    kinds = ["full_attention" if c.is_attention(i) else "linear_attention" for i in range(c.num_hidden_layers)]
    shape = {key: getattr(c, key) for key in Config.__dataclass_fields__ if key not in ("rotary_dim", "rope_theta")}
    text = shape | {
        "model_type": "qwen3_5_moe_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": stop,
        "full_attention_interval": ATTENTION_EVERY,
        "hidden_act": "silu",
        "layer_types": kinds,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": POSITIONS,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": c.rotary_dim / c.head_dim,
            "rope_theta": c.rope_theta,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
    }
    return {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "text_config": text,
        "tie_word_embeddings": False,
    }


def full_name(name: str) -> str:
    """The name in a checkpoint of a parameter of Decoder."""
    return name if name.startswith("lm_head") else f"model.language_model.{name}"


def write(model: Decoder, folder: Path, stop: int) -> None:
    """The checkpoint: config.json, the shards and their index. `stop` is the id of the token that ends a turn."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(model.config, stop), indent=2) + "\n", "utf-8")
    total = sum(p.numel() for p in model.parameters())
    shards: list[dict[str, Tensor]] = [{} for _ in range(SHARDS)]
    done = 0
    for name, p in model.named_parameters():
        value = p.detach().cpu()
        shards[min(SHARDS - 1, done * SHARDS // total)][full_name(name)] = (
            value.contiguous() if name.endswith("A_log") else value.bfloat16().contiguous()
        )
        done += p.numel()
    place = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        save_file(shard, str(folder / file), {"format": "pt"})
        place |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_parameters": total}, "weight_map": dict(sorted(place.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", "utf-8")


def read(folder: Path) -> Decoder:
    """The model of such a folder, in float32."""
    text = json.loads((folder / "config.json").read_text("utf-8"))["text_config"]
    rope = text["rope_parameters"]
    rotary = {"rotary_dim": int(text["head_dim"] * rope["partial_rotary_factor"]), "rope_theta": rope["rope_theta"]}
    model = Decoder(Config(**{key: text[key] for key in Config.__dataclass_fields__ if key not in rotary}, **rotary))
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        found |= load_file(str(path))
    model.load_state_dict({name: found[full_name(name)].float() for name, _ in model.named_parameters()})
    return model.eval().requires_grad_(requires_grad=False)
