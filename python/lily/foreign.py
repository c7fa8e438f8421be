"""What people point lily at by mistake: other formats, adapters, raw downloads. Each is refused with the way out.

Only names of files and the layout of one tensor are looked at here; a folder that passes may still fail the exact
checks of checkpoint.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from .architecture import DEFAULT_REPO
from .errors import CheckpointError, UnsupportedCheckpoint
from .shards import TensorEntry
from .strict_json import shown

_EXPECTED = "expected a folder with config.json and model*.safetensors as mlx_lm.convert writes it"

# Looked at when a folder has no model*.safetensors, first match wins: (pattern, what it is, what to do).
_FORMATS = (
    ("*.gguf", "a GGUF model (llama.cpp)", f"use {DEFAULT_REPO}, or convert the original weights with mlx_lm.convert"),
    (
        "adapter_config.json",
        "an adapter without its base model",
        "fuse it into the base first: mlx_lm.fuse --model BASE --adapter-path {folder}",
    ),
    (
        "adapters.safetensors",
        "an adapter without its base model",
        "fuse it into the base first: mlx_lm.fuse --model BASE --adapter-path {folder}",
    ),
    ("pytorch_model*.bin", "PyTorch .bin weights", "convert them: mlx_lm.convert --hf-path {folder} --mlx-path OUT -q"),
    ("*.bin", "PyTorch .bin weights", "convert them: mlx_lm.convert --hf-path {folder} --mlx-path OUT -q"),
    ("*.pt*", "PyTorch weights", "convert them: mlx_lm.convert --hf-path {folder} --mlx-path OUT -q"),
    ("weights*.npz", "an early MLX checkpoint (.npz)", "convert the original weights again with mlx_lm.convert -q"),
    (
        "consolidated*.safetensors",
        "weights under names of another library",
        "convert them: mlx_lm.convert --hf-path {folder} --mlx-path OUT -q",
    ),
    ("*.incomplete", "an unfinished download", "finish the download"),
)


def require_folder(path: Path) -> None:
    """Raises CheckpointError or UnsupportedCheckpoint unless `path` is a folder with config.json and weights."""
    try:
        _require_folder(path)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}), {_EXPECTED}; check the path and its permissions"
        ) from None


def _require_folder(path: Path) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: found nothing there, {_EXPECTED}; check the path")
    if not path.is_dir():
        if path.suffix == ".gguf":
            raise UnsupportedCheckpoint(f"{path}: found a GGUF model (llama.cpp), {_EXPECTED}; use {DEFAULT_REPO}")
        raise CheckpointError(f"{path}: found a file, {_EXPECTED}; give its folder: {path.parent}")
    names = {entry.name for entry in path.iterdir()}
    if not any(Path(name).match("model*.safetensors") for name in names):
        for pattern, what, advice in _FORMATS:
            if any(Path(name).match(pattern) for name in names):
                advice = advice.format(folder=shlex.quote(str(path)))
                raise UnsupportedCheckpoint(f"{path}: found {what}, {_EXPECTED}; {advice}")
        what = f"{len(names)} entries but no model*.safetensors" if names else "an empty folder"
        raise CheckpointError(f"{path}: found {what}, {_EXPECTED}; check the path or download again")
    if "adapter_config.json" in names:
        raise UnsupportedCheckpoint(
            f"{path}: found adapter_config.json beside the weights, and lily would ignore the "
            "adapter; fuse it (mlx_lm.fuse) or remove the file"
        )
    if "config.json" not in names:
        raise CheckpointError(
            f"{path}: found weights but no config.json, {_EXPECTED}; copy config.json from the source of the weights"
        )


def refuse_original_layout(folder: Path, entries: Iterable[TensorEntry]) -> None:
    """Raises UnsupportedCheckpoint for weights in the layout of the original (Hugging Face) release.

    The convolution tells them apart: [channels, width, 1] as MLX keeps it, [channels, 1, width] in the original. It is
    the only safe sign: norm weights hold w in one layout and 1 + w in the other, under the same names.
    """
    for entry in entries:
        if entry.name.endswith("linear_attn.conv1d.weight") and entry.shape[-1:] != (1,):
            source, target = shlex.quote(str(folder)), shlex.quote(f"{folder.name}-mlx-4bit")
            raise UnsupportedCheckpoint(
                f"{folder}: {shown(entry.name)} has shape {list(entry.shape)}, the layout of the original release; "
                "expected [channels, width, 1], the MLX layout; convert it: "
                f"mlx_lm.convert --hf-path {source} --mlx-path {target} -q"
            )
