"""A checkpoint on disk: opened, checked to the last tensor, and mapped, without reading a weight.

`open_checkpoint` takes a local folder (hub.py finds or downloads one) and gives what the engine needs: mapped files,
named views, dimensions, stop ids. Every tensor is either part of the model or on the skip list; anything else is an
error that names what was found and what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from .architecture import DEFAULT_REPO, PREFIX, QWEN36_35B_A3B, Architecture, Vector
from .display import counted
from .errors import CheckpointError, UnsupportedCheckpoint
from .foreign import refuse_original_layout, require_folder
from .local_files import user_path
from .model_config import read_architecture, text_config
from .quantization import REMEDY, check_projection, read_quantization
from .shards import Shard, TensorEntry, open_shards
from .stop_ids import read_stop_ids
from .strict_json import read_object, shown

View = tuple[str, int, int, str, tuple[int, ...]]

_VECTOR_DTYPES = ("BF16", "F32")


@dataclass
class Checkpoint:
    """An open checkpoint. Close it, or use it as a context manager; arrays of `files` that others hold outlive it.

    Attributes:
        path: the folder.
        architecture: dimensions, read from config.json.
        files: one read-only uint8 array a file, mapped.
        tensors: (name, file, offset in the file, "U32" | "BF16" | "F32", shape) of every tensor of the model; names
            begin with "language_model.".
        bits: width of every quantised matrix, by path (the name without ".weight").
        skipped: names of tensors that are not part of the language model (vision tower, multi-token prediction).
        stop_ids: union of what config.json, generation_config.json and tokenizer_config.json name, ascending.
        total_bytes: of the tensors of the model; file_bytes: of the files on disk.
        max_positions: max_position_embeddings of config.json, if it is there.
        generation_config: the parsed generation_config.json, {} if there is none.
        shards: the open files, in the order of `files`, with every tensor in them.

    """

    path: Path
    architecture: Architecture
    files: list[npt.NDArray[np.uint8]]
    tensors: list[View]
    bits: dict[str, int]
    skipped: tuple[str, ...]
    stop_ids: tuple[int, ...]
    total_bytes: int
    file_bytes: int
    max_positions: int | None
    generation_config: Mapping[str, Any]
    shards: list[Shard] = field(repr=False)

    @property
    def config(self) -> dict[str, Any]:
        """The config dict of the C++ decoder."""
        return self.architecture.decoder_config()

    @property
    def full(self) -> bool:
        """Whether the dimensions are exactly those of Qwen3.6-35B-A3B."""
        return self.architecture == QWEN36_35B_A3B

    @property
    def name(self) -> str:
        """What the model is called in messages and reports."""
        return "Qwen3.6-35B-A3B" if self.full else "small checkpoint of the Qwen3.6-35B-A3B architecture"

    def describe(self) -> dict[str, Any]:
        """Facts for Engine.info and `lily info`: plain values, ready for JSON."""
        a = self.architecture
        return {
            "name": self.name,
            "full": self.full,
            "path": str(self.path),
            "parameters": a.parameters,
            "active_parameters": a.active_parameters,
            "layers": a.layers,
            "attention_layers": a.attention_layers,
            "gated_delta_layers": a.delta_layers,
            "hidden": a.hidden,
            "vocab": a.vocab,
            "experts": a.experts,
            "experts_per_token": a.top_k,
            "bits": {str(width): count for width, count in sorted(Counter(self.bits.values()).items())},
            "eight_bit": sorted(path for path, width in self.bits.items() if width == 8),
            "bits_per_weight": round(8 * self.total_bytes / a.parameters, 3),
            "files": len(self.files),
            "file_bytes": self.file_bytes,
            "weight_bytes": self.total_bytes,
            "skipped_tensors": len(self.skipped),
            "max_positions": self.max_positions,
            "stop_ids": list(self.stop_ids),
        }

    def check_unchanged(self) -> None:
        """Raises CheckpointError if a file was changed, truncated, replaced or removed since it was opened."""
        for shard in self.shards:
            shard.check_unchanged()

    def close(self) -> None:
        """Gives the file descriptors back and drops the arrays; a mapping goes when its last array goes."""
        for shard in self.shards:
            shard.close()
        self.files = []

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Opens the checkpoint in a local folder.

    Raises CheckpointError for files that are missing, truncated, corrupt or contradict each other, and
    UnsupportedCheckpoint for anything but an MLX affine checkpoint of the one architecture, InvalidInput for no path.
    """
    folder = user_path(path, "the checkpoint")
    require_folder(folder)
    config_path = folder / "config.json"
    config = read_object(config_path)
    text = text_config(config, str(config_path))
    shards = open_shards(folder)
    try:
        return _assemble(folder, config, text, shards)
    except BaseException:
        for shard in shards:
            shard.close()
        raise


