"""Writes a trained model as a checkpoint the engine loads: MLX's affine 8-bit packaging, config.json, tokenizer.json.

The bfloat16 master is written beside it in two halves, for those who want to go on training.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from .labels import TAGS, follows
from .model import Classifier, Config
from .quant import GROUP, affine, pack, quantised_names, restore, unpack

# Longest window that it was trained for; windows and their distance by measurement: on texts of several windows 256 and
# 192 find as much as 512 and 256 do, in three quarters of the time.
LONGEST, WINDOW, STRIDE = 512, 256, 192
MASTER = ("master-1.safetensors", "master-2.safetensors")


def config(c: Config) -> dict[str, object]:
    """config.json."""
    return {
        "model_type": "pii_masking",
        "architectures": ["PiiMaskingModel"],
        "backbone": c.backbone(),
        "hidden_size": c.hidden_size,
        "num_token_labels": len(TAGS),
        "id2label": {str(i): name for i, name in enumerate(TAGS)},
        "max_seq_len": LONGEST,
        "window": WINDOW,
        "stride": STRIDE,
        "viterbi_b_bias": 0.0,
        "viterbi_e_bias": 0.0,
        "quantization": {"group_size": GROUP, "bits": 8, "mode": "affine"},
    }


def tensors(model: Classifier) -> dict[str, Tensor]:
    """All tensors of the 8-bit checkpoint."""
    eight = set(quantised_names(model))
    out: dict[str, Tensor] = {}
    for name, p in model.named_parameters():
        value = p.detach().cpu()
        if name in eight:
            q, scale, bias = affine(value)
            base = name.removesuffix("weight")
            out |= {name: pack(q), f"{base}scales": scale, f"{base}biases": bias}
        else:
            out[name] = value.bfloat16() if name.startswith("backbone.") else value.float()
    allowed = [[follows(a, b) for b in range(len(TAGS))] for a in range(len(TAGS))]
    out |= {
        "viterbi.b_bias": torch.zeros(1),
        "viterbi.e_bias": torch.zeros(1),
        "viterbi.transition_mask": torch.tensor(allowed),
    }
    return {name: value.contiguous() for name, value in out.items()}


def write(model: Classifier, tokenizer: Tokenizer, folder: Path) -> None:
    """The checkpoint and the master, into `folder`."""
    metadata = {"format": "mlx"}
    save_file(tensors(model), str(folder / "model.safetensors"), metadata)
    (folder / "config.json").write_text(json.dumps(config(model.backbone.config), indent=2) + "\n", "utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    full = {name: p.detach().cpu().bfloat16().contiguous() for name, p in model.named_parameters()}
    names, half = sorted(full), sum(p.numel() for p in full.values()) / 2
    size, parts = 0, ({}, {})  # type: tuple[int, tuple[dict[str, Tensor], dict[str, Tensor]]]
    for name in names:
        parts[int(size >= half)][name] = full[name]
        size += full[name].numel()
    for part, name in zip(parts, MASTER, strict=True):
        save_file(part, str(folder / name), {"format": "pt"})
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)


def load(folder: Path, master: bool = False) -> Classifier:
    """The model of an exported folder in float32, from the 8-bit weights or from the master."""
    backbone = json.loads((folder / "config.json").read_text("utf-8"))["backbone"]
    model: nn.Module = Classifier(Config(**{k: backbone[k] for k in Config.__dataclass_fields__}))
    found: dict[str, Tensor] = {}
    for name in MASTER if master else ("model.safetensors",):
        with safe_open(str(folder / name), framework="pt") as f:
            found |= {key: f.get_tensor(key) for key in f.keys()}  # noqa: SIM118 (not a mapping)
    state = {}
    for name, _ in model.named_parameters():
        base = name.removesuffix("weight")
        value = found[name]
        state[name] = (
            restore(unpack(value), found[f"{base}scales"], found[f"{base}biases"])
            if f"{base}scales" in found
            else value.float()
        )
    model.load_state_dict(state)
    assert isinstance(model, Classifier)
    return model.eval()
