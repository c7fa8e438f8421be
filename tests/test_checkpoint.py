"""Opening sound checkpoints: what is found, that it is mapped where it lies, and that changes under it are seen."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import (
    SMALL,
    Json,
    edit_config,
    edit_header,
    edit_quantization,
    edit_tensors,
    edit_text_config,
    read_safetensors,
    shaped,
    tensors_of,
    write_safetensors,
)
from hf_source import Model, write_source
from mlx_oracle import convert
from safetensors import safe_open

from lily import synth
from lily.architecture import Architecture
from lily.checkpoint import Checkpoint, open_checkpoint
from lily.errors import CheckpointError, UnsupportedCheckpoint
from lily.shard_writer import header_bytes

WEIGHTS = "model.safetensors"
QUERY = "language_model.model.layers.3.self_attn.q_proj"
ITEM_BYTES = {"U32": 4, "F32": 4, "BF16": 2}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synth.write_checkpoint(tmp_path_factory.mktemp("sound") / "model", SMALL, seed=2)


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def bytes_of_views(checkpoint: Checkpoint) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    found = {}
    for name, file, offset, dtype, shape in checkpoint.tensors:
        count = math.prod(shape) * ITEM_BYTES[dtype]
        found[name] = dtype, shape, checkpoint.files[file][offset : offset + count].tobytes()
    return found


# What is found


@pytest.mark.parametrize("residue", range(16))
def test_views_at_every_residue_of_the_header(residue: int, tmp_path: Path) -> None:
    folder = synth.write_checkpoint(tmp_path / "model", SMALL, seed=residue, header_residue=residue, tokenizer=False)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.shards[0].data_offset % 16 == residue
        expected = {
            name: (dtype, tuple(shape), raw) for name, (dtype, shape, raw) in tensors_of(folder / WEIGHTS).items()
        }
        assert bytes_of_views(checkpoint) == expected


def test_the_safetensors_library_reads_the_same(sound: Path) -> None:
    with open_checkpoint(sound) as checkpoint, safe_open(sound / WEIGHTS, framework="numpy") as library:
        views = bytes_of_views(checkpoint)
        assert set(library.keys()) == set(views)
        compared = 0
        for name, (dtype, shape, raw) in views.items():
            if dtype != "BF16":  # numpy has no such type
                tensor = library.get_tensor(name)
                assert tensor.shape == shape
                assert tensor.tobytes() == raw
                compared += 1
        assert compared > 30


def test_description(sound: Path) -> None:
    with open_checkpoint(sound) as checkpoint:
        facts = checkpoint.describe()
        assert json.loads(json.dumps(facts)) == facts
        assert checkpoint.architecture == SMALL
        assert checkpoint.config == {**dataclasses.asdict(SMALL), "attention_every": 4}
        assert not checkpoint.full
        assert "small" in checkpoint.name
        assert checkpoint.total_bytes == sum(len(raw) for _, _, raw in tensors_of(sound / WEIGHTS).values())
        assert checkpoint.file_bytes == (sound / WEIGHTS).stat().st_size
        assert checkpoint.max_positions == 262144
        assert checkpoint.generation_config["top_k"] == 20
        assert checkpoint.skipped == ()
        routers = sorted(path for path, bits in checkpoint.bits.items() if bits == 8)
        assert len(routers) == 2 * SMALL.layers
        assert all(path.endswith(("mlp.gate", "shared_expert_gate")) for path in routers)
        assert facts["eight_bit"] == routers
        assert facts["bits"] == {"4": len(checkpoint.bits) - 8, "8": 8}
        # Logical weights, counted from the packed tensors.
        packed = sum(
            math.prod(shape) * (32 // checkpoint.bits[name.removesuffix(".weight")] if dtype == "U32" else 1)
            for name, _, _, dtype, shape in checkpoint.tensors
            if not name.endswith((".scales", ".biases"))
        )
        assert facts["parameters"] == packed
        assert facts["active_parameters"] == packed - 4 * 2 * 3 * 64 * 64 - 319 * 64


def test_arrays_are_read_only_and_outlive_the_checkpoint(sound: Path) -> None:
    checkpoint = open_checkpoint(sound)
    array = checkpoint.files[0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    first = array[:64].tobytes()
    checkpoint.close()
    checkpoint.close()
    assert checkpoint.files == []
    assert array[:64].tobytes() == first == (sound / WEIGHTS).read_bytes()[:64]
    with pytest.raises(CheckpointError, match="is closed"):
        checkpoint.check_unchanged()


def sparse_full(folder: Path) -> Path:
    """A checkpoint of the full dimensions whose data is one hole: 19.5 GB that take no disk, unless they are read."""
    folder.mkdir()
    shards = synth._shards(synth._tensors(synth.FULL, 0, 4), synth.SHARD_BYTES)
    for number, tensors in enumerate(shards, 1):
        with (folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors").open("wb") as file:
            head = header_bytes(tensors, {"format": "mlx"}, 1, 0)
            file.write(head)
            file.truncate(len(head) + sum(tensor.nbytes for tensor in tensors))
    (folder / "config.json").write_text(json.dumps(synth._config(synth.FULL, 4, 248046)), encoding="utf-8")
    return folder


def test_full_size_opens_at_once_and_reads_no_weight(tmp_path: Path) -> None:
    folder = sparse_full(tmp_path / "full")
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        checkpoint = open_checkpoint(folder)
        seconds.append(time.perf_counter() - start)
        facts = checkpoint.describe()
        checkpoint.close()
    assert min(seconds) < 0.5, seconds
    assert checkpoint.full
    assert checkpoint.name == "Qwen3.6-35B-A3B"
    assert len(checkpoint.tensors) == 1757
    assert facts["files"] == 4
    assert facts["weight_bytes"] == 19_508_789_376
    assert facts["bits"]["8"] == 80
    assert 34.6e9 < facts["parameters"] < 34.7e9
    assert 2.9e9 < facts["active_parameters"] < 3.0e9
    assert sum(file.stat().st_blocks for file in folder.iterdir()) * 512 < 2 << 20


# Freedoms of the format


def test_any_order_of_the_header_and_padding(folder: Path) -> None:
    header, data = read_safetensors(folder / WEIGHTS)
    with open_checkpoint(folder) as checkpoint:
        before = bytes_of_views(checkpoint)
    turned = dict(reversed(header.items()))
    write_safetensors(folder / WEIGHTS, json.dumps(turned, indent=1).encode() + b" \n\t ", data)
    with open_checkpoint(folder) as checkpoint:
        assert bytes_of_views(checkpoint) == before


def test_tensors_of_other_parts_are_skipped_and_listed(folder: Path) -> None:
    others = ["vision_tower.norm.bias", "model.visual.norm.weight", "mtp.norm.weight", "language_model.mtp.fc.bias"]
    edit_tensors(folder / WEIGHTS, lambda t: t.update({name: ("F16", [3], b"abcdef") for name in others}))
    edit_tensors(folder / WEIGHTS, lambda t: t.update({"vision_tower.empty": ("I64", [0, 7], b"")}))
    with open_checkpoint(folder) as checkpoint:
        assert set(checkpoint.skipped) == {*others, "vision_tower.empty"}
        assert not any(name in others for name, *_ in checkpoint.tensors)
        assert checkpoint.describe()["skipped_tensors"] == 5


def test_names_without_the_prefix_and_a_text_only_config(folder: Path) -> None:
    edit_tensors(folder / WEIGHTS, drop_prefix)

    def flat(config: Json) -> None:
        config.update(config.pop("text_config"))
        config["model_type"] = "qwen3_5_moe_text"
        for key in ("quantization", "quantization_config"):
            config[key] = {name.removeprefix("language_model."): value for name, value in config[key].items()}

    edit_config(folder, flat)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.architecture == SMALL
        assert all(name.startswith("language_model.") for name, *_ in checkpoint.tensors)


def drop_prefix(tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    for name in list(tensors):
        tensors[name.removeprefix("language_model.")] = tensors.pop(name)


def test_the_same_tensor_with_and_without_prefix_is_refused(folder: Path) -> None:
    def twin(tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
        tensors["lm_head.weight"] = tensors["language_model.lm_head.weight"]

    edit_tensors(folder / WEIGHTS, twin)
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight', expected it once"):
        open_checkpoint(folder)


def test_eight_bits_everywhere(tmp_path: Path) -> None:
    with open_checkpoint(synth.write_checkpoint(tmp_path / "model", SMALL, bits=8)) as checkpoint:
        assert set(checkpoint.bits.values()) == {8}


def test_one_matrix_at_eight_bits_by_override(folder: Path, tmp_path: Path) -> None:
    wide = synth.write_checkpoint(tmp_path / "wide", SMALL, bits=8)
    parts = {name: entry for name, entry in tensors_of(wide / WEIGHTS).items() if name.startswith(QUERY)}
    edit_tensors(folder / WEIGHTS, lambda t: t.update(parts))
    edit_quantization(folder, lambda q: q.update({QUERY: {"group_size": 64, "bits": 8}}))
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.bits[QUERY] == 8
        assert checkpoint.bits[QUERY.replace("q_proj", "k_proj")] == 4


def test_routers_that_config_does_not_name_are_inferred(folder: Path) -> None:
    def forget(quantization: Json) -> None:
        for path in [path for path, value in quantization.items() if isinstance(value, dict)]:
            del quantization[path]

    edit_quantization(folder, forget)
    with open_checkpoint(folder) as checkpoint:
        assert sum(bits == 8 for bits in checkpoint.bits.values()) == 8


def test_one_quantization_key_is_enough(folder: Path) -> None:
    edit_config(folder, lambda config: config.pop("quantization_config"))
    open_checkpoint(folder).close()
    edit_config(folder, lambda config: config.update(quantization_config=config.pop("quantization")))
    open_checkpoint(folder).close()


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_vectors_in_either_dtype(dtype: str, folder: Path) -> None:
    def widen(tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
        for name, (_, shape, _) in list(tensors.items()):
            if name.endswith(("A_log", "dt_bias", "norm.weight", "layernorm.weight", "conv1d.weight")):
                tensors[name] = (dtype, shape, bytes(math.prod(shape) * ITEM_BYTES[dtype]))

    edit_tensors(folder / WEIGHTS, widen)
    with open_checkpoint(folder) as checkpoint:
        assert {dtype for name, _, _, dtype, _ in checkpoint.tensors if "norm" in name} == {dtype}


@pytest.mark.parametrize(
    ("written", "values", "expected"),
    [
        ({}, {"rms_norm_eps": ..., "layer_types": ..., "full_attention_interval": ...}, {}),
        ({}, {"linear_conv_kernel_dim": ..., "head_dim": ..., "hidden_act": ..., "attn_output_gate": ...}, {}),
        ({}, {"norm_topk_prob": False}, {"renormalize": False}),
        ({}, {"norm_topk_prob": True}, {"renormalize": True}),
        ({}, {"rope_parameters": {"rope_theta": 5000, "partial_rotary_factor": 0.5}}, {"theta": 5e3, "rotary_dim": 16}),
        ({}, {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, {}),
        ({}, {"rope_parameters": ..., "rope_theta": 1e6, "partial_rotary_factor": 1.0}, {"rotary_dim": 32}),
        ({"head_dim": 64, "rotary_dim": 16}, {}, {"head_dim": 64, "rotary_dim": 16}),
        ({"layers": 2}, {}, {"layers": 2}),
        ({"layers": 9}, {}, {"layers": 9}),
        ({"conv_width": 2}, {}, {"conv_width": 2}),
        ({"shared_width": 128}, {}, {"shared_width": 128}),
        ({"key_dim": 64, "value_heads": 3, "value_dim": 64}, {}, {"key_dim": 64, "value_heads": 3, "value_dim": 64}),
    ],
)
def test_dimensions_and_defaults(written: Json, values: Json, expected: Json, tmp_path: Path) -> None:
    folder = synth.write_checkpoint(tmp_path / "model", shaped(**written), tokenizer=False)
    edit_text_config(folder, **values)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.architecture == shaped(**expected)


def test_a_folder_of_links_as_the_hub_cache_has_it(sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    for entry in sound.iterdir():
        (folder / entry.name).symlink_to(entry)
    with open_checkpoint(str(folder)) as checkpoint:
        checkpoint.check_unchanged()
        assert checkpoint.path == folder


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "."])
def test_without_permission(name: str, folder: Path) -> None:
    (folder / name).chmod(0)
    try:
        with pytest.raises(CheckpointError, match="ermission"):
            open_checkpoint(folder)
    finally:
        (folder / name).chmod(0o700)


# Changes under an open checkpoint


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))  # as time would have done


def replace(path: Path) -> None:
    found = path.stat()
    twin = path.with_name("twin")
    shutil.copy2(path, twin)
    os.utime(twin, ns=(found.st_atime_ns, found.st_mtime_ns))
    twin.replace(path)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (truncate, "bytes, expected the"),
        (grow, "bytes, expected the"),
        (overwrite, "was modified after"),
        (replace, "was replaced"),
        (Path.unlink, "vanished"),
        (lambda path: shutil.rmtree(path.parent), "vanished"),
    ],
    ids=["truncated", "grown", "overwritten", "replaced", "removed", "folder_removed"],
)
def test_a_changed_file_is_seen(harm: Callable[[Path], object], says: str, folder: Path) -> None:
    with open_checkpoint(folder) as checkpoint:
        checkpoint.check_unchanged()
        harm(folder / WEIGHTS)
        with pytest.raises(CheckpointError, match=says) as caught:
            checkpoint.check_unchanged()
        assert WEIGHTS in str(caught.value)
        assert "load again" in str(caught.value)


# What the real converter writes


@pytest.mark.parametrize(
    ("model", "seed"), [(Model(), 1), (Model(hidden=192, layers=5, experts=6, top_k=3, width=128, vocab=512), 2)]
)
def test_a_checkpoint_of_the_converter(model: Model, seed: int, tmp_path: Path) -> None:
    folder = convert(model, seed, tmp_path)
    with open_checkpoint(folder) as checkpoint:
        a = checkpoint.architecture
        assert isinstance(a, Architecture)
        assert (a.hidden, a.layers, a.vocab, a.experts, a.top_k) == (
            model.hidden,
            model.layers,
            model.vocab,
            model.experts,
            model.top_k,
        )
        assert sum(bits == 8 for bits in checkpoint.bits.values()) == 2 * model.layers
        assert {name: raw for name, (_, _, raw) in bytes_of_views(checkpoint).items()} == {
            name: raw for name, (_, _, raw) in tensors_of(folder / WEIGHTS).items()
        }


def test_the_source_of_the_converter_is_refused_with_the_command(tmp_path: Path) -> None:
    write_source(tmp_path / "source model", Model(), 3)
    with pytest.raises(UnsupportedCheckpoint) as caught:
        open_checkpoint(tmp_path / "source model")
    command = f"mlx_lm.convert --hf-path '{tmp_path}/source model' --mlx-path 'source model-mlx-4bit' -q"
    assert command in str(caught.value)


def test_a_header_edited_in_place_keeps_its_meaning(folder: Path) -> None:
    """The helper of the fault tables changes nothing by itself."""
    with open_checkpoint(folder) as checkpoint:
        before = bytes_of_views(checkpoint)
    edit_header(folder / WEIGHTS, lambda header: None)
    with open_checkpoint(folder) as checkpoint:
        assert bytes_of_views(checkpoint) == before
