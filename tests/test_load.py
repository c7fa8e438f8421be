"""Engine.load and what it promises: names, devices, options, and checkpoints that lack or change something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lily
from lily import Engine, _ext
from lily.errors import CheckpointError, DeviceError, InvalidInput, OutOfMemory, UnsupportedCheckpoint
from lily.sampling import GREEDY

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def test_import_is_quick() -> None:
    """In processor time, which other programs on the machine do not change."""
    code = "import time; start = time.process_time(); import lily; print(time.process_time() - start)"
    seconds = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(seconds) < 0.15


def test_public_names_are_there_and_others_are_not() -> None:
    assert {"Engine", "Sampling", "errors"} <= set(dir(lily))
    assert lily.errors.LilyError is lily.LilyError
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        lily.Motor  # type: ignore[attr-defined]  # noqa: B018


def test_info_and_tables(engine: Engine, tiny: Path) -> None:
    info = json.loads(json.dumps(engine.info))
    assert info["source"] == str(tiny)
    assert (info["max_context"], info["chunk"]) == (256, 64)
    assert info["instruction_set"] in _ext.instruction_sets()
    assert info["threads"] >= 1
    assert set(info["stop_ids"]) == engine.stop_ids
    assert info["bits"].keys() == {"4", "8"}
    assert "max_context 256" in repr(engine)
    html = engine._repr_html_()
    assert html.startswith("<table>")
    assert "parameters" in html
    with engine.session() as session:
        assert "0 of 256 tokens" in repr(session)


def test_tables_are_escaped(tmp_path: Path, tiny: Path) -> None:
    odd = tmp_path / "<b>model"
    shutil.copytree(tiny, odd)
    with Engine.load(odd, max_context=16) as engine:
        assert "<b>" not in engine._repr_html_()


@pytest.mark.parametrize("isa", ["", *_ext.instruction_sets()])
def test_devices(tiny: Path, isa: str) -> None:
    device = f"cpu:{isa}" if isa else "auto"
    with Engine.load(tiny, device=device, max_context=64, threads=1) as engine, engine.session() as session:
        assert engine.info["threads"] == 1
        if isa:
            assert engine.info["instruction_set"] == isa
        assert np.isfinite(engine.prefill(session, PROMPT).logits).all()


def test_an_instruction_set_of_the_environment(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = _ext.instruction_sets()
    monkeypatch.setenv("LILY_ISA", known[-1])
    with Engine.load(tiny, max_context=64) as engine:
        assert engine.info["instruction_set"] == known[-1]
    monkeypatch.setenv("LILY_ISA", "zz")
    with pytest.raises(DeviceError, match=rf"'zz' of LILY_ISA in the environment is not .*: {', '.join(known)}$"):
        Engine.load(tiny, max_context=64)
    with Engine.load(tiny, device=f"cpu:{known[0]}", max_context=64) as engine:  # what is asked for in the call wins
        assert engine.info["instruction_set"] == known[0]


@pytest.mark.skipif(sys.platform == "darwin", reason="there is Metal")
def test_metal_needs_a_mac(tiny: Path) -> None:
    with pytest.raises(DeviceError, match="'metal' needs macOS; use 'cpu'"):
        Engine.load(tiny, device="metal")


@pytest.mark.parametrize(
    "device",
    ["", "gpu", "cpu:", "cpu:sse2", "auto:avx2", "CPU", "metal:", "metal:gpu", "metal:host:", "metal:host:odd"],
)
def test_unknown_devices_are_refused(tiny: Path, device: str) -> None:
    with pytest.raises(DeviceError, match=r"not known on this machine; expected one of auto, cpu, cpu:"):
        Engine.load(tiny, device=device)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_context": 0}, "max_context is 0"),
        ({"max_context": -5}, "max_context is -5"),
        ({"max_context": 1.5}, "max_context is 1.5"),
        ({"max_context": "4096"}, "max_context is '4096'"),
        ({"max_context": 262_145}, "positions for at most 262144"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": True}, "threads is True"),
        ({"threads": 1025}, "threads is 1025; expected a whole number from 1 to 1024"),
        ({"device": 7}, "device is a int"),
    ],
)
def test_options_of_load_are_checked(tiny: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Engine.load(tiny, **options)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        Engine.load(tmp_path / "nothing-here")
    with pytest.raises(CheckpointError):
        Engine.load(tmp_path)


def test_a_relative_path_may_be_left(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.parent)
    with Engine.load(tiny.name, max_context=64) as engine:
        monkeypatch.chdir(tmp_path)
        assert engine.score(PROMPT).log_probs.shape == (10,)
        assert engine.generate([{"role": "user", "content": "a"}], 1).finish_reason
        assert engine.info["path"] == str(tiny)


@pytest.mark.parametrize("path", [None, 5, b"tiny", "", "~nobody-has-this-name/x"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(InvalidInput, match=r"the model is .*; |the model is an empty string"):
        Engine.load(path)


def test_no_room_to_map_is_out_of_memory(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under ulimit -v the safetensors library is the first to ask."""

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError("Cannot allocate memory (os error 12)")

    monkeypatch.setattr("lily.shards.safe_open", refuse)
    with pytest.raises(OutOfMemory, match=r"mapping [\d,]+ bytes found no room .*raise the limit \(ulimit -v\)"):
        Engine.load(tiny)


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="a kernel without huge pages"
)
def test_huge_pages_are_asked_for(tiny: Path) -> None:
    file = next(tiny.glob("*.safetensors"))
    with Engine.load(tiny):
        _, *entries = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(file.resolve()))
        assert entries
        assert all(" hg" in entry.split("VmFlags:")[1].split("\n")[0] for entry in entries)


