"""Random harm to a checkpoint: whatever the bytes are, opening it works or raises CheckpointError, and nothing else.

When it works, every view lies inside its file and has the bytes of its shape, so that C++ can trust it.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import SMALL, read_safetensors, write_safetensors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError
from lily.synth import write_checkpoint

WEIGHTS = "model.safetensors"
ITEM_BYTES = {"U32": 4, "F32": 4, "BF16": 2}

SHARED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, 4, 64, 2**63])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)
kinds = st.sampled_from(["U32", "BF16", "F32", "U8", "F4", "C64", "Q9"])
numbers = st.integers(-1, 70) | st.integers(0, 500_000) | st.sampled_from([2**31, 2**62, 2**64])
entries = st.fixed_dictionaries(
    {"dtype": kinds, "shape": st.lists(numbers, max_size=4), "data_offsets": st.lists(numbers, min_size=2, max_size=2)}
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("pristine") / "model", SMALL, seed=3)


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """One copy for all examples of a test; each example writes the one file that it harms."""
    return Path(shutil.copytree(pristine, tmp_path / "model"))


def survives(folder: Path) -> bool:
    """Whether the folder opens; if it does, the views must be sound."""
    try:
        checkpoint = open_checkpoint(folder)
    except CheckpointError:
        return False
    with checkpoint:
        for _, file, offset, dtype, shape in checkpoint.tensors:
            size = math.prod(shape) * ITEM_BYTES[dtype]
            assert size > 0
            assert 0 <= offset <= offset + size <= checkpoint.files[file].size
        json.dumps(checkpoint.describe())
    return True


@SHARED
@given(data=st.data())
def test_bytes(data: st.DataObject, pristine: Path, folder: Path) -> None:
    """Bytes replaced, inserted and removed, mostly in the length and the header."""
    raw = bytearray((pristine / WEIGHTS).read_bytes())
    header = 8 + int.from_bytes(raw[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header) | st.integers(0, 16) | st.integers(0, len(raw)))
        count = data.draw(st.integers(0, 20))
        raw[place : place + count] = data.draw(st.binary(max_size=20))
    (folder / WEIGHTS).write_bytes(raw)
    survives(folder)


@SHARED
@given(share=st.floats(0, 1))
def test_truncation(share: float, pristine: Path, folder: Path) -> None:
    raw = (pristine / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(raw[: min(int(share * len(raw)), len(raw) - 1)])
    assert not survives(folder)


@SHARED
@given(data=st.data())
def test_header_entries(data: st.DataObject, pristine: Path, folder: Path) -> None:
    """Entries replaced by others that look right, or by any JSON; names swapped, dropped and invented."""
    header, raw = read_safetensors(pristine / WEIGHTS)
    names = sorted(header)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(names) | st.text(max_size=10))
        action = data.draw(st.sampled_from(["entry", "any", "drop", "swap", "field"]))
        if action == "drop":
            header.pop(name, None)
        elif action == "swap":
            other = data.draw(st.sampled_from(names))
            header[name], header[other] = header.get(other), header.get(name)
        elif action == "field" and isinstance(header.get(name), dict):
            key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
            header[name] = {**header[name], key: data.draw(values)}
        else:
            header[name] = data.draw(entries if action == "entry" else values)
    write_safetensors(folder / WEIGHTS, header, raw)
    survives(folder)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
@SHARED
@given(data=st.data())
def test_json_files(name: str, data: st.DataObject, pristine: Path, folder: Path) -> None:
    """One or two values anywhere in a JSON file replaced by any other, or removed."""
    root = json.loads((pristine / name).read_text(encoding="utf-8"))
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(root)) or [()]))
        holder = root
        for key in path[:-1]:
            holder = holder[key]
        if path and data.draw(st.booleans()):
            holder[path[-1]] = data.draw(values)
        elif path:
            del holder[path[-1]]
    (folder / name).write_text(json.dumps(root), encoding="utf-8")
    survives(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@SHARED
@example(raw=b"")
@example(raw=b"\xff\xfe{}")
@example(raw=b'{"eos_token": "x", "eos_token": "y"}')
@given(raw=st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode()))
def test_any_file_instead_of_a_json_file(name: str, raw: bytes, folder: Path) -> None:
    (folder / name).write_bytes(raw)
    survives(folder)
