"""Models on this machine: those that come with lily, local folders, and repositories of the Hugging Face hub.

The only file that knows huggingface_hub. A repository that is complete in the cache is used as it is, without one
network call; it is downloaded only when files are missing (complete ones are kept, a broken connection is taken up
again where it broke), and never when lily is offline. A branch is therefore looked up once: name a commit to move on.
What is in the folder is checkpoint.py's business.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .architecture import DEFAULT_REPO, DEFAULT_REVISION
from .arguments import callback, switch
from .errors import CheckpointError, HubError, InvalidInput
from .local_files import user_path
from .shard_writer import Progress
from .shards import INDEX, missing_numbers
from .strict_json import read_object

if TYPE_CHECKING:
    from huggingface_hub.file_download import DryRunFileInfo

__all__ = [
    "DEFAULT_REPO",
    "DEFAULT_REVISION",
    "EMBEDDED",
    "FILES",
    "DownloadSize",
    "download_size",
    "fetch",
    "is_folder",
    "is_offline",
    "local_folder",
]

FILES = [
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", INDEX,
    "model*.safetensors",
]  # fmt: skip
EMBEDDED = {"nano": Path(__file__).resolve().parent / "models" / "nano"}
"""The decoders that come with lily, by the name that means them everywhere; a folder of that name is "./nano"."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SWITCH = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "": False,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True)
class DownloadSize:
    """What a download would take: bytes of all files, bytes that are still missing, and the free bytes of the cache."""

    repo: str
    revision: str
    total: int
    missing: int
    free: int
    cache: Path


def local_folder(model: str | os.PathLike[str], revision: str | None = None) -> Path | None:
    """The folder of a model if it is on this machine, None for a repository that is not complete in the cache.

    Never touches the network. Raises CheckpointError if it is neither, InvalidInput for a revision of a local folder.
    """
    if model == "":
        raise InvalidInput(f"the model is an empty string, expected a folder or a repository such as {DEFAULT_REPO}")
    path = _path(model)
    text = os.fspath(model)
    if path in EMBEDDED.values() and not _exists(path / "config.json"):
        raise CheckpointError(
            f"the embedded model {path.name} is not in {path}: this installation is incomplete; install lily again, or "
            f"give the folder of a checkpoint (one called {path.name} is ./{path.name})"
        )
    if is_folder(model):
        if revision is not None:
            raise InvalidInput(f"revision is {revision!r}, expected none for the local path {path}; leave revision out")
        return path
    if not _REPOSITORY.fullmatch(text):
        close = difflib.get_close_matches(text.casefold(), EMBEDDED, 1)
        hint = f" (did you mean {close[0]}, which comes with lily?)" if close else ""
        raise CheckpointError(
            f"{text!r}: found no such folder{hint}, and it is no name of a repository either, expected an existing "
            f"folder or OWNER/NAME such as {DEFAULT_REPO}; check the spelling (relative paths start at {Path.cwd()})"
        )
    return _cached(text, _revision(text, revision))


def is_folder(model: str | os.PathLike[str]) -> bool:
    """Whether a model is no repository: a Path, the name of something that is there, or that of an embedded model."""
    return isinstance(model, os.PathLike) or _exists(_path(model))


def _path(model: str | os.PathLike[str]) -> Path:
    embedded = EMBEDDED.get(model) if isinstance(model, str) else None
    return user_path(model, "the model") if embedded is None else embedded


