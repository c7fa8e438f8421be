"""Weights that lily must refuse: truncated, corrupt and lying files, tensors that do not fit, shards that do not match.
Folders and config files are in test_config_faults.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import (
    SMALL,
    Json,
    edit_header,
    edit_json,
    edit_tensors,
    edit_text_config,
    read_safetensors,
    tensors_of,
    write_safetensors,
    write_tensors,
)
from faults import Fault, Table

from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, UnsupportedCheckpoint
from lily.synth import write_checkpoint

TABLE = Table()
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ROUTER = "language_model.model.layers.0.mlp.gate"
SHARED = "language_model.model.layers.0.mlp.shared_expert_gate"
QUERY = "language_model.model.layers.3.self_attn.q_proj"
NORM = "language_model.model.norm.weight"
CONV = "language_model.model.layers.0.linear_attn.conv1d.weight"
FIRST = "language_model.model.embed_tokens.weight"
LIST = "lily runs MLX affine quantisation, group size 64"
CONVERT = "mlx_lm.convert --hf-path Qwen/Qwen3.6-35B-A3B"
ONE = "use the config.json and weights of one conversion"


# Tensors


def tensors(name: str, change: Callable[[dict[str, Any]], object], error: type[CheckpointError], *says: str) -> None:
    TABLE.case(f"tensors_{name}", lambda f: edit_tensors(f / WEIGHTS, change), error, *says)


def replaced(name: str, dtype: str, shape: list[int], size: int) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.update({name: (dtype, shape, bytes(size))})


AGAIN = "download or convert again"
tensors("missing", lambda t: t.pop(NORM), CheckpointError, f"1 tensor missing ('{NORM}')", "expected exactly", AGAIN)
tensors(
    "unknown",
    replaced("language_model.bias", "BF16", [1], 2),
    CheckpointError,
    "1 tensor unknown",
    "expected exactly",
    AGAIN,
)
tensors("no_codes", lambda t: t.pop(QUERY + ".weight"), CheckpointError, "1 tensor missing", "expected exactly", AGAIN)
tensors("norm_shape", replaced(NORM, "BF16", [65], 130), CheckpointError, "[65]", "expected [64]", ONE)
tensors("norm_f16", replaced(NORM, "F16", [64], 128), UnsupportedCheckpoint, "is F16", "expected BF16 or F32", CONVERT)
tensors(
    "hf_conv",
    replaced(CONV, "BF16", [128, 1, 4], 1024),
    UnsupportedCheckpoint,
    "[128, 1, 4]",
    "[channels, width, 1]",
    "mlx_lm.convert --hf-path",
)
tensors(
    "router_4",
    replaced(ROUTER + ".weight", "U32", [4, 8], 128),
    UnsupportedCheckpoint,
    "at 4 bits",
    "expected 8",
    CONVERT,
)
tensors(
    "shared_4",
    replaced(SHARED + ".weight", "U32", [1, 8], 32),
    UnsupportedCheckpoint,
    "at 4 bits",
    "expected 8",
    CONVERT,
)
tensors(
    "codes_2", replaced(QUERY + ".weight", "U32", [128, 4], 2048), UnsupportedCheckpoint, "at 2 bits", LIST, CONVERT
)
tensors(
    "codes_6", replaced(QUERY + ".weight", "U32", [128, 12], 6144), UnsupportedCheckpoint, "at 6 bits", LIST, CONVERT
)
tensors(
    "codes_odd",
    replaced(QUERY + ".weight", "U32", [128, 9], 4608),
    CheckpointError,
    "[128, 9]",
    "expected [128, 8]",
    ONE,
)
tensors(
    "codes_rows",
    replaced(QUERY + ".weight", "U32", [64, 8], 2048),
    CheckpointError,
    "[64, 8]",
    "expected [128, 8]",
    ONE,
)
tensors(
    "codes_none", replaced(QUERY + ".weight", "U32", [128, 0], 0), CheckpointError, "[128, 0]", "expected [128, 8]", ONE
)
tensors(
    "codes_scalar", replaced(QUERY + ".weight", "U32", [], 4), CheckpointError, "shape []", "expected [128, 8]", ONE
)
tensors(
    "codes_i32",
    replaced(QUERY + ".weight", "I32", [128, 8], 4096),
    UnsupportedCheckpoint,
    "is I32",
    "expected U32",
    CONVERT,
)
tensors(
    "scales_f16",
    replaced(QUERY + ".scales", "F16", [128, 1], 256),
    UnsupportedCheckpoint,
    "is F16",
    "expected BF16",
    CONVERT,
)
tensors(
    "scales_32",
    replaced(QUERY + ".scales", "BF16", [128, 2], 512),
    CheckpointError,
    "[128, 2]",
    "expected [128, 1]",
    CONVERT,
)
tensors("no_biases", lambda t: t.pop(QUERY + ".biases"), UnsupportedCheckpoint, "no biases", LIST, CONVERT)
TABLE.case(
    "vocab_of_another_model",
    lambda f: edit_text_config(f, vocab_size=640),
    CheckpointError,
    "[320, 8]",
    "[640, 8]",
    ONE,
)


@TABLE.fault(UnsupportedCheckpoint, "is unquantised (BF16 [128, 64])", LIST, CONVERT)
def one_matrix_is_bf16(folder: Path) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors[QUERY + ".weight"] = ("BF16", [128, 64], bytes(128 * 64 * 2))
        del tensors[QUERY + ".scales"], tensors[QUERY + ".biases"]

    edit_tensors(folder / WEIGHTS, change)


@TABLE.fault(CheckpointError, "8 tensors missing ('language_model.model.layers.0.mlp.gate.weight', ", ", ...)", AGAIN)
def experts_of_layer_0_missing(folder: Path) -> None:
    edit_tensors(folder / WEIGHTS, lambda t: [t.pop(name) for name in list(t) if ".layers.0.mlp." in name])


# The file itself


def bytes_of(name: str, change: Callable[[bytes], bytes], *says: str) -> None:
    def harm(folder: Path) -> None:
        path = folder / WEIGHTS
        path.write_bytes(change(path.read_bytes()))

    TABLE.case(f"file_{name}", harm, CheckpointError, *says)


def length(value: int) -> bytes:
    return value.to_bytes(8, "little")


bytes_of("cut", lambda raw: raw[:-1], "data_offsets", "expected a begin and an end", "again")
bytes_of("longer", lambda raw: raw + b"\0", "follow the header", "expected the same", "again")
bytes_of("empty", lambda raw: b"", "has 0 bytes", "expected an 8-byte length", "again")
bytes_of("short", lambda raw: raw[:5], "has 5 bytes", "expected an 8-byte length", "again")
bytes_of("zero_header", lambda raw: length(0) + raw[8:], "no safetensors header", "expected an 8-byte", "again")
bytes_of(
    "huge_header", lambda raw: length(1 << 62) + raw[8:], "4,611,686,018,427,387,904", "at most 100,000,000", "again"
)
bytes_of("header_beyond", lambda raw: length(90_000_000) + raw[8:], "truncated", "at least 90,000,008", "again")
bytes_of("lfs", lambda raw: b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "expected", "git lfs pull")
bytes_of("gguf", lambda raw: b"GGUF" + raw, "a GGUF file", "expected a safetensors file", "use an MLX checkpoint")
bytes_of("zip", lambda raw: b"PK\x03\x04" + raw, "a zip or PyTorch file", "expected a safetensors", "convert it")
bytes_of("html", lambda raw: b"<!DOCTYPE html><html>", "an HTML or XML page", "expected", "download it again")
bytes_of("header_space", lambda raw: length(9) + b" " + raw[8:], "begins with b' '", "expected '{'", "again")
bytes_of("header_cut", lambda raw: length(50) + raw[8:], "no valid JSON", "expected one JSON object", "again")
bytes_of("noise", lambda raw: length(16) + b"{" + bytes(range(128, 143)), "not UTF-8", "expected JSON text", "again")


def header(name: str, change: Callable[[Json], object], *says: str) -> None:
    TABLE.case(f"header_{name}", lambda f: edit_header(f / WEIGHTS, change), CheckpointError, *says)


def offsets(name: str, value: Any, *says: str) -> None:
    header(f"offsets_{name}", lambda h: h[FIRST].update(data_offsets=value), *says)


RANGE = "expected a begin and an end within"
offsets("beyond", [0, 1 << 40], "[0, 1099511627776]", RANGE, "again")
offsets("reversed", [10240, 0], "[10240, 0]", RANGE, "again")
offsets("negative", [-1, 10239], "[-1, 10239]", RANGE, "again")
offsets("float", [0, 10240.0], "[0, 10240.0]", RANGE, "again")
offsets("true", [False, 10240], "[False, 10240]", RANGE, "again")
offsets("three", [0, 1, 2], "[0, 1, 2]", RANGE, "again")
offsets("text", "0,10240", "0,10240", RANGE, "again")
offsets("short", [0, 10236], "takes 10,240 bytes", "span 10,236, expected the same", "again")
header("overlap", lambda h: h[FIRST].update(data_offsets=[4, 10244]), "leaves a hole", "expected 0", "again")
header("dtype", lambda h: h[FIRST].update(dtype="Q4"), "dtype 'Q4'", "expected one of BOOL", "again")
header("dtype_list", lambda h: h[FIRST].update(dtype=["U32"]), "dtype ['U32']", "expected one of BOOL", "again")
header("dtype_lie", lambda h: h[FIRST].update(dtype="F64"), "takes 20,480 bytes", "expected the same", "again")
header("shape_minus", lambda h: h[FIRST].update(shape=[-320, -8]), "[-320, -8]", "expected at most 8 sizes", "again")
header("shape_huge", lambda h: h[FIRST].update(shape=[1 << 62] * 8), "takes", "expected the same", "again")
header("shape_long", lambda h: h[FIRST].update(shape=[1] * 9), "[1, 1,", "expected at most 8 sizes", "again")
header("shape_none", lambda h: h[FIRST].update(shape=None), "shape None", "expected at most 8 sizes", "again")
header("no_shape", lambda h: h[FIRST].pop("shape"), "is described by", "expected dtype, shape", "again")
header("extra", lambda h: h[FIRST].update(stride=[1]), "is described by", "expected dtype, shape", "again")
header("number", lambda h: h.update({FIRST: 5}), "is described by", "expected dtype, shape", "again")
header("gone", lambda h: h.pop(FIRST), "leaves a hole before it", "expected 0", "again")
header("metadata", lambda h: h.update(__metadata__={"format": 1}), "not an object of strings", "as expected", "again")


@TABLE.fault(CheckpointError, "overlaps the tensor before it", "expected", "again")
def header_shares_bytes(folder: Path) -> None:
    def change(header: Json) -> None:
        twin = header[NORM]["data_offsets"]
        header["language_model.twin"] = {"dtype": "U8", "shape": [2], "data_offsets": [twin[0] + 2, twin[0] + 4]}

    edit_header(folder / WEIGHTS, change)


@TABLE.fault(CheckpointError, "appears twice", "expected unique keys", "again")
def header_repeats_a_tensor(folder: Path) -> None:
    header, data = read_safetensors(folder / WEIGHTS)
    text = json.dumps(header)
    write_safetensors(folder / WEIGHTS, (text[:-1] + ", " + json.dumps({NORM: header[NORM]})[1:]).encode(), data)


# Several files


def split(folder: Path, names: tuple[str, str] = ("model-00001-of-00002", "model-00002-of-00002")) -> None:
    """Two shards instead of one file, with an index."""
    tensors = list(tensors_of(folder / WEIGHTS).items())
    (folder / WEIGHTS).unlink()
    half = len(tensors) // 2
    weight_map: dict[str, str] = {}
    for name, part in zip(names, (tensors[:half], tensors[half:]), strict=True):
        write_tensors(folder / f"{name}.safetensors", dict(part))
        weight_map |= {tensor: f"{name}.safetensors" for tensor, _ in part}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")


def sharded(name: str, harm: Callable[[Path], object], *says: str) -> None:
    def both(folder: Path) -> None:
        split(folder)
        harm(folder)

    TABLE.case(f"shards_{name}", both, CheckpointError, *says)


def weight_map(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / INDEX, lambda index: change(index["weight_map"]))


SECOND = "model-00002-of-00002.safetensors"
sharded("missing", lambda f: (f / SECOND).unlink(), "found 1 file,", f"expected {SECOND}", "again")
sharded(
    "twice", lambda f: shutil.copy(f / SECOND, f / "model-old.safetensors"), "too, expected it once", "once", "remove"
)
sharded(
    "index_file",
    weight_map(lambda m: m.update({NORM: "other.safetensors"})),
    "'other.safetensors'",
    "expected",
    "again",
)
sharded(
    "index_place",
    weight_map(lambda m: m.update({NORM: "model-00001-of-00002.safetensors"})),
    "but it is in",
    SECOND,
    "again",
)
sharded("index_ghost", weight_map(lambda m: m.update(ghost=SECOND)), "'ghost'", "is in no file", "again")
sharded("index_short", weight_map(lambda m: m.pop(NORM)), "does not list 1 of", "expected all", "delete the index")
sharded("index_empty", lambda f: (f / INDEX).write_text("{}"), "no weight_map", "expected one", "again")
sharded(
    "index_list",
    lambda f: edit_json(f / INDEX, lambda i: i.update(weight_map=[1])),
    "no weight_map",
    "expected",
    "again",
)
sharded("index_type", weight_map(lambda m: m.update({NORM: []})), "lists the file []", "expected it", "again")
sharded("index_odd", weight_map(lambda m: m.update({NORM: 7})), "lists the file 7", "expected it", "again")


@TABLE.fault(CheckpointError, "a link to /nowhere that leads nowhere", "expected a safetensors file", "again")
def link_to_nowhere(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("/nowhere")


@TABLE.fault(CheckpointError, "is no regular file", "expected a safetensors file", "again")
def pipe_instead_of_file(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


@TABLE.fault(CheckpointError, "is no regular file", "expected a safetensors file", "again")
def folder_instead_of_file(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sound") / "model", SMALL, seed=1)


def test_the_sound_checkpoint_opens(sound: Path, tmp_path: Path) -> None:
    """Otherwise any error would do in the test below. Also in two shards, which several faults start from."""
    folder = Path(shutil.copytree(sound, tmp_path / "model"))
    open_checkpoint(folder).close()
    split(folder)
    open_checkpoint(folder).close()


def test_the_table_is_long_enough() -> None:
    assert len(TABLE.faults) >= 40


@TABLE.parametrize()
def test_fault(fault: Fault, sound: Path, tmp_path: Path) -> None:
    fault.check(sound, tmp_path)
