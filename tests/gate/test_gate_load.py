"""Gate.load: a classifier from a folder or from a repository of the hub, by the rules of the Engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from encoders import GATE_NANO
from fake_hub import COMMIT, FakeHub, serve
from huggingface_hub import constants

import lily
from lily import Gate, cli
from lily.errors import CheckpointError, HubError, InvalidInput

REPO = "someone/small-classifier"
TEXT = "Please write to Hanne Mülder, hanne.mulder@vlinderpost.nl."


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub that has gate-nano's files, and an empty cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("LILY_OFFLINE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    files = Path(shutil.copytree(GATE_NANO, tmp_path / "served"))
    with serve(files) as fake:
        monkeypatch.setattr(constants, "ENDPOINT", fake.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield fake


def test_a_repository_is_fetched_once(hub: FakeHub, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    with Gate.load(REPO, progress=lambda *bytes_: done.append(bytes_)) as gate:
        assert gate.classify(TEXT).masked == lily.Gate().classify(TEXT).masked
    assert done[-1][0] == done[-1][1] > 10_000_000
    asked = len(hub.requests)
    with Gate.load(REPO, offline=True), Gate.load(REPO, revision=COMMIT):
        pass
    text = tmp_path / "request.txt"
    text.write_text(TEXT, encoding="utf-8")
    assert cli.main(["gate", str(text), "--model", REPO, "--offline", "--mask"]) == 0
    assert capsys.readouterr().out.startswith("Please write to [PERSON_1]")
    assert len(hub.requests) == asked


def test_what_cannot_be_had(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HubError, match="offline"):
        Gate.load(REPO, offline=True)
    assert hub.requests == []
    with pytest.raises(CheckpointError, match="no name of a repository"):
        Gate.load("no such thing")
    with pytest.raises(CheckpointError):
        Gate.load(tmp_path)
    with pytest.raises(InvalidInput, match="revision"):
        Gate.load(GATE_NANO, revision="main")
    text = tmp_path / "request.txt"
    text.write_text(TEXT, encoding="utf-8")
    assert cli.main(["gate", str(text), "--revision", "main"]) == 1
    assert "--revision belongs to --model" in capsys.readouterr().err


def test_a_folder_needs_no_hub(hub: FakeHub) -> None:
    with Gate.load(GATE_NANO) as one, Gate.load(str(GATE_NANO), offline=True) as other:
        assert one.classify(TEXT).masked == other.classify(TEXT).masked
    assert hub.requests == []