def fetch(
    repo: str = DEFAULT_REPO,
    revision: str | None = None,
    offline: bool | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of a repository in the hub cache, downloaded if it is not complete there.

    `revision` is a commit, branch or tag; None is the pinned commit of DEFAULT_REPO and the main branch of others.
    `offline` True forbids the network; None asks LILY_OFFLINE and HF_HUB_OFFLINE. `progress` is called with bytes done
    and bytes in all; without it the hub library shows its own bars on a terminal. Raises HubError.
    """
    callback(progress, "progress")
    revision, forbidden = _revision(repo, revision), is_offline(offline)
    cached = _cached(repo, revision)
    if cached is not None:
        return cached
    if forbidden:
        raise HubError(
            f"{repo}@{revision}: found no complete copy in {_cache()}, and lily is offline (offline=True, LILY_OFFLINE "
            f"or HF_HUB_OFFLINE), expected the files there{_not_a_folder(repo)}; go online once, or give the folder of "
            "a copy"
        )
    size = download_size(repo, revision, offline=False)
    if size.missing > size.free:
        raise HubError(
            f"{repo}@{revision}: the download needs {size.missing:,} bytes, found {size.free:,} free in {size.cache}; "
            f"free {size.missing - size.free:,} bytes, or set HF_HOME to a folder on another disk"
        )
    from huggingface_hub import snapshot_download

    with _explained(repo, revision):
        bars = _reporter(progress, size.missing) if progress is not None else None
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=FILES, tqdm_class=bars))
    if missing := _missing(folder):
        raise HubError(
            f"{repo}@{revision}: the repository lacks {', '.join(missing)}, expected an MLX checkpoint; use "
            f"{DEFAULT_REPO} or another checkpoint of the same architecture"
        )
    return folder


def download_size(repo: str = DEFAULT_REPO, revision: str | None = None, offline: bool | None = None) -> DownloadSize:
    """What `fetch` would download, without doing it: from the cache if that is complete, else from the hub.

    Raises HubError, also where the answer is not in the cache and lily is offline.
    """
    revision, forbidden = _revision(repo, revision), is_offline(offline)
    cache = _cache()
    free = shutil.disk_usage(_existing(cache)).free
    cached = _cached(repo, revision)
    if cached is not None:
        total = sum(file.stat().st_size for file in cached.iterdir() if any(file.match(p) for p in FILES))
        return DownloadSize(repo, revision, total, 0, free, cache)
    if forbidden:
        raise HubError(
            f"{repo}@{revision}: its size is known to the hub only and lily is offline, expected a network or a "
            f"complete copy in {cache}; go online and ask again"
        )
    from huggingface_hub import snapshot_download

    with _explained(repo, revision):
        files: list[DryRunFileInfo] = snapshot_download(
            repo, revision=revision, allow_patterns=FILES, dry_run=True, tqdm_class=_reporter(None, 0)
        )
    total = sum(file.file_size or 0 for file in files)
    missing = sum(file.file_size or 0 for file in files if file.will_download)
    return DownloadSize(repo, revision, total, missing, free, cache)


def is_offline(offline: bool | None = None) -> bool:
    """Whether the network is forbidden: the argument, else LILY_OFFLINE; HF_HUB_OFFLINE forbids it in any case."""
    from huggingface_hub import constants

    wanted = _switch("LILY_OFFLINE") if offline is None else switch(offline, "offline")
    return bool(constants.HF_HUB_OFFLINE) or _switch("HF_HUB_OFFLINE") or wanted


def _switch(name: str) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value not in _SWITCH:
        raise InvalidInput(f"the environment variable {name} is {value!r}, expected 1 or 0; set one of them")
    return _SWITCH[value]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or a null byte in it
        return False


def _revision(repo: str, revision: str | None) -> str:
    if not isinstance(repo, str):
        raise InvalidInput(f"the repository is a {type(repo).__name__}, expected a str such as {DEFAULT_REPO!r}")
    if revision is not None:
        if revision == "" or not isinstance(revision, str):
            raise InvalidInput(f"revision is {revision!r}, expected a commit, branch or tag as a str, or None")
        return revision
    return DEFAULT_REVISION if repo == DEFAULT_REPO else "main"


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser()


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _cached(repo: str, revision: str) -> Path | None:
    """The folder of a snapshot that is complete in the cache, found without the network."""
    from huggingface_hub import errors, snapshot_download

    try:
        found = snapshot_download(repo, revision=revision, allow_patterns=FILES, local_files_only=True)
    except errors.LocalEntryNotFoundError:
        return None
    except (errors.HFValidationError, OSError) as error:
        raise HubError(_explanation(f"{repo}@{revision}", repo, error)) from error
    return Path(found) if not _missing(Path(found)) else None


def _missing(folder: Path) -> list[str]:
    """Names of files that a checkpoint needs and a snapshot does not have, as far as names can tell."""
    names = {entry.name for entry in folder.iterdir() if entry.exists()}  # a link whose blob is gone does not exist
    missing = {"config.json"} - names
    if INDEX in names:
        listed = read_object(folder / INDEX).get("weight_map", {})
        missing |= set(map(str, listed.values())) - names if isinstance(listed, dict) else set()
    elif not any(Path(name).match("model*.safetensors") for name in names):
        missing.add("model*.safetensors")
    return sorted(missing | set(missing_numbers(names)))


def _reporter(progress: Progress | None, total: int) -> Any:
    """A progress bar class for the hub library that draws nothing and reports the bytes written to `progress`."""
    from huggingface_hub.utils.tqdm import tqdm

    done = 0

    class Reporter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The library also makes bars for bytes received (".transfer") and for files; one of the three is enough.
            self._counts = kwargs.get("name") == "huggingface_hub.snapshot_download"
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal done
            if self._counts and progress is not None and n:
                with self.get_lock():
                    done += int(n)
                    progress(min(done, total), total)
            return None

    return Reporter


def _not_a_folder(repo: str) -> str:
    return f" (there is no folder {repo!r} in {Path.cwd()} either)"


@contextmanager
def _explained(repo: str, revision: str) -> Iterator[None]:
    """Turns what the hub library raises into a HubError that says what to do."""
    from huggingface_hub import errors

    name = f"{repo}@{revision}"
    try:
        yield
    except (errors.HFValidationError, OSError, errors.EntryNotFoundError, RuntimeError) as error:
        raise HubError(_explanation(name, repo, error)) from error
    except Exception as error:
        # The transport's own exceptions (timeouts, resets) have no base class that the hub library exports.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise
        raise HubError(_explanation(name, repo, error)) from error


def _explanation(name: str, repo: str, error: BaseException) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.DryRunError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name}: the repository is gated, expected an account with access; accept its conditions at "
            f"https://huggingface.co/{repo} and log in with `hf auth login`"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"{name}: the hub has no such repository, or it is private{_not_a_folder(repo)}, expected an existing "
            f"repository such as {DEFAULT_REPO} or a folder; check the spelling, or log in with `hf auth login`"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{name}: the repository has no such revision, expected a commit, branch or tag; correct it or drop it"
    if isinstance(error, errors.HfHubHTTPError):
        return f"{name}: the hub answered with HTTP {error.response.status_code}, expected the files; try again later"
    if isinstance(error, errors.HFValidationError):
        return f"{name}: is no valid name of a repository, expected OWNER/NAME such as {DEFAULT_REPO}; correct it"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(_existing(_cache())).free
        return (
            f"{name}: the disk became full during the download, found {free:,} bytes free in {_cache()}, expected room "
            "for the rest; free some and load again: files that are complete are kept"
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{name}: {_cache()} cannot be written ({error.strerror}), expected write access; set HF_HOME"
    return (
        f"{name}: the hub could not be reached ({type(error).__name__}: {str(error)[:200]}), expected an answer; check "
        "the network and load again: files that are complete are kept"
    )
