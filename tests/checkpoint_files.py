"""Checkpoints to break: a very small one, and ways to rewrite its JSON files and safetensors headers byte by byte.

Nothing here goes through lily's own reader or writer of safetensors: a file is a length, a JSON text and data.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lily.architecture import Architecture

# The smallest dimensions that have every part: one attention layer, three gated delta nets. 0.4 MB.
SMALL = Architecture(
    hidden=64, layers=4, vocab=320, heads=2, kv_heads=1, head_dim=32, rotary_dim=8, theta=1e6, eps=1e-6,
    key_heads=1, value_heads=2, key_dim=32, value_dim=32, conv_width=4, experts=4, top_k=2, width=64, shared_width=64,
)  # fmt: skip

Json = dict[str, Any]


def shaped(**changes: Any) -> Architecture:
    """SMALL with other dimensions."""
    return dataclasses.replace(SMALL, **changes)


def edit_json(path: Path, change: Callable[[Json], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def edit_config(folder: Path, change: Callable[[Json], object]) -> None:
    edit_json(folder / "config.json", change)


def edit_text_config(folder: Path, **values: Any) -> None:
    """Sets keys of text_config; the value ... removes the key."""

    def change(config: Json) -> None:
        for key, value in values.items():
            if value is ...:
                del config["text_config"][key]
            else:
                config["text_config"][key] = value

    edit_config(folder, change)


def edit_quantization(folder: Path, change: Callable[[Json], object]) -> None:
    """Changes the quantisation in both places where the converter writes it."""

    def both(config: Json) -> None:
        for key in ("quantization", "quantization_config"):
            change(config[key])

    edit_config(folder, both)


def read_safetensors(path: Path) -> tuple[Json, bytes]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def write_safetensors(path: Path, header: Json | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def edit_header(path: Path, change: Callable[[Json], object]) -> None:
    header, data = read_safetensors(path)
    change(header)
    write_safetensors(path, header, data)


def tensors_of(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Name to (dtype, shape, bytes)."""
    header, data = read_safetensors(path)
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_tensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    """Writes a sound file of these tensors; the index of the folder no longer fits, so it goes."""
    header: Json = {"__metadata__": {"format": "mlx"}}
    place = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(raw)]}
        place += len(raw)
    write_safetensors(path, header, b"".join(raw for _, _, raw in tensors.values()))
    (path.parent / "model.safetensors.index.json").unlink(missing_ok=True)


def edit_tensors(path: Path, change: Callable[[dict[str, tuple[str, list[int], bytes]]], object]) -> None:
    tensors = tensors_of(path)
    change(tensors)
    write_tensors(path, tensors)
