"""An aligned copy of a checkpoint: the same tensors in the same files, placed so that devices can map them.

MLX writes a header of any length, so its tensors begin anywhere, even at odd bytes. The safetensors format allows no
hole between tensors, which leaves two freedoms: spaces at the end of the header, and the order of the tensors. Both are
used, and the result is an ordinary checkpoint that MLX and every other reader accepts. What is guaranteed:

- In every file, tensor data begins at a multiple of 16,384 bytes (the page of Apple silicon, a multiple of all others).
- Tensors are ordered by the largest power of two, up to 16,384, that divides their size, largest first. What stands
  before a tensor is then a multiple of that power, so a tensor whose size is a multiple of 2^k begins at a multiple of
  2^k: every large matrix on a page, and at the dimensions of Qwen3.6-35B-A3B every tensor at 64 bytes at least.

Nothing is converted: a repacked checkpoint gives the same bits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .arguments import callback
from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError
from .local_files import user_path
from .shard_writer import Outgoing, Progress, staged_folder, write_shard
from .shards import Shard, TensorEntry

PAGE = 16384
_PIECE = 32 << 20


@dataclass(frozen=True)
class Repacked:
    """What was written: the folder, its files of tensors, their tensors and bytes, the smallest alignment of a tensor,
    and the names of folders inside the source, which are not copied."""

    path: Path
    files: int
    tensors: int
    nbytes: int
    alignment: int
    left_out: tuple[str, ...]


def repack(model: str | Path, out: str | Path, *, progress: Progress | None = None) -> Repacked:
    """Writes an aligned copy of the checkpoint in the folder `model` to `out` (new or empty), and verifies it.

    `out` appears when every tensor was read back and compared. `progress` is called with bytes done and bytes in all
    (copying and comparing). Raises CheckpointError and UnsupportedCheckpoint for the source, CheckpointError if `out`
    is in use, the disk too full, or the copy differs.
    """
    callback(progress, "progress")
    out = user_path(out, "the output folder")
    with open_checkpoint(model) as source:
        total = 2 * source.file_bytes
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(min(done, total), total)

        with staged_folder(out, source.file_bytes + PAGE * len(source.shards)) as stage:
            left_out = _copy_other_files(source, stage, out)
            for shard, data in zip(source.shards, source.files, strict=True):
                _copy_shard(shard, data, stage / shard.path.name, advance)
            source.check_unchanged()
            _wait_for_disk(stage)
            alignment = _verify(source, stage, advance)
        tensors = sum(len(shard.entries) for shard in source.shards)
        return Repacked(out, len(source.shards), tensors, source.file_bytes, alignment, left_out)


def alignment_of(size: int) -> int:
    """The largest power of two, up to PAGE, that divides a size in bytes."""
    return min(PAGE, size & -size) if size else PAGE


def _copy_other_files(source: Checkpoint, stage: Path, out: Path) -> tuple[str, ...]:
    weights = {shard.path.name for shard in source.shards}
    left_out = []
    for entry in sorted(source.path.iterdir()):
        if entry.name in weights or entry in (stage, out):  # the copy may lie inside its source
            continue
        if entry.is_file():
            shutil.copyfile(entry, stage / entry.name)
        else:
            left_out.append(entry.name)
    return tuple(left_out)


def _copy_shard(shard: Shard, data: npt.NDArray[np.uint8], path: Path, written: Callable[[int], None]) -> None:
    ordered = sorted(shard.entries, key=lambda entry: -alignment_of(entry.nbytes))
    tensors = [Outgoing(e.name, e.dtype, e.shape, e.nbytes, _pieces_of(e, data)) for e in ordered]
    write_shard(path, tensors, metadata=shard.header_metadata, align=PAGE, written=written)


def _pieces_of(entry: TensorEntry, data: npt.NDArray[np.uint8]) -> Callable[[], Iterator[npt.NDArray[np.uint8]]]:
    def pieces() -> Iterator[npt.NDArray[np.uint8]]:
        for start in range(entry.offset, entry.offset + entry.nbytes, _PIECE):
            yield data[start : min(start + _PIECE, entry.offset + entry.nbytes)]

    return pieces


def _wait_for_disk(stage: Path) -> None:
    """A copy may replace its source, so it is on the disk before it takes its name."""
    for path in stage.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _verify(source: Checkpoint, stage: Path, compared: Callable[[int], None]) -> int:
    """Opens the copy, compares every byte of every tensor, and returns the smallest alignment of a tensor."""
    smallest = PAGE
    with open_checkpoint(stage) as copy:
        for number, (before, after) in enumerate(zip(source.shards, copy.shards, strict=True)):
            placed = {entry.name: entry for entry in after.entries}
            for entry in before.entries:
                twin = placed[entry.name]
                pairs = zip(
                    _pieces_of(entry, source.files[number])(), _pieces_of(twin, copy.files[number])(), strict=True
                )
                for ours, theirs in pairs:
                    if not np.array_equal(ours, theirs):
                        raise CheckpointError(
                            f"{stage / after.path.name}: tensor {entry.name!r} differs from its source after writing, "
                            "expected the same bytes; check the disk and repack again"
                        )
                    compared(ours.nbytes)
                if twin.offset % alignment_of(entry.nbytes):
                    raise CheckpointError(
                        f"{stage / after.path.name}: tensor {entry.name!r} begins at byte {twin.offset:,}, expected a "
                        f"multiple of {alignment_of(entry.nbytes)}; report this as a defect of lily"
                    )
                smallest = min(smallest, alignment_of(entry.nbytes))
    return smallest