def copy_without(tiny: Path, target: Path, *names: str) -> Path:
    return shutil.copytree(tiny, target, ignore=shutil.ignore_patterns(*names))


def test_without_a_tokenizer_ids_still_work(tiny: Path, tmp_path: Path) -> None:
    bare = copy_without(tiny, tmp_path / "bare", "tokenizer*")
    with Engine.load(bare, max_context=64) as engine, engine.session() as session:
        engine.prefill(session, PROMPT)
        assert len(list(engine.steps(session, GREEDY.sampler(engine.vocab), 3))) == 3
        assert engine.score(PROMPT).log_probs.shape == (10,)
        for call in (lambda: engine.tokenizer, lambda: engine.generate("a"), lambda: engine.stream([])):
            with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
                call()


def test_without_a_template_text_still_works(tiny: Path, tmp_path: Path) -> None:
    bare = copy_without(tiny, tmp_path / "bare", "tokenizer_config.json", "chat_template.jinja")
    with Engine.load(bare, max_context=64) as engine:
        assert engine.generate("a", 1).prompt_tokens == 1
        with pytest.raises(CheckpointError, match="no chat template"):
            engine.generate([{"role": "user", "content": "a"}])


def test_another_kind_of_tokenizer_is_refused_when_text_comes(tiny: Path, tmp_path: Path) -> None:
    other = copy_without(tiny, tmp_path / "other", "tokenizer_config.json")
    content = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    content["decoder"] = {"type": "Fuse"}
    (other / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with Engine.load(other, max_context=64) as engine, pytest.raises(UnsupportedCheckpoint, match="Fuse decoder"):
        engine.generate("a", 1)


def test_a_checkpoint_that_changes_under_the_engine_is_seen(tiny: Path, tmp_path: Path) -> None:
    changing = shutil.copytree(tiny, tmp_path / "changing")
    with Engine.load(changing, max_context=64) as engine, engine.session() as session:
        engine.prefill(session, PROMPT)
        tokens = engine.decode(session, 9)
        next(tokens)
        weights = next(changing.glob("*.safetensors"))
        os.utime(weights, ns=(time.time_ns(), time.time_ns() + 10**9))
        for call in (
            lambda: next(tokens),
            lambda: engine.prefill(session, PROMPT),
            lambda: engine.forward(PROMPT),
            lambda: engine.score(PROMPT),
            lambda: engine.generate("a"),
        ):
            with pytest.raises(CheckpointError, match="model"):
                call()


def test_a_broken_generation_config_fails_the_load(tiny: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / "generation_config.json").write_text('{"temperature": -3}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"generation_config\.json: Sampling: temperature is -3"):
        Engine.load(broken)
