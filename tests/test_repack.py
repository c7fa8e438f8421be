"""Aligned copies: the same bits at better places, all of them or none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import SMALL, edit_tensors, read_safetensors, tensors_of
from mlx_oracle import MlxOracle
from safetensors import safe_open

from lily import repack as module
from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, InvalidInput, UnsupportedCheckpoint
from lily.repack import PAGE, alignment_of, repack
from lily.synth import TINY, write_checkpoint

WEIGHTS = "model.safetensors"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", SMALL, seed=8, header_residue=1)


@pytest.mark.parametrize("residue", [0, 1, 4, 8, 15])
@pytest.mark.parametrize("shard_bytes", [1 << 30, 60_000])
def test_the_same_tensors_at_aligned_places(residue: int, shard_bytes: int, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "s", SMALL, seed=residue, header_residue=residue, shard_bytes=shard_bytes)
    done = repack(source, tmp_path / "copy")
    files = sorted(path.name for path in source.glob("*.safetensors"))
    assert sorted(path.name for path in done.path.glob("*.safetensors")) == files
    tensors = 0
    for name in files:
        before, after = tensors_of(source / name), tensors_of(done.path / name)
        assert before == after
        header, data = read_safetensors(done.path / name)
        base = (done.path / name).stat().st_size - len(data)
        assert base % PAGE == 0
        assert header.pop("__metadata__") == {"format": "mlx"}
        for entry in header.values():
            begin, end = entry["data_offsets"]
            assert (base + begin) % alignment_of(end - begin) == 0
        with safe_open(done.path / name, framework="numpy") as opened:
            assert set(opened.keys()) == set(after)
        tensors += len(after)
    assert (done.files, done.tensors) == (len(files), tensors)
    assert done.alignment == min(alignment_of(len(raw)) for f in files for _, _, raw in tensors_of(source / f).values())
    for other in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (done.path / other).read_bytes() == (source / other).read_bytes()
    open_checkpoint(done.path).close()


@pytest.mark.parametrize(
    ("size", "expected"), [(1, 1), (2, 2), (6, 2), (64, 64), (96, 32), (16384, 16384), (65536, 16384), (0, 16384)]
)
def test_alignment_of(size: int, expected: int) -> None:
    assert alignment_of(size) == expected


def test_mlx_gives_the_same_logits(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", TINY, seed=9)
    copy = repack(source, tmp_path / "copy").path
    tokens = np.random.default_rng(9).integers(0, TINY.vocab, 16)
    assert np.array_equal(MlxOracle(source).logits(tokens), MlxOracle(copy).logits(tokens))


def test_repacking_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    once = repack(source, tmp_path / "once").path
    twice = repack(once, tmp_path / "twice").path
    assert (once / WEIGHTS).read_bytes() == (twice / WEIGHTS).read_bytes()


def test_what_else_is_in_the_folder(source: Path, tmp_path: Path) -> None:
    edit_tensors(source / WEIGHTS, lambda tensors: tensors.update({"vision_tower.x": ("F16", [3], b"abcdef")}))
    (source / "chat_template.jinja").write_text("{{ messages }}")
    (source / "assets").mkdir()
    (tmp_path / "blob").write_text("linked")
    (source / "notes.txt").symlink_to(tmp_path / "blob")
    done = repack(source, tmp_path / "copy")
    assert done.left_out == ("assets",)
    assert (done.path / "chat_template.jinja").read_text() == "{{ messages }}"
    assert (done.path / "notes.txt").read_text() == "linked"
    assert not (done.path / "notes.txt").is_symlink()
    with open_checkpoint(done.path) as copy:
        assert copy.skipped == ("vision_tower.x",)


def test_a_copy_inside_its_source(source: Path) -> None:
    (source / "assets").mkdir()
    (source / "empty").mkdir()
    assert repack(source, source / "copy").left_out == ("assets", "empty")
    assert repack(source, source / "empty").left_out == ("assets", "copy")


def test_progress(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    repack(source, tmp_path / "copy", progress=lambda done, total: seen.append((done, total)))
    total = 2 * (source / WEIGHTS).stat().st_size
    data = 2 * sum(len(raw) for _, _, raw in tensors_of(source / WEIGHTS).values())
    assert seen[-1] == (data, total)
    assert seen == sorted(seen)


# Nothing or all


def remains(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir())


def test_a_used_folder_and_the_source_itself(source: Path, tmp_path: Path) -> None:
    for out in (source, source / WEIGHTS):
        with pytest.raises(CheckpointError, match="exists, expected a new or empty folder"):
            repack(source, out)
    assert remains(tmp_path) == ["source"]


def test_paths(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the folder in which the work began, and of homes that exist."""
    monkeypatch.chdir(tmp_path)
    away = tmp_path / "away"
    away.mkdir()
    done = repack("source", "copy", progress=lambda *_: os.chdir(away))
    assert done.path == tmp_path / "copy"
    assert remains(away) == []
    for model, out in ((source, "~nobody-has-this-name/x"), ("~nobody-has-this-name/x", away / "x"), (source, None)):
        with pytest.raises(InvalidInput, match=r"no home folder is known|is a NoneType"):
            repack(model, out)  # type: ignore[arg-type]


def test_a_full_disk_is_seen_before(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5))
    size = (source / WEIGHTS).stat().st_size + PAGE
    with pytest.raises(CheckpointError, match=f"found 5 bytes free on its disk, expected {size:,} for the checkpoint"):
        repack(source, tmp_path / "copy")
    assert remains(tmp_path) == ["source"]


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda folder: os.truncate(folder / WEIGHTS, 1000), CheckpointError),
        (lambda folder: (folder / "config.json").unlink(), CheckpointError),
        (lambda folder: (folder / WEIGHTS).rename(folder / "m.gguf"), UnsupportedCheckpoint),
    ],
)
def test_a_source_that_is_no_checkpoint(
    harm: Callable[[Path], Any], error: type[CheckpointError], source: Path, tmp_path: Path
) -> None:
    harm(source)
    with pytest.raises(CheckpointError) as caught:
        repack(source, tmp_path / "copy")
    assert type(caught.value) is error
    assert remains(tmp_path) == ["source"]


def test_a_source_that_changes_meanwhile(source: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was modified after it was opened"):
        repack(source, tmp_path / "copy", progress=lambda done, total: os.utime(source / WEIGHTS, ns=(0, done)))
    assert remains(tmp_path) == ["source"]


def test_a_disk_that_writes_something_else(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = module._copy_shard

    def damage(shard: Any, data: Any, path: Path, written: Any) -> None:
        original(shard, data, path, written)
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)

    monkeypatch.setattr(module, "_copy_shard", damage)
    with pytest.raises(CheckpointError, match="differs from its source after writing"):
        repack(source, tmp_path / "copy")
    assert remains(tmp_path) == ["source"]


def test_interruption(source: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repack(source, tmp_path / "copy", progress=stop)
    assert remains(tmp_path) == ["source"]


def test_the_index_is_kept(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "s", SMALL, shard_bytes=60_000)
    done = repack(source, tmp_path / "copy")
    name = "model.safetensors.index.json"
    assert json.loads((done.path / name).read_text()) == json.loads((source / name).read_text())
