"""What `lily info` knows: sizes that add up, an honest answer about memory, and no network unless asked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import SMALL
from huggingface_hub import constants

from lily import Engine, info
from lily.architecture import QWEN36_35B_A3B
from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, HubError, InvalidInput
from lily.synth import write_checkpoint


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_bytes_are_those_of_the_files(bits: int, tmp_path: Path) -> None:
    with open_checkpoint(write_checkpoint(tmp_path / "model", SMALL, bits=bits)) as checkpoint:
        assert info.packed_bytes(SMALL, bits) == checkpoint.total_bytes
    assert info.packed_bytes(QWEN36_35B_A3B) == 19_508_789_376


def test_the_sum_of_the_full_model() -> None:
    answer = info.fit(4096, available=24 << 30)
    assert answer.fits
    assert answer.weights == 19_508_789_376
    assert answer.kv_per_token == 20_480
    assert answer.kv == 4096 * 20_480
    assert answer.state == 2 * 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert answer.needed == answer.weights + answer.kv + answer.state + answer.scratch
    assert 10e6 < answer.scratch < 500e6
    assert answer.missing == 0


def test_the_largest_context_is_exact() -> None:
    available = 21_000_000_000
    largest = info.fit(available=available).largest_context
    assert 10_000 < largest < info.MAX_POSITIONS
    assert info.fit(largest, available=available).fits
    more = info.fit(largest + 1, available=available)
    assert not more.fits
    assert 0 < more.missing <= 20_480
    assert more.largest_context == largest


def test_no_context_fits() -> None:
    answer = info.fit(available=1 << 30)
    assert not answer.fits
    assert answer.largest_context == 0
    assert answer.missing == answer.needed - (1 << 30)


def test_the_model_limits_the_context_too() -> None:
    assert info.fit(available=1 << 50).largest_context == 262144
    assert info.fit(available=1 << 50, positions=1000).largest_context == 1000
    shallow = dataclasses.replace(SMALL, layers=3)  # no attention layer, so no KV
    assert info.fit(architecture=shallow, available=1 << 50).kv_per_token == 0


@pytest.mark.parametrize("context", [0, -1, True, 1.5, "4096"])
def test_a_context_that_is_none(context: Any) -> None:
    with pytest.raises(InvalidInput, match="expected an integer of at least 1"):
        info.fit(context)


def test_the_sums_are_close_to_what_an_engine_holds(tiny: Path) -> None:
    with Engine.load(tiny, max_context=2048) as engine, engine.session():
        held = engine.memory
        answer = info.fit(2048, architecture=engine.checkpoint.architecture)
    assert held["sessions"] == pytest.approx(answer.kv + answer.state, rel=0.05)
    assert held["scratch"] + held["weights_converted"] == pytest.approx(answer.scratch, rel=0.5)


def test_the_machine() -> None:
    here = info.machine()
    assert json.loads(json.dumps(here)) == here
    assert here["cores"] >= 1
    assert here["cpu"]
    assert 0 < here["memory"]["available"] <= here["memory"]["total"]


def test_a_control_group_limits_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 500000\ninactive_file 100000\nactive_file 50000\n")
    unlimited = tmp_path / "above"
    unlimited.mkdir()
    (unlimited / "memory.max").write_text("max\n")
    (unlimited / "memory.current").write_text("900000\n")
    monkeypatch.setattr("lily.info._control_groups", lambda path: iter([tmp_path, unlimited, tmp_path / "missing"]))
    monkeypatch.setattr("sys.platform", "linux")
    assert info.memory() == {"total": 1_000_000, "available": 450_000}


def test_a_report_of_a_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", SMALL)
    found = info.report(folder, max_context=100)
    assert json.loads(json.dumps(found)) == found
    assert found["model"]["layers"] == 4
    assert found["fit"]["max_context"] == 100
    assert found["fit"]["weights"] == found["model"]["weight_bytes"]
    assert found["download"] is None
    text = "\n".join(info.lines(found))
    assert str(folder) in text
    assert "fits      yes, up to a context of 262,144" in text


def test_a_context_beyond_the_positions_does_not_fit(tmp_path: Path) -> None:
    answer = info.fit(262_145, available=1 << 50)
    assert not answer.fits
    assert (answer.missing, answer.largest_context, answer.positions) == (0, 262_144, 262_144)
    found = info.report(write_checkpoint(tmp_path / "model", SMALL), max_context=300_000)
    assert not found["fit"]["fits"]
    expected = "fits      no, the model has positions for 262,144 tokens; a context of 262,144 would fit"
    assert expected in info.lines(found)


def test_a_folder_is_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("the network was used"))
    folder = write_checkpoint(tmp_path / "model", SMALL)
    for model in (folder, str(folder)):
        with pytest.raises(InvalidInput, match=r"download asks the hub, and .*model is a folder on this machine"):
            info.report(model, download=True)


def test_a_report_of_the_default_model_needs_no_network(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("the network was used"))
    found = info.report()
    assert found["model"] is None
    assert found["fit"]["weights"] == 19_508_789_376
    assert "mlx-community/Qwen3.6-35B-A3B-4bit: not on this machine" in "\n".join(info.lines(found))
    with pytest.raises(HubError, match="its size is known to the hub only and lily is offline"):
        info.report(download=True, offline=True)


def test_download_sizes_are_worded(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lily.hub import DownloadSize

    size = DownloadSize("a/b", "main", 20_000_000_000, 5_000_000_000, 90_000_000_000, Path("/cache"))
    monkeypatch.setattr("lily.hub.download_size", lambda *args: size)
    found = info.report(download=True)
    assert json.loads(json.dumps(found)) == found
    assert info.lines(found)[-1] == "download  5.0 GB of 20.0 GB from a/b@main to /cache (90.0 GB free)"


def test_a_model_that_does_not_fit_is_worded(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for available, words in ((20 * 10**9, "would fit"), (10**9, "no other fits")):
        monkeypatch.setattr("lily.info.memory", lambda have=available: {"total": have, "available": have})
        text = "\n".join(info.lines(info.report(max_context=200_000)))
        assert "fits      no, " in text
        assert words in text


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        info.report(str(tmp_path / "missing"))


def test_download_is_a_bool(tiny: Path) -> None:
    with pytest.raises(InvalidInput, match="download is 'no'; expected True or False"):
        info.report(tiny, download="no")  # type: ignore[arg-type]