def _assemble(folder: Path, config: dict[str, Any], text: Mapping[str, Any], shards: list[Shard]) -> Checkpoint:
    where = str(folder / "config.json")
    everything = [entry for shard in shards for entry in shard.entries]
    refuse_original_layout(folder, everything)
    architecture = read_architecture(config, where)
    quantization = read_quantization(config, where)
    entries = _by_full_name(folder, everything)
    views: dict[str, TensorEntry] = {}
    bits = {}
    missing = []
    for projection in architecture.projections():
        names = [f"{projection.path}.{part}" for part in ("weight", "scales", "biases")]
        codes, scales, biases = (entries.get(name) for name in names)
        views |= {name: entries[name] for name in names if name in entries}
        if codes is None:
            missing.append(names[0])
        else:
            bits[projection.path] = check_projection(projection, codes, scales, biases, quantization)
    for vector in architecture.vectors():
        if vector.name in entries:
            views[vector.name] = _check_vector(vector, entries[vector.name])
        else:
            missing.append(vector.name)
    _check_accounts(folder, missing, [name for name in entries if name not in views])
    generation_path = folder / "generation_config.json"
    generation = read_object(generation_path) if generation_path.exists() else {}
    return Checkpoint(
        path=folder,
        architecture=architecture,
        files=[shard.map() for shard in shards],
        tensors=[(name, entry.file, entry.offset, entry.dtype, entry.shape) for name, entry in views.items()],
        bits=bits,
        skipped=tuple(entry.name for entry in everything if _is_skipped(entry.name)),
        stop_ids=read_stop_ids(folder, config, text, generation, architecture.vocab),
        total_bytes=sum(entry.nbytes for entry in views.values()),
        file_bytes=sum(shard.size for shard in shards),
        max_positions=_max_positions(text, where),
        generation_config=generation,
        shards=shards,
    )


def _is_skipped(name: str) -> bool:
    return name.startswith(("vision_tower.", "model.visual.")) or "mtp." in name


def _by_full_name(folder: Path, everything: list[TensorEntry]) -> dict[str, TensorEntry]:
    """The tensors of the language model by name. Text-only conversions leave the prefix out; here it is always on."""
    found: dict[str, TensorEntry] = {}
    for entry in everything:
        if _is_skipped(entry.name):
            continue
        name = entry.name if entry.name.startswith(PREFIX) else PREFIX + entry.name
        if name in found:
            raise CheckpointError(
                f"{folder}: found {shown(name)} and {shown(name.removeprefix(PREFIX))}, expected it once, with or "
                f"without the prefix; {REMEDY}"
            )
        found[name] = entry
    return found


def _check_vector(vector: Vector, entry: TensorEntry) -> TensorEntry:
    if entry.shape != vector.shape:
        raise CheckpointError(
            f"{entry.name!r} has shape {list(entry.shape)}, expected {list(vector.shape)} (dimensions from "
            "config.json); use the config.json and weights of one conversion"
        )
    if entry.dtype not in _VECTOR_DTYPES:
        raise UnsupportedCheckpoint(
            f"{entry.name!r} is {entry.dtype}, expected {' or '.join(_VECTOR_DTYPES)}; {REMEDY}"
        )
    return entry


def _check_accounts(folder: Path, missing: list[str], unknown: list[str]) -> None:
    problems = []
    if missing:
        problems.append(f"{counted(len(missing), 'tensor')} missing ({_first(missing)})")
    if unknown:
        problems.append(f"{counted(len(unknown), 'tensor')} unknown ({_first(unknown)})")
    if problems:
        raise CheckpointError(
            f"{folder}: found {' and '.join(problems)}; expected exactly the tensors of config.json's architecture "
            f"(and vision_tower., model.visual., mtp., which are skipped); download or convert again, or "
            f"use {DEFAULT_REPO}"
        )


def _first(names: list[str]) -> str:
    return ", ".join(shown(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")


def _max_positions(text: Mapping[str, Any], where: str) -> int | None:
    value = text.get("max_position_embeddings")
    if value is not None and (type(value) is not int or value < 1):
        raise CheckpointError(
            f"{where}: max_position_embeddings is {shown(value)}, expected a positive integer; correct config.json"
        )
    return value
