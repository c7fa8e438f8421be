"""The safetensors files of a folder: finding them, reading their headers with limits, and mapping them.

A header is read and checked here to the byte (the safetensors library validates too, but gives no offsets); weights are
never read: a file becomes one read-only uint8 array over its mapping. What tensors mean is checkpoint.py's business.

A mapping cannot protect itself: if another program truncates the file, touching the lost pages kills the process
(SIGBUS). `Shard.check_unchanged` sees that, and a changed or vanished file, when it is called before the work.
"""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import re
import stat
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from .display import counted
from .errors import CheckpointError, OutOfMemory
from .strict_json import parse_object, read_object, shown

MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
INDEX = "model.safetensors.index.json"

_DTYPE_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}
_NUMBERED = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")
_AGAIN = "download or convert it again"


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of one file: `offset` is in bytes from the start of the file, of any alignment."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    nbytes: int


class Shard:
    """One safetensors file: its checked header, its mapping, and what it looked like when it was opened.

    Attributes: path; size (bytes); data_offset (where tensor data begins); header_metadata; entries (by offset).
    """

    def __init__(self, path: Path, index: int) -> None:
        """Opens and checks the file; `index` becomes the `file` of its entries. Raises CheckpointError."""
        self.path = path
        self._fd, by_path = _open_regular(path)
        self._closer = weakref.finalize(self, os.close, self._fd)
        try:
            found = os.fstat(self._fd)
            self.size = found.st_size
            self._by_descriptor = _identity(found)
            self._by_path = _identity(by_path)
            header = self._read_header()
            self.header_metadata = header.pop("__metadata__", {})
            self.entries = _read_entries(header, self.header_metadata, self.size - self.data_offset, self)
            self.entries = [_shifted(entry, index, self.data_offset) for entry in self.entries]
            self._validate_with_library()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> dict[str, Any]:
        prefix = os.pread(self._fd, 40, 0)
        _refuse_impostors(prefix, self.path)
        length = int.from_bytes(prefix[:8], "little")
        if len(prefix) < 8 or length < 2:
            raise CheckpointError(
                f"{self.path}: has {self.size} bytes and no safetensors header, expected an 8-byte length "
                f"and a JSON header; {_AGAIN}"
            )
        if length > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"{self.path}: claims a header of {length:,} bytes, expected at most "
                f"{MAX_HEADER_BYTES:,}; it is corrupt or no safetensors file: {_AGAIN}"
            )
        if 8 + length > self.size:
            raise CheckpointError(
                f"{self.path}: has {self.size:,} bytes, expected at least {8 + length:,} for its header "
                f"alone; it is truncated: {_AGAIN}"
            )
        data = _read_exactly(self._fd, length, 8, self.path)
        if data[:1] != b"{":
            raise CheckpointError(f"{self.path}: the header begins with {shown(data[:1])}, expected '{{'; {_AGAIN}")
        self.data_offset = 8 + length
        return parse_object(data, f"{self.path} (header)", _AGAIN)

    def _validate_with_library(self) -> None:
        try:
            with safe_open(self.path, framework="numpy") as opened:
                count = len(opened.keys())
        except MemoryError as error:  # it maps the file too
            raise _no_room(self.path, self.size, error) from None
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: the safetensors library refuses it ({error}), expected a valid file; {_AGAIN}"
            ) from None
        if count != len(self.entries):
            raise CheckpointError(
                f"{self.path}: the safetensors library sees {count} tensors, expected {len(self.entries)}; {_AGAIN}"
            )

    def map(self) -> npt.NDArray[np.uint8]:
        """The whole file as a read-only array, uint8 [size]. The mapping lives as long as any array over it.

        Raises OutOfMemory where the address space is limited below the size of the file.
        """
        try:
            mapping = mmap.mmap(self._fd, self.size, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise _no_room(self.path, self.size, error) from None
            raise CheckpointError(
                f"{self.path}: cannot be mapped ({error.strerror}), expected a file system with mmap; "
                "copy the checkpoint to a local disk"
            ) from None
        _ask_for_huge_pages(mapping)
        return np.frombuffer(mapping, dtype=np.uint8)

    def check_unchanged(self) -> None:
        """Raises CheckpointError if the file was changed, truncated, replaced or removed since it was opened.

        It costs two system calls. It cannot see a change that keeps both size and modification time.
        """
        if not self._closer.alive:
            raise CheckpointError(f"{self.path}: is closed, expected an open checkpoint; open it again")
        self._compare(self._by_descriptor, _identity(os.fstat(self._fd)))
        try:
            now = self.path.stat()
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: vanished after it was opened ({error.strerror}), expected the same file to "
                "stay in place; restore it and load again"
            ) from None
        self._compare(self._by_path, _identity(now))

    def _compare(self, then: tuple[int, ...], now: tuple[int, ...]) -> None:
        if then == now:
            return
        if then[0] != now[0]:
            what = f"now has {now[0]:,} bytes, expected the {then[0]:,} it had when it was opened"
        elif then[1] != now[1]:
            what = f"was modified after it was opened (modification time {now[1]} ns, expected {then[1]} ns)"
        else:
            what = "was replaced by another file after it was opened, expected the same file to stay in place"
        raise CheckpointError(f"{self.path}: {what}; results from here on would be wrong: restore it and load again")

    def close(self) -> None:
        """Gives the file descriptor back. Arrays from map() stay valid."""
        self._closer()


