"""Paths that a caller names, and small files that a stranger wrote: both are checked before anything relies on them.

A path is made absolute at once, so that a later os.chdir does not move it. A file is read only if it is a regular one
of a bounded size: a pipe would wait for ever, a device would never end. What a file means is decided where it is read.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import CheckpointError, InvalidInput

MAX_BYTES = 64 << 20  # of a config, a template or a tokenizer; the largest tokenizer in use has 34 MB


def user_path(path: object, name: str = "the path") -> Path:
    """`path` as an absolute path, `~` expanded. Raises InvalidInput for what is no path, or a home that is unknown."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(text := os.fspath(path), str):
        raise InvalidInput(f"{name} is a {type(path).__name__}; expected a str or a pathlib.Path.")
    if not text:
        raise InvalidInput(f"{name} is an empty string; expected the path of a folder, such as '.'.")
    try:
        text.encode()
        return Path(text).expanduser().absolute()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{name} is {text!r}, whose bytes are not UTF-8, and the libraries that read a checkpoint need that; "
            "rename it."
        ) from None
    except RuntimeError:
        raise InvalidInput(
            f"{name} is {text!r}, and no home folder is known for {text.split('/')[0]}; write the path out, or put ./ "
            "before a name that begins with ~."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{name} is {text!r}, relative to a working folder that cannot be found ({error.strerror}); give an "
            "absolute path."
        ) from None


def read_small_file(path: Path, what: str, advice: str) -> bytes:
    """The bytes of a regular file of at most MAX_BYTES. `what` says what was expected there, `advice` what to do.

    Raises CheckpointError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no waiting for a pipe's other end
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise CheckpointError(f"{path}: found no readable regular file, expected {what}; {advice}")
            if found.st_size > MAX_BYTES:
                raise CheckpointError(
                    f"{path}: found {found.st_size:,} bytes, expected at most {MAX_BYTES:,}; {advice}"
                )
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(MAX_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}), expected {what}; check the path and its permissions"
        ) from None
