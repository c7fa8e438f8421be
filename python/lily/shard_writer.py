"""Writing a checkpoint folder: safetensors files as MLX lays them out, into a folder that appears whole or not at all.

The safetensors format wants tensor data without holes, so the only freedom is the length of the header (spaces may
follow its JSON) and the order of the tensors. Which tensors to write, in which order, is up to synth.py and repack.py.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import CheckpointError

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

MLX_METADATA = {"format": "mlx"}
_SPARE_BYTES = 64 << 20  # left free on the disk beside what is written


@dataclass(frozen=True)
class Outgoing:
    """A tensor to write: what the header says, and a function that gives its bytes in pieces, uint8 arrays."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    pieces: Callable[[], Iterable[npt.NDArray[np.uint8]]]


def header_bytes(tensors: Sequence[Outgoing], metadata: Mapping[str, str], align: int, residue: int) -> bytes:
    """Length and JSON of a header, padded so that data begins at `residue` modulo `align`; align 1 pads nothing."""
    place = 0
    described: dict[str, object] = {}
    for tensor in tensors:
        offsets = [place, place + tensor.nbytes]
        described[tensor.name] = {"data_offsets": offsets, "dtype": tensor.dtype, "shape": list(tensor.shape)}
        place += tensor.nbytes
    ordered = {"__metadata__": dict(metadata), **dict(sorted(described.items()))}
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * ((residue - 8 - len(text)) % align)
    return len(text).to_bytes(8, "little") + text


def write_shard(
    path: Path,
    tensors: Sequence[Outgoing],
    *,
    metadata: Mapping[str, str] = MLX_METADATA,
    align: int = 1,
    residue: int = 0,
    written: Callable[[int], None] | None = None,
) -> None:
    """Writes one safetensors file. `written` is called with the bytes of each piece."""
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), memoryview(header_bytes(tensors, metadata, align, residue)))
        for tensor in tensors:
            count = 0
            for piece in tensor.pieces():
                _write_all(file.fileno(), piece.data)
                count += piece.nbytes
                if written is not None:
                    written(piece.nbytes)
            if count != tensor.nbytes:
                raise CheckpointError(
                    f"{tensor.name!r}: its source gave {count:,} bytes, expected {tensor.nbytes:,}; try again"
                )


def _write_all(descriptor: int, data: memoryview) -> None:
    while data.nbytes:
        data = data[os.write(descriptor, data) :]


@contextmanager
def staged_folder(out: Path, needed: int) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name at the end, or is removed if anything goes wrong before.

    `needed` bytes must be free. Raises CheckpointError if `out` is in use, if the disk is too small or too full.
    """
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise CheckpointError(f"{out}: exists, expected a new or empty folder; choose another name or remove it")
    parent = out.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(parent).free
        if free < needed + _SPARE_BYTES:
            raise CheckpointError(
                f"{out}: found {free:,} bytes free on its disk, expected {needed:,} for the checkpoint and "
                f"{_SPARE_BYTES:,} to spare; free {needed + _SPARE_BYTES - free:,} bytes or choose another disk"
            )
        stage = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=parent))
        try:
            stage.chmod(0o755)
            yield stage
            stage.rename(out)
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
    except OSError as error:
        raise CheckpointError(
            f"{out}: cannot be written ({error.strerror}), expected a folder on a disk with {needed:,} bytes free; "
            "choose another place"
        ) from error
