"""From what the user names to a folder on this machine: an embedded model, a local path, or a repository of the hub.

The door to the hub for whatever opens a model; the Gate too, which must not know how a network is used. What the hub
is, and when it is asked, is hub.py's business.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import hub
from .shard_writer import Progress


def locate(
    model: str | os.PathLike[str],
    revision: str | None = None,
    offline: bool | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of a model, absolute: the embedded one of that name, `model` itself, or the repository of that name,
    fetched.

    Raises CheckpointError or HubError if it is neither, InvalidInput for a revision of a local folder.
    """
    forbidden = hub.is_offline(offline)
    path = hub.local_folder(model, revision)
    return hub.fetch(str(model), revision, forbidden, progress) if path is None else path
