"""The classifier's checkpoint on disk: opened, checked and mapped, without reading a weight.

It reads the reference's own files (pplx-pii-masking, alias PII-Tracer: bf16, and MLX affine codes) and gate-nano, which
has the same form. Names of tensors come with `backbone.`, with `model.`, with both, or bare; here `backbone.` is always
on. Labels go by their fixed order, never by config.json's id2label, which early revisions left at LABEL_0. What the
tensors must be is checked where they are used, in the extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError, UnsupportedCheckpoint
from ..foreign import require_folder
from ..local_files import user_path
from ..shards import Shard, TensorEntry, open_shards
from ..strict_json import read_object, shown
from .spans import LABELS

TAGS = ("O", *(f"{part}-{label}" for label in LABELS for part in "BIES"))
"""The tags in the order of the token head: O, then B, I, E and S of each label."""

WINDOW = 4096  # of the reference, where config.json does not say
_ADVICE = "use the files of one release of the classifier"
_COUNTS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "vocab": "vocab_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "width": "intermediate_size",
}
_REQUIRED = {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False, "rope_scaling": None}
_HEADS = ("token_cls_head.", "sensitivity_head.")
_BUFFERS = ("viterbi.", "rotary_emb.inv_freq")


@dataclass
class EncoderCheckpoint:
    """An open checkpoint; close() gives the file descriptors back, arrays of `files` that others hold outlive it.

    Attributes:
        path: the folder.
        config: the config dict of the extension's Encoder.
        files, tensors: what the extension's Weights takes; names begin with "backbone." or that of a head.
        window, stride: tokens of a window, and from one window to the next.
        longest: tokens that the model was made for; a last window may have so many.
        b_bias, e_bias: of the path's steps into a B and out of an E.

    """

    path: Path
    config: dict[str, float]
    files: list[npt.NDArray[np.uint8]]
    tensors: list[tuple[str, int, int, str, tuple[int, ...]]]
    window: int
    stride: int
    longest: int
    b_bias: float
    e_bias: float
    shards: list[Shard] = field(repr=False)

    def check_unchanged(self) -> None:
        """Raises CheckpointError if a file was changed, truncated, replaced or removed since it was opened."""
        for shard in self.shards:
            shard.check_unchanged()

    def close(self) -> None:
        """Gives the file descriptors back and drops the arrays."""
        for shard in self.shards:
            shard.close()
        self.files = []


def open_encoder(path: str | Path) -> EncoderCheckpoint:
    """Opens the checkpoint in a local folder.

    Raises CheckpointError for files that are missing, truncated, corrupt or contradict each other, and
    UnsupportedCheckpoint for another architecture (a causal one too) or another number of tags, and InvalidInput
    for what is no path.
    """
    folder = user_path(path, "the classifier")
    require_folder(folder)
    where = str(folder / "config.json")
    config = read_object(folder / "config.json")
    backbone = config.get("backbone", config)
    if not isinstance(backbone, Mapping):
        raise CheckpointError(f"{where}: backbone is {shown(backbone)}, expected an object; {_ADVICE}")
    sizes = _sizes(backbone, where)
    labels = config.get("num_token_labels", len(TAGS))
    if labels != len(TAGS):
        raise UnsupportedCheckpoint(
            f"{where}: num_token_labels is {shown(labels)}, expected {len(TAGS)}: O and four tags for each of "
            f"{len(LABELS)} labels; {_ADVICE}"
        )
    longest = _count(config, "max_seq_len", where, config.get("window", WINDOW))
    window = _count(config, "window", where, longest)
    stride = _count(config, "stride", where, max(1, window * 3 // 4))
    if not stride <= window <= longest:
        raise CheckpointError(
            f"{where}: stride is {stride}, window {window} and max_seq_len {longest}, expected them in this order of "
            f"size; {_ADVICE}"
        )
    shards = open_shards(folder)
    try:
        entries = _canonical(folder, shards)
        files = [shard.map() for shard in shards]
        biases = {
            name: _bias(config, f"viterbi_{name}", entries.get(f"viterbi.{name}"), files, where)
            for name in ("b_bias", "e_bias")
        }
    except BaseException:
        for shard in shards:
            shard.close()
        raise
    return EncoderCheckpoint(
        path=folder,
        config=sizes | {"labels": len(TAGS), "window": longest},
        files=files,
        tensors=[
            (name, entry.file, entry.offset, entry.dtype, entry.shape)
            for name, entry in entries.items()
            if not name.startswith(_BUFFERS)
        ],
        window=window,
        stride=stride,
        longest=longest,
        b_bias=biases["b_bias"],
        e_bias=biases["e_bias"],
        shards=shards,
    )


def _sizes(backbone: Mapping[str, Any], where: str) -> dict[str, float]:
    """The dimensions, after a look at everything that would make it another graph."""
    if backbone.get("is_causal") is True or backbone.get("use_bidirectional_attention") is False:
        raise UnsupportedCheckpoint(
            f"{where}: the backbone is causal, expected one that sees both ways (is_causal false, "
            f"use_bidirectional_attention true); {_ADVICE}"
        )
    if backbone.get("model_type", "qwen3") not in ("qwen3", "bidirectional_pplx_qwen3", "pplx_qwen3", "pii_masking"):
        raise UnsupportedCheckpoint(
            f"{where}: the backbone is {shown(backbone['model_type'])}, expected qwen3; {_ADVICE}"
        )
    for key, expected in _REQUIRED.items():
        if backbone.get(key, expected) != expected:
            raise UnsupportedCheckpoint(f"{where}: {key} is {shown(backbone[key])}, expected {expected!r}; {_ADVICE}")
    if any(kind != "full_attention" for kind in backbone.get("layer_types") or ()):
        raise UnsupportedCheckpoint(f"{where}: layer_types has layers without full attention; {_ADVICE}")
    sizes: dict[str, float] = {ours: _count(backbone, theirs, where, None) for ours, theirs in _COUNTS.items()}
    sizes["head_dim"] = _count(backbone, "head_dim", where, int(sizes["hidden"] // sizes["heads"]))
    rotation = backbone.get("rope_parameters") or {}
    if not isinstance(rotation, Mapping) or rotation.get("rope_type", "default") != "default":
        raise UnsupportedCheckpoint(f"{where}: rope_parameters is {shown(rotation)}, expected rope_type default")
    sizes["theta"] = _number(backbone, "rope_theta", where, rotation.get("rope_theta"))
    sizes["eps"] = _number(backbone, "rms_norm_eps", where, None)
    return sizes


def _count(config: Mapping[str, Any], key: str, where: str, default: Any) -> int:
    value = config.get(key, default)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{where}: {key} is {shown(value)}, expected a positive integer; {_ADVICE}")
    return value


def _number(config: Mapping[str, Any], key: str, where: str, default: Any) -> float:
    value = config.get(key, default)
    if type(value) not in (int, float):
        raise CheckpointError(f"{where}: {key} is {shown(value)}, expected a number; {_ADVICE}")
    return float(value)


def _canonical(folder: Path, shards: list[Shard]) -> dict[str, TensorEntry]:
    """The tensors by their names with `backbone.`."""
    found: dict[str, TensorEntry] = {}
    for entry in (entry for shard in shards for entry in shard.entries):
        bare = entry.name
        for prefix in ("backbone.", "model."):
            bare = bare.removeprefix(prefix)
        name = bare if bare.startswith(_HEADS + _BUFFERS) else f"backbone.{bare}"
        if name in found:
            raise CheckpointError(
                f"{folder}: found {shown(entry.name)} and {shown(found[name].name)}, expected {name} once; {_ADVICE}"
            )
        found[name] = entry
    missing = [f"{head}{part}" for head in _HEADS for part in ("weight", "bias") if f"{head}{part}" not in found]
    if missing:
        raise CheckpointError(f"{folder}: {missing[0]} is missing, expected both heads of the classifier; {_ADVICE}")
    other = next(
        (e for n, e in found.items() if not n.startswith(_BUFFERS) and e.dtype not in ("BF16", "F32", "U32")), None
    )
    if other is not None:
        raise UnsupportedCheckpoint(
            f"{folder}: {shown(other.name)} is {other.dtype}, expected BF16, F32 or MLX affine codes in U32; {_ADVICE}"
        )
    return found


def _bias(
    config: Mapping[str, Any], key: str, buffer: TensorEntry | None, files: list[npt.NDArray[np.uint8]], where: str
) -> float:
    """A bias of config.json, else of the buffer in the weights, else zero."""
    if key in config or buffer is None:
        return _number(config, key, where, 0.0)
    if buffer.dtype != "F32" or buffer.nbytes != 4:
        raise CheckpointError(
            f"{shown(buffer.name)} is {buffer.dtype} {list(buffer.shape)}, expected F32 [1]; {_ADVICE}"
        )
    return float(files[buffer.file][buffer.offset : buffer.offset + 4].view(np.float32)[0])
