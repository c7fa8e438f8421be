"""The keys of an audit log: where they lie, who may read them, and how a new one comes after an old one.

A key file has one line a key, "id hex", the last one in use; it is written once with mode 0600 and replaced whole on
rotation. Given keys (an argument, LILY_AUDIT_KEY) take its place. What keys are used for is audit.py's business.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import AuditError

VARIABLE = "LILY_AUDIT_KEY"
_SIZE = 32


@dataclass(frozen=True, repr=False)
class Key:
    """A secret and the name under which records refer to it."""

    id: str
    secret: bytes

    @staticmethod
    def of(secret: bytes) -> Key:
        """The key of these bytes. Raises AuditError if there are too few of them."""
        if len(secret) < _SIZE // 2:
            raise AuditError(f"the audit key has {len(secret)} bytes; expected at least {_SIZE // 2}, better {_SIZE}.")
        return Key(hashlib.sha256(b"lily audit key\0" + secret).hexdigest()[:12], secret)


def given(key: bytes | None, old_keys: Sequence[bytes]) -> list[Key] | None:
    """The keys that the caller or the environment names, the one in use last; None where the key file counts."""
    if key is None:
        text = os.environ.get(VARIABLE, "").strip()
        if not text:
            return None
        return [Key.of(_bytes(part, VARIABLE)) for part in text.split(",")]
    return [Key.of(secret) for secret in (*old_keys, key)]


def read(path: Path) -> list[Key]:
    """The keys of a file, the one in use last. Raises AuditError: missing, readable by others, or no key file."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = file.read().decode("ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise AuditError(f"the audit key {path} cannot be read: {error}.") from None
    if os.name == "posix" and mode & 0o077:
        raise AuditError(
            f"the audit key {path} has mode {mode:04o}, so that others can read it; expected 0600: chmod 600."
        )
    keys = []
    for number, line in enumerate(filter(None, lines), 1):
        name, _, digits = line.partition(" ")
        key = Key.of(_bytes(digits, f"line {number} of {path}"))
        if key.id != name:
            raise AuditError(f"line {number} of {path} names the key {name}, but it holds {key.id}; restore the file.")
        keys.append(key)
    if not keys:
        raise AuditError(f"the audit key {path} is empty; restore the file.")
    return keys


def create(path: Path) -> None:
    """A new key in a new file; a file that is there already stays, also if another process wins the race."""
    name = _written(path, [Key.of(secrets.token_bytes(_SIZE))])
    try:
        os.link(name, path)  # atomic, and refuses to replace
    except FileExistsError:
        pass
    except OSError as error:
        raise AuditError(f"the audit key {path} cannot be written: {error}.") from None
    finally:
        Path(name).unlink(missing_ok=True)


def add(path: Path, key: Key) -> None:
    """A key behind those of the file."""
    name = _written(path, [*read(path), key])
    try:
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise AuditError(f"the audit key {path} cannot be written: {error}.") from None


def fresh() -> Key:
    """A new random key."""
    return Key.of(secrets.token_bytes(_SIZE))


def _written(path: Path, keys: Sequence[Key]) -> str:
    text = "".join(f"{key.id} {key.secret.hex()}\n" for key in keys)
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            if name:
                Path(name).unlink()
        raise AuditError(f"the audit key {path} cannot be written: {error}.") from None
    return name


def _bytes(text: str, place: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise AuditError(f"{place} is no key; expected hexadecimal digits, 64 for 32 bytes.") from None