def _ask_for_huge_pages(mapping: mmap.mmap) -> None:
    """What is read from disk from now on comes in pages of 2 MiB, where system and file system have them: whoever reads
    weights then waits less for addresses."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)


def _no_room(path: Path, size: int, error: Exception) -> OutOfMemory:
    return OutOfMemory(
        f"{path}: mapping {size:,} bytes found no room ({error}), expected that much address space; raise the limit "
        "(ulimit -v)"
    )


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino


def _open_regular(path: Path) -> tuple[int, os.stat_result]:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
            raise CheckpointError(f"{path}: is no regular file, expected a safetensors file; {_AGAIN}")
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), found
    except FileNotFoundError:
        target = f", a link to {path.readlink()} that leads nowhere" if path.is_symlink() else ""
        raise CheckpointError(f"{path}: found no file{target}, expected a safetensors file; {_AGAIN}") from None
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be opened ({error.strerror}), expected a readable file; check its permissions"
        ) from None


def _read_exactly(fd: int, count: int, offset: int, path: Path) -> bytes:
    parts = []
    while count:
        part = os.pread(fd, count, offset)
        if not part:
            raise CheckpointError(
                f"{path}: ended {count:,} bytes early while its header was read, expected a file at rest; "
                "wait until it is complete and load again"
            )
        parts.append(part)
        count -= len(part)
        offset += len(part)
    return b"".join(parts)


def _refuse_impostors(prefix: bytes, path: Path) -> None:
    impostors = (
        (b"version https://git-lfs", "a Git LFS pointer", "run `git lfs pull` in its repository"),
        (b"GGUF", "a GGUF file", "use an MLX checkpoint in safetensors instead"),
        (b"PK\x03\x04", "a zip or PyTorch file", "convert it to an MLX checkpoint in safetensors"),
        (b"<", "an HTML or XML page", "the download failed: download it again"),
    )
    for magic, what, advice in impostors:
        if prefix.startswith(magic) and prefix[8:9] != b"{":
            raise CheckpointError(f"{path}: is {what}, expected a safetensors file; {advice}")


def _shifted(entry: TensorEntry, index: int, by: int) -> TensorEntry:
    return TensorEntry(entry.name, entry.dtype, entry.shape, index, entry.offset + by, entry.nbytes)


def _read_entries(header: Mapping[str, Any], metadata: Any, room: int, shard: Shard) -> list[TensorEntry]:
    """The tensors of a header whose data takes `room` bytes, sorted by offset, without a hole or an overlap."""
    path = shard.path
    if not isinstance(metadata, Mapping) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path}: __metadata__ is not an object of strings, as expected; {_AGAIN}")
    entries = sorted((_read_entry(name, value, room, path) for name, value in header.items()), key=_place)
    end = 0
    for entry in entries:
        if entry.offset != end:
            what = "overlaps the tensor before it" if entry.offset < end else "leaves a hole before it"
            raise CheckpointError(
                f"{path}: tensor {shown(entry.name)} begins at byte {entry.offset:,} and {what}, expected "
                f"{end:,}; the header lies: {_AGAIN}"
            )
        end += entry.nbytes
    if end != room:
        raise CheckpointError(
            f"{path}: the tensors take {end:,} bytes but {room:,} follow the header, expected the same; {_AGAIN}"
        )
    return entries


def _place(entry: TensorEntry) -> tuple[int, int]:
    return entry.offset, entry.nbytes


def _read_entry(name: str, value: Any, room: int, path: Path) -> TensorEntry:
    if not isinstance(value, Mapping) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} is described by {shown(value)}, expected dtype, shape and "
            f"data_offsets; {_AGAIN}"
        )
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPE_BITS:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has dtype {shown(dtype)}, expected one of {', '.join(_DTYPE_BITS)}; {_AGAIN}"
        )
    if not _sizes(shape) or len(shape) > 8:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has shape {shown(shape)}, expected at most 8 sizes of zero or more; {_AGAIN}"
        )
    if not _sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise CheckpointError(
            f"{path}: tensor {shown(name)} has data_offsets {shown(offsets)}, expected a begin and an end "
            f"within the {room:,} bytes after the header; the file is truncated or its header lies: "
            f"{_AGAIN}"
        )
    begin, end = offsets
    bits = math.prod(shape) * _DTYPE_BITS[dtype]
    if bits != 8 * (end - begin):
        raise CheckpointError(
            f"{path}: tensor {shown(name)} is {dtype} {shape}, which takes {bits // 8:,} bytes, but its "
            f"data_offsets span {end - begin:,}, expected the same; {_AGAIN}"
        )
    return TensorEntry(name, dtype, tuple(shape), 0, begin, end - begin)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def open_shards(folder: Path) -> list[Shard]:
    """Every model*.safetensors of a folder, opened and checked, in the order of their names.

    The set must be whole: all numbers of a numbered set, and what the index lists if there is one.
    Raises CheckpointError.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.match("model*.safetensors"))
    _check_numbers(folder, names)
    shards: list[Shard] = []
    try:
        for name in names:
            shards.append(Shard(folder / name, len(shards)))
        _check_unique(shards)
        if (folder / INDEX).exists():
            _check_index(folder / INDEX, shards)
    except BaseException:
        for shard in shards:
            shard.close()
        raise
    return shards


