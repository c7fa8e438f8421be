"""The record of what left and what was refused: SQLite, one row a decision, each sealed over the one before it.

A row holds no value and no text, only keyed digests of them, so that "did this number leave?" has an answer and the
log leaks nothing. The seal is HMAC-SHA256 over the previous seal and the row; the last one is the head. It also stands,
sealed, in a row of its own, and can be kept elsewhere: a log that was cut shows against it. Keys are audit_keys.py's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..arguments import switch
from ..errors import AuditError, InvalidInput
from ..local_files import user_path
from . import audit_keys
from .audit_keys import Key
from .policy import form

_T = TypeVar("_T")
_FIRST = "0" * 64  # what the seal of the first row goes over
_WAIT = 60.0  # seconds for another process's write
_TABLES = """
CREATE TABLE records (
    seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, key TEXT NOT NULL,
    seal TEXT NOT NULL
);
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, seal TEXT NOT NULL, proof TEXT NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log: how many records there are and the seal of the last. Its text can be kept anywhere."""

    seq: int
    seal: str

    def __str__(self) -> str:
        return f"lily-audit:{self.seq}:{self.seal}"

    @staticmethod
    def parse(text: str) -> Head:
        """The head that `str(head)` wrote. Raises InvalidInput."""
        parts = text.strip().split(":")
        if len(parts) != 3 or parts[0] != "lily-audit" or not parts[1].isdecimal() or len(parts[2]) != 64:
            raise InvalidInput(f"{text.strip()[:80]!r} is no head of an audit log; expected lily-audit:NUMBER:SEAL.")
        return Head(int(parts[1]), parts[2])


@dataclass(frozen=True, slots=True)
class Record:
    """One row. `body` has digests, counts, reasons and names, never a value."""

    seq: int
    time: float
    kind: str
    body: Mapping[str, Any]
    key: str
    seal: str


class AuditLog:
    """An audit log in one file. Safe for many threads and processes at once, and across fork().

    path        the database; made with mode 0600 if it is not there (and `create` says so)
    key         32 secret bytes. Left out: LILY_AUDIT_KEY (hex; several with commas, the one in use last), else the
                file `<path>.key`, made with mode 0600 beside a new database
    old_keys    given keys that were in use before
    create      whether a missing database is made; else it is an AuditError

    Raises AuditError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: bytes | None = None,
        old_keys: Sequence[bytes] = (),
        create: bool = True,
    ) -> None:
        self.path = user_path(path, "the audit log")
        self.key_path = self.path.with_name(self.path.name + ".key")
        self._given = audit_keys.given(key, old_keys)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._closed = False
        if self.path.exists() and not self.path.is_file():
            kind = "a folder" if self.path.is_dir() else "no regular file"
            raise AuditError(f"{path} is {kind}; expected the database file of an audit log.")
        new = not self.path.exists()
        if not switch(create, "create") and new:
            raise AuditError(f"there is no audit log {path}.")
        if new:
            self._make()
        self._keys = self._read_keys()
        self._transaction(self._begin_log)

    def append(
        self, kind: str, *, text: str, values: Sequence[str] = (), details: Mapping[str, Any] | None = None
    ) -> int:
        """Records a decision and gives its number. When it returns, the record is on the disk.

        Of `text` and `values` only keyed digests are kept. `details` are written as they are and must hold no values.
        Raises AuditError if it is not recorded; then nothing may leave.
        """
        digest = self._digest
        body = dict(details or {})

        def write(connection: sqlite3.Connection) -> int:
            key = self._current(connection)
            body["text"] = digest(key, text)
            body["characters"] = len(text)
            body["values"] = sorted({digest(key, value) for value in values})
            return self._write(connection, key, kind, body)

        return self._transaction(write)

    def head(self) -> Head:
        """The end of the log, to be kept elsewhere: `verify(head)` then finds a cut tail, or another log."""
        return self._transaction(self._last)

    def verify(self, head: Head | None = None) -> Head:
        """Reads every record and gives the head.

        Raises AuditError that names the first record that was changed, added, moved or taken away, also at the end: the
        log's own head row, and `head`, must be met. Without `head` an older copy of the whole file cannot be told.
        """
        connection = self._open()
        with self._lock, self._errors("be read"):
            connection.execute("BEGIN")
            try:
                return self._verified(connection, head)
            finally:
                connection.execute("ROLLBACK")

    def records(self) -> Iterator[Record]:
        """Every record, oldest first. Not verified."""
        at = 0
        while True:
            connection = self._open()
            with self._lock, self._errors("be read"):
                rows = connection.execute(
                    "SELECT seq, time, kind, body, key, seal FROM records WHERE seq > ? ORDER BY seq LIMIT 500", (at,)
                ).fetchall()
            if not rows:
                return
            for row in rows:
                yield Record(row[0], row[1], row[2], json.loads(row[3]), row[4], row[5])
            at = rows[-1][0]

    def export(self) -> Iterator[str]:
        """The log as JSON lines: the records, then the head."""
        last = Head(0, _FIRST)
        for record in self.records():
            last = Head(record.seq, record.seal)
            yield json.dumps(
                {
                    "seq": record.seq,
                    "time": record.time,
                    "kind": record.kind,
                    **record.body,
                    "key": record.key,
                    "seal": record.seal,
                },
                ensure_ascii=False,
            )
        yield json.dumps({"head": str(last)})

    def find(self, value: str) -> list[int]:
        """The numbers of the records whose text held this value (in any case, width or spacing), under any key."""
        digests = {self._digest(key, value) for key in self._keys}
        return [record.seq for record in self.records() if digests & set(record.body.get("values", ()))]

    def rotate(self, new_key: bytes | None = None) -> None:
        """A new key for the records to come; the old ones keep theirs, which must be kept to verify them.

        With a key file the new key is written into it (`new_key` or a random one); with given keys `new_key` is needed,
        and must be given, with the old ones as `old_keys`, from now on.
        """
        if self._given is not None and new_key is None:
            raise AuditError("rotate() needs new_key: the key of this log is given, not in a file.")
        key = audit_keys.fresh() if new_key is None else Key.of(new_key)
        if key.id in {known.id for known in self._keys}:
            raise AuditError("the new audit key was in use before; expected another one.")

        def write(connection: sqlite3.Connection) -> None:
            old = self._current(connection)
            # The file first: a key without a record is nothing, a record without its key is lost.
            if self._given is None:
                audit_keys.add(self.key_path, key)
            self._write(connection, old, "rotate", {"next": key.id})

        self._transaction(write)
        self._keys = [*self._keys, key]

    def close(self) -> None:
        """Closes the file. Later calls raise AuditError."""
        with self._lock:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<AuditLog {self.path}>"

    def _make(self) -> None:
        """The key, then the empty database; another process may be doing the same."""
        if self._given is None:
            audit_keys.create(self.key_path)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise AuditError(f"the audit log {self.path} cannot be made: {error}.") from None

    def _read_keys(self) -> list[Key]:
        return audit_keys.read(self.key_path) if self._given is None else self._given

    def _open(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise AuditError(f"the audit log {self.path} is closed.")
            if self._connection is None or self._process != os.getpid():
                # A connection of before fork() is its parent's: it is dropped, never closed or used here.
                _inherited.append(self._connection)
                with self._errors("be opened"):
                    self._connection = sqlite3.connect(
                        self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False
                    )
                    self._connection.execute("PRAGMA journal_mode = WAL")
                    self._connection.execute("PRAGMA synchronous = FULL")
                self._process = os.getpid()
            return self._connection

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            full = "; make room on the disk: nothing leaves without its record" if "full" in str(error) else ""
            raise AuditError(f"the audit log {self.path} cannot {what}: {error}{full}.") from None

    def _transaction(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        connection = self._open()
        with self._lock, self._errors("be written"):
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result

    def _begin_log(self, connection: sqlite3.Connection) -> None:
        """The tables and the first record, in a database that has none."""
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "records" in tables:
            return
        if tables:
            raise AuditError(f"{self.path} is a database of something else; expected an audit log or no file.")
        for statement in _TABLES.split(";"):  # executescript would commit
            connection.execute(statement)
        self._write(connection, self._keys[-1], "begin", {}, Head(0, _FIRST))

    def _last(self, connection: sqlite3.Connection) -> Head:
        """The head as the log has it, checked against its proof and the last row."""
        row = connection.execute("SELECT seq, seal, proof FROM head").fetchone()
        last = connection.execute("SELECT seq, seal, key FROM records ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None or last is None:
            raise AuditError(f"the audit log {self.path} has lost its {'head' if row is None else 'records'}.")
        head = Head(row[0], row[1])
        if row[:2] != last[:2] or not hmac.compare_digest(row[2], _proof(self._key(last[2]), head)):
            raise AuditError(
                f"the audit log {self.path} ends at record {last[0]}, its head names {row[0]}: it was changed."
            )
        return head

    def _current(self, connection: sqlite3.Connection) -> Key:
        """The key for the next record: the one that the last rotation named. The file may have grown since."""
        row = connection.execute("SELECT body FROM records WHERE kind = 'rotate' ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None:
            (first,) = connection.execute("SELECT key FROM records ORDER BY seq LIMIT 1").fetchone() or (
                self._keys[0].id,
            )
            return self._key(first)
        return self._key(json.loads(row[0])["next"])

    def _key(self, name: str) -> Key:
        for _ in range(2):
            for key in self._keys:
                if key.id == name:
                    return key
            self._keys = self._read_keys()
        raise AuditError(
            f"the audit log {self.path} needs the key {name}, and there is {', '.join(key.id for key in self._keys)}; "
            "give the keys it was written with."
        )

    def _write(
        self, connection: sqlite3.Connection, key: Key, kind: str, body: Mapping[str, Any], last: Head | None = None
    ) -> int:
        before = self._last(connection) if last is None else last
        text = json.dumps(body, ensure_ascii=False, sort_keys=True)
        now = time.time()
        head = Head(before.seq + 1, _seal(key, before.seal, before.seq + 1, now, kind, text))
        connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", (head.seq, now, kind, text, key.id, head.seal)
        )
        connection.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?)", (head.seq, head.seal, _proof(key, head)))
        return head.seq

    def _verified(self, connection: sqlite3.Connection, wanted: Head | None) -> Head:
        before = Head(0, _FIRST)
        current = ""
        for seq, at, kind, body, name, seal in connection.execute(
            "SELECT seq, time, kind, body, key, seal FROM records ORDER BY seq"
        ):
            place = f"record {before.seq + 1} of the audit log {self.path}"
            if seq != before.seq + 1:
                raise AuditError(f"{place} is missing; the next one is {seq}.")
            current = current or name
            if name != current or not hmac.compare_digest(
                seal, _seal(self._key(name), before.seal, seq, at, kind, body)
            ):
                raise AuditError(f"{place} is not what was written: its seal does not fit.")
            if kind == "rotate":
                current = json.loads(body)["next"]
            before = Head(seq, seal)
            if wanted is not None and wanted.seq == seq and wanted.seal != seal:
                raise AuditError(f"{place} is another one than the head that was kept says.")
        if wanted is not None and wanted.seq > before.seq:
            raise AuditError(
                f"the audit log {self.path} ends at record {before.seq}, the head that was kept names {wanted.seq}: "
                "its end was cut off."
            )
        self._last(connection)
        return before

    @staticmethod
    def _digest(key: Key, value: str) -> str:
        inner = hmac.new(key.secret, b"lily audit digest", hashlib.sha256).digest()
        return hmac.new(inner, form(value).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


_inherited: list[sqlite3.Connection | None] = []  # connections of a parent process, kept from being closed in the child


def _seal(key: Key, before: str, seq: int, at: float, kind: str, body: str) -> str:
    message = json.dumps([before, seq, at.hex(), kind, body, key.id], ensure_ascii=True).encode()
    return hmac.new(key.secret, message, hashlib.sha256).hexdigest()


def _proof(key: Key, head: Head) -> str:
    return hmac.new(key.secret, f"head {head.seq} {head.seal}".encode(), hashlib.sha256).hexdigest()
