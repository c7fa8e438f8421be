"""Finding and downloading checkpoints: offline is offline, the cache is enough, and every failure says what to do."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from checkpoint_files import SMALL
from fake_hub import COMMIT, FakeHub, serve
from huggingface_hub import constants, errors

from lily import cli, hub
from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, HubError, InvalidInput
from lily.location import locate
from lily.synth import write_checkpoint

REPO = "someone/small-model"
PINNED = "38740b847e4cb78f352aba30aa41c76e08e6eb46"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two shards, with files that lily does not need."""
    folder = write_checkpoint(tmp_path_factory.mktemp("repository") / "files", SMALL, seed=4, shard_bytes=100_000)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    (folder / "README.md").write_text("# a model", encoding="utf-8")
    (folder / "picture.png").write_bytes(bytes(1000))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and an environment that says nothing about being offline."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("LILY_OFFLINE", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "hub cache"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach the network fails the test, below every HTTP library."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        pytest.fail(f"the network was used: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def server(sound: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    files = Path(shutil.copytree(sound, tmp_path / "served"))
    with serve(files) as fake:
        monkeypatch.setattr(constants, "ENDPOINT", fake.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield fake


def fill_cache(cache: Path, files: Path, repo: str, commit: str, ref: str | None = None) -> Path:
    """The layout of the hub cache: blobs, links to them, and a ref for a branch."""
    storage = cache / f"models--{repo.replace('/', '--')}"
    snapshot = storage / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (storage / "blobs").mkdir()
    for number, path in enumerate(sorted(files.iterdir())):
        blob = storage / "blobs" / f"{number:040x}"
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", blob.name))
    if ref is not None:
        (storage / "refs").mkdir()
        (storage / "refs" / ref).write_text(commit, encoding="utf-8")
    return snapshot


# Local folders


def test_a_folder_is_itself(sound: Path, cache: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate(sound) == sound
    assert locate(str(sound), offline=True) == sound
    monkeypatch.chdir(sound.parent)
    assert locate("files") == sound
    monkeypatch.setenv("HOME", str(sound.parent))
    assert locate("~/files") == sound


def test_a_folder_named_like_a_repository_wins(
    sound: Path, cache: Path, no_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sound, tmp_path / REPO)
    monkeypatch.chdir(tmp_path)
    assert locate(REPO) == tmp_path / REPO


def test_a_folder_has_no_revision(sound: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'main', expected none for the local path .*; leave revision out"):
        locate(sound, "main")


@pytest.mark.parametrize(
    "text",
    ["./model", "/no/such/model", "../x", "~/no-such", "model", "a/b/c", "a\\b", "a/b/", "a/-b", "x\0y", "y" * 5000],
)
def test_a_path_that_does_not_exist_says_both_readings(text: str, cache: Path, no_network: None) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate(text)
    message = str(caught.value)
    assert "no such folder" in message
    assert "no name of a repository either" in message
    assert "OWNER/NAME such as mlx-community/Qwen3.6-35B-A3B-4bit" in message


def test_a_path_object_is_never_a_repository(cache: Path, no_network: None) -> None:
    missing = locate(Path(REPO))
    with pytest.raises(CheckpointError, match="found nothing there"):
        open_checkpoint(missing)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, "the model is a NoneType; expected a str or a pathlib.Path"),
        (5, "the model is a int; expected a str"),
        (b"tiny", "the model is a bytes; expected a str"),
        ("~nobody-has-this-name/x", "no home folder is known for ~nobody-has-this-name; write the path out"),
    ],
)
def test_what_is_no_name(model: Any, words: str, cache: Path, no_network: None) -> None:
    with pytest.raises(InvalidInput, match=words):
        locate(model)


@pytest.mark.parametrize(
    "command",
    [
        ["info", REPO],
        ["generate", "--model", REPO, "--max-tokens", "1", "Hi"],
        ["bench", REPO, "--lengths", "8", "--rounds", "1", "--ignore-load"],
        ["verify", REPO, "--against", "cpu", "--text", "{}"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_takes_a_revision_and_stays_offline(
    command: list[str], sound: Path, cache: Path, no_network: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fill_cache(cache, sound, REPO, PINNED)
    (tmp_path / "text").write_text("a b c", encoding="utf-8")
    arguments = [part.format(tmp_path / "text") for part in command]
    assert cli.main([*arguments, "--offline", "--revision", PINNED]) == 0, capsys.readouterr().err
    if command[0] != "info":  # which says that the model is not here
        assert cli.main([*arguments, "--offline", "--revision", "other"]) == 1
        assert "lily is offline" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "hint"), [("Nano", True), ("NANO", True), ("nanoo", True), ("gemma", False)])
def test_an_embedded_model_is_hinted_at(text: str, hint: bool, cache: Path, no_network: None) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate(text)
    assert ("did you mean nano, which comes with lily?" in str(caught.value)) is hint


@pytest.mark.parametrize("revision", [5, b"main", ""])
def test_what_is_no_revision(revision: Any, cache: Path, no_network: None) -> None:
    for call in (locate, hub.fetch, hub.download_size):
        with pytest.raises(InvalidInput, match=r"revision is .*, expected a commit, branch or tag"):
            call(REPO, revision)


def test_an_empty_name() -> None:
    with pytest.raises(InvalidInput, match="empty string, expected a folder or a repository"):
        locate("")


# The cache, without the network


def test_the_pinned_default_is_found_in_the_cache(sound: Path, cache: Path, no_network: None) -> None:
    snapshot = fill_cache(cache, sound, hub.DEFAULT_REPO, PINNED)
    assert hub.DEFAULT_REPO == "mlx-community/Qwen3.6-35B-A3B-4bit"
    for offline in (None, True, False):
        assert locate(hub.DEFAULT_REPO, offline=offline) == snapshot
    assert hub.fetch() == snapshot
    open_checkpoint(snapshot).close()


def test_a_branch_is_found_in_the_cache(sound: Path, cache: Path, no_network: None) -> None:
    snapshot = fill_cache(cache, sound, REPO, COMMIT, ref="main")
    assert locate(REPO) == snapshot
    assert locate(REPO, COMMIT) == snapshot
    size = hub.download_size(REPO)
    assert size.missing == 0
    assert size.total == sum(p.stat().st_size for p in sound.iterdir() if p.suffix in (".json", ".safetensors"))


@pytest.mark.parametrize("switch", ["argument", "LILY_OFFLINE", "HF_HUB_OFFLINE"])
@pytest.mark.parametrize("missing", ["everything", "config.json", "model-00002-of-", "all shards", "blob"])
def test_offline_and_incomplete(
    switch: str, missing: str, sound: Path, cache: Path, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if switch != "argument":
        monkeypatch.setenv(switch, "1")
    if missing != "everything":
        snapshot = fill_cache(cache, sound, REPO, COMMIT, ref="main")
        pattern = {"all shards": "model*.safetensors*", "blob": "model-00001-of-*"}.get(missing, missing + "*")
        for path in snapshot.glob(pattern):
            (path.resolve() if missing == "blob" else path).unlink()
    with pytest.raises(HubError) as caught:
        hub.fetch(REPO, offline=True if switch == "argument" else None)
    message = str(caught.value)
    assert f"{REPO}@main: found no complete copy in {cache}" in message
    assert "lily is offline" in message
    assert f"there is no folder {REPO!r}" in message
    assert "go online once" in message


def test_offline_sizes_are_refused(cache: Path, no_network: None) -> None:
    with pytest.raises(HubError, match=r"its size is known to the hub only and lily is offline.*go online"):
        hub.download_size(offline=True)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("", False)])
def test_switches(value: str, expected: bool, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LILY_OFFLINE", value)
    assert hub.is_offline() is expected
    assert hub.is_offline(False) is False
    assert hub.is_offline(True) is True
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.is_offline(False) is True


@pytest.mark.parametrize("offline", ["no", "", 0, 1])
def test_offline_is_a_bool(offline: Any, sound: Path, cache: Path, no_network: None) -> None:
    for call in (
        lambda: hub.is_offline(offline),
        lambda: locate(sound, offline=offline),
        lambda: hub.fetch(REPO, offline=offline),
        lambda: hub.download_size(REPO, offline=offline),
    ):
        with pytest.raises(InvalidInput, match=r"offline is .*; expected True or False"):
            call()


def test_a_switch_that_is_no_switch(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LILY_OFFLINE", "maybe")
    with pytest.raises(InvalidInput, match="LILY_OFFLINE is 'maybe', expected 1 or 0"):
        hub.is_offline()


# Downloads, from a hub on this machine


def test_download_takes_what_is_needed_and_reports_progress(sound: Path, server: FakeHub, cache: Path) -> None:
    needed = {p.name: p for p in sound.iterdir() if p.suffix in (".json", ".safetensors")}
    total = sum(path.stat().st_size for path in needed.values())
    size = hub.download_size(REPO)
    assert (size.total, size.missing) == (total, total)
    assert not any(request.startswith("GET") and "/resolve/" in request for request in server.requests), "a dry run"
    seen: list[tuple[int, int]] = []
    folder = hub.fetch(REPO, progress=lambda done, of: seen.append((done, of)))
    assert {path.name for path in folder.iterdir()} == set(needed)
    assert all((folder / name).read_bytes() == path.read_bytes() for name, path in needed.items())
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    open_checkpoint(folder).close()
    requests = len(server.requests)
    assert hub.fetch(REPO) == folder
    assert hub.download_size(REPO).missing == 0
    assert len(server.requests) == requests, "a complete copy needs no request"


def test_download_is_quiet_with_progress(server: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.fetch(REPO, progress=lambda done, of: None)
    assert capfd.readouterr() == ("", "")


def test_download_completes_what_is_there(sound: Path, server: FakeHub, cache: Path) -> None:
    folder = hub.fetch(REPO)
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    size = shard.stat().st_size
    shard.resolve().unlink()
    server.requests.clear()
    found = hub.download_size(REPO)
    assert found.missing == size
    assert hub.fetch(REPO) == folder
    fetched = [request for request in server.requests if request.startswith("GET") and "/resolve/" in request]
    assert len(fetched) == 1
    open_checkpoint(folder).close()


def test_an_interrupted_download_goes_on(server: FakeHub, cache: Path) -> None:
    server.cut = next(server.folder.glob("model-00001-of-*")).name
    folder = hub.fetch(REPO)
    assert [request for request in server.requests if "model-00001" in request and request.startswith("GET")] == [
        f"GET /{REPO}/resolve/{COMMIT}/{next(server.folder.glob('model-00001-of-*')).name}"
    ] * 2
    open_checkpoint(folder).close()


def test_a_full_disk_is_seen_before(server: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    total = hub.download_size(REPO).total
    with pytest.raises(HubError) as caught:
        hub.fetch(REPO)
    assert f"needs {total:,} bytes, found 1,000 free" in str(caught.value)
    assert f"free {total - 1000:,} bytes, or set HF_HOME" in str(caught.value)


def test_a_repository_that_is_no_checkpoint(server: FakeHub) -> None:
    for path in server.folder.glob("model*"):
        path.unlink()
    with pytest.raises(HubError, match=r"lacks model\*\.safetensors, expected an MLX checkpoint; use mlx-community"):
        hub.fetch(REPO)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (404, "RepoNotFound", ["has no such repository, or it is private", "there is no folder", "check the spelling"]),
        (404, "RevisionNotFound", ["no such revision", "expected a commit, branch or tag", "correct it or drop it"]),
        (403, "GatedRepo", ["is gated", f"https://huggingface.co/{REPO}", "hf auth login"]),
        (403, "", ["HTTP 403", "expected the files", "try again later"]),
        (418, "", ["HTTP 418", "expected the files", "try again later"]),
    ],
)
def test_answers_of_the_hub(status: int, code: str, says: list[str], server: FakeHub) -> None:
    server.refuse = (status, code)
    for call in (hub.fetch, hub.download_size):
        with pytest.raises(HubError) as caught:
            call(REPO)
        assert f"{REPO}@main" in str(caught.value)
        for words in says:
            assert words in str(caught.value)


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the discard port: nobody listens
    with pytest.raises(HubError, match=r"could not be reached.*expected an answer; check the network"):
        hub.fetch(REPO)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "became full during the download, found [0-9,]+ bytes free"),
        (PermissionError(13, "Permission denied"), "cannot be written .Permission denied., expected write access"),
        (ConnectionResetError("reset"), "could not be reached .ConnectionResetError: reset"),
        (errors.LocalEntryNotFoundError("gone"), "could not be reached"),
        (RuntimeError("xet: broken"), "could not be reached .RuntimeError: xet: broken"),
    ],
)
def test_failures_during_the_download(
    error: Exception, says: str, server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    original = huggingface_hub.snapshot_download

    def fail(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dry_run") or kwargs.get("local_files_only"):
            return original(*args, **kwargs)
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(HubError, match=says):
        hub.fetch(REPO)


def test_an_exception_of_the_callback_is_not_the_hubs(server: FakeHub) -> None:
    def progress(done: int, total: int) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        hub.fetch(REPO, progress=progress)