def missing_numbers(names: Iterable[str]) -> list[str]:
    """The files that numbered names (model-00001-of-00004.safetensors) promise and that are not among them."""
    counts: dict[int, set[int]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            counts.setdefault(int(match[2]), set()).add(int(match[1]))
    return [
        f"model-{number:05d}-of-{count:05d}.safetensors"
        for count, numbers in counts.items()
        for number in range(1, count + 1)
        if number not in numbers
    ]


def _check_numbers(folder: Path, names: list[str]) -> None:
    if missing := missing_numbers(names):
        raise CheckpointError(
            f"{folder}: found {counted(len(names), 'file')}, expected {missing[0]} too, the first of {len(missing)} "
            f"that are missing of a numbered set; {_AGAIN}"
        )


def _check_unique(shards: list[Shard]) -> None:
    owner: dict[str, Shard] = {}
    for shard in shards:
        for entry in shard.entries:
            if entry.name in owner:
                raise CheckpointError(
                    f"{shard.path}: tensor {shown(entry.name)} is in {owner[entry.name].path.name} too, expected "
                    "it once; remove the files of an older conversion"
                )
            owner[entry.name] = shard


def _check_index(path: Path, shards: list[Shard]) -> None:
    weight_map = read_object(path).get("weight_map")
    if not isinstance(weight_map, Mapping):
        raise CheckpointError(f"{path}: has no weight_map object, expected one; {_AGAIN}")
    found = {entry.name: shard.path.name for shard in shards for entry in shard.entries}
    files = {shard.path.name for shard in shards}
    for name, file in weight_map.items():
        if not isinstance(file, str) or file not in files:
            raise CheckpointError(f"{path}: lists the file {shown(file)}, expected it beside the index; {_AGAIN}")
        if found.get(name) != file:
            place = f"is in {found[name]}" if name in found else "is in no file"
            raise CheckpointError(f"{path}: lists tensor {shown(name)} in {file}, but it {place}; {_AGAIN}")
    unlisted = [name for name in found if name not in weight_map]
    if unlisted:
        raise CheckpointError(
            f"{path}: does not list {len(unlisted)} of {len(found)} tensors, such as {shown(unlisted[0])}, "
            "expected all; delete the index (it is not needed) or use that of this "
            "conversion"
        )
