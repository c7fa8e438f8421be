"""The audit log: what was acknowledged is there, what is there was written by it, and no value is in it.

The number of writes of the test with kill -9 is LILY_AUDIT_WRITES (800 where it is not set, 10,000 before a release).
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lily import AuditLog
from lily.errors import AuditError, InvalidInput
from lily.gate import Head
from lily.gate.audit import Record

WRITES = int(os.environ.get("LILY_AUDIT_WRITES", "800"))


def log_of(path: Path, records: int = 5) -> AuditLog:
    log = AuditLog(path)
    for number in range(records):
        log.append("mask", text=f"text {number}", values=[f"Anna {number}"], details={"policy": "p"})
    return log


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def test_records_and_digests(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db") as log:
        assert log.append("mask", text="Anna Berg pays", values=["Anna Berg", "ANNA BERG"], details={"n": 1}) == 2
        records = list(log.records())
        assert [record.kind for record in records] == ["begin", "mask"]
        assert isinstance(records[1], Record)
        assert records[1].body["n"] == 1
        assert len(records[1].body["values"]) == 1
        assert records[1].body["characters"] == 14
        assert abs(records[1].time - time.time()) < 60
        assert log.find("anna  berg") == [2]
        assert log.find("Anna") == []
        assert log.verify() == log.head() == Head(2, records[1].seal)


def test_no_value_on_the_disk(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db") as log:
        log.append("refuse", text="my key is hunter22hunter22", values=["hunter22hunter22"])
        files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(files) >= 3
    assert all(b"hunter22" not in data for data in [*files, *(path.read_bytes() for path in tmp_path.iterdir())])


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_files_are_the_owners(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.db")
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ["a.db", "a.db-wal", "a.db-shm", "a.db.key"], 0o600
    )
    log.close()
    log.key_path.chmod(0o640)
    with pytest.raises(AuditError, match="0640"):
        AuditLog(log.path)


@pytest.mark.parametrize(
    ("statement", "record"),
    [
        ("UPDATE records SET kind = 'allow' WHERE seq = 3", "record 3"),
        ("UPDATE records SET time = time + 1 WHERE seq = 4", "record 4"),
        ("UPDATE records SET body = replace(body, '\"p\"', '\"q\"') WHERE seq = 2", "record 2"),
        ("UPDATE records SET seal = 'x' WHERE seq = 6", "record 6"),
        ("UPDATE records SET key = 'x' WHERE seq = 5", "record 5"),
        ("DELETE FROM records WHERE seq = 1", "record 1"),
        ("DELETE FROM records WHERE seq = 4", "record 4"),
        ("DELETE FROM records WHERE seq = 6", "ends at record 5, its head names 6"),
        ("UPDATE records SET seq = 9 WHERE seq = 6", "record 6"),
        ("INSERT INTO records SELECT 7, time, kind, body, key, seal FROM records WHERE seq = 6", "record 7"),
        ("UPDATE head SET seal = (SELECT seal FROM records WHERE seq = 5)", "ends at record 6"),
        ("UPDATE head SET proof = 'x'", "changed"),
        ("DELETE FROM head", "lost its head"),
        ("DELETE FROM records", "lost its records"),
    ],
)
def test_verify_finds_a_change(tmp_path: Path, statement: str, record: str) -> None:
    path = tmp_path / "a.db"
    log_of(path).close()
    change(path, statement)
    with AuditLog(path) as log, pytest.raises(AuditError, match=record):
        log.verify()


@pytest.mark.parametrize("seed", range(10))
def test_verify_finds_any_change_of_any_cell(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.db"
    log_of(path).close()
    draw = random.Random(seed)
    column = draw.choice(["time", "kind", "body", "seal"])
    value = draw.random() if column == "time" else draw.randbytes(4).hex()
    change(path, f"UPDATE records SET {column} = ? WHERE seq = ?", value, draw.randint(1, 6))
    with AuditLog(path) as log, pytest.raises(AuditError, match="record"):
        log.verify()


def test_a_cut_end_shows_against_a_kept_head(tmp_path: Path) -> None:
    """Even where the whole file is an older, sound copy."""
    path = tmp_path / "a.db"
    log_of(path).close()
    old = path.read_bytes()
    with AuditLog(path) as log:
        log.append("allow", text="x")
        head = Head.parse(str(log.head()))
        log.append("allow", text="y")
        assert log.verify(head).seq == 8
    path.write_bytes(old)
    with AuditLog(path) as log:
        assert log.verify().seq == 6
        with pytest.raises(AuditError, match="ends at record 6, the head that was kept names 7"):
            log.verify(head)
        log.append("allow", text="z")
        with pytest.raises(AuditError, match=r"record 7 of .* is another one"):
            log.verify(head)


def test_another_key_writes_another_log(tmp_path: Path) -> None:
    """Who has no key cannot write a chain that holds."""
    path = tmp_path / "a.db"
    AuditLog(path, key=b"a" * 32).close()
    with pytest.raises(AuditError, match="needs the key"), AuditLog(path, key=b"b" * 32) as log:
        log.append("allow", text="x")


def test_keys_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    monkeypatch.setenv("LILY_AUDIT_KEY", "ab" * 32)
    with AuditLog(path) as log:
        log.append("allow", text="x")
    assert not log.key_path.exists()
    monkeypatch.setenv("LILY_AUDIT_KEY", "ab" * 32 + "," + "cd" * 32)
    with AuditLog(path) as log:
        log.append("allow", text="y")
        assert log.verify().seq == 3
    for bad in ("xy", "ab"):
        monkeypatch.setenv("LILY_AUDIT_KEY", bad)
        with pytest.raises(AuditError, match="key"):
            AuditLog(path)


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    log, beside = log_of(path, 2), AuditLog(path)
    log.rotate()
    log.append("mask", text="x", values=["Anna 1"])
    beside.append("mask", text="y", values=["Anna 1"])  # it learns of the new key from the log
    assert len({record.key for record in log.records()}) == 2
    assert log.find("anna 1") == [3, 5, 6]
    log.rotate()
    log.append("allow", text="z")
    assert log.verify() == beside.verify()
    change(path, "UPDATE records SET key = (SELECT key FROM records WHERE seq = 1) WHERE seq = 6")
    with pytest.raises(AuditError, match="record 6"):
        log.verify()
    log.close()
    beside.close()


def test_rotation_of_given_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    one, two = b"1" * 32, b"2" * 32
    with AuditLog(path, key=one) as log:
        with pytest.raises(AuditError, match="needs new_key"):
            log.rotate()
        with pytest.raises(AuditError, match="in use before"):
            log.rotate(one)
        log.rotate(two)
        log.append("allow", text="x")
        assert log.verify().seq == 3
    with AuditLog(path, key=two, old_keys=[one]) as log:
        assert log.verify().seq == 3
    with AuditLog(path, key=two, old_keys=[one]) as log, pytest.raises(AuditError, match="in use before"):
        log.rotate(one)


def test_a_lost_key_is_an_error_not_a_new_key(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.db")
    log.close()
    log.key_path.unlink()
    with pytest.raises(AuditError, match="cannot be read"):
        AuditLog(log.path)
    assert not log.key_path.exists()


def test_a_full_disk_is_an_error_and_leaves_the_chain_whole(tmp_path: Path) -> None:
    with log_of(tmp_path / "a.db") as log:
        head = log.head()
        (pages,) = log._open().execute("PRAGMA page_count").fetchone()
        log._open().execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(AuditError, match="full; make room"):
            log.append("allow", text="x", details={"long": "y" * 100_000})
        assert log.verify() == head
        log._open().execute("PRAGMA max_page_count = 100000")
        assert log.append("allow", text="x") == head.seq + 1
        log.verify()


DEPARTURES = """
import resource, sys
from types import SimpleNamespace

import numpy as np

from lily import AuditLog, Gate
from lily.errors import AuditError


class Reader:  # finds nothing
    def read(self, texts):
        empty = np.zeros(0, np.float32), np.zeros((0, 2), np.int32)
        return [SimpleNamespace(spans=[], sensitivity=0.0, any_pii=empty[0], offsets=empty[1]) for _ in texts]

    def close(self):
        pass


sent = []
with AuditLog(sys.argv[1]) as audit:
    gate = Gate(audit=audit, classifier=Reader())
    gate.send("The lilies are in bloom.", lambda text: sent.append(text) or "ok")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))  # no file grows beyond it
    try:
        for number in range(5000):
            gate.send(f"lily {number}, write to a@vlinderpost.nl", lambda text: sent.append(text) or "ok")
    except AuditError as error:
        print(len(sent), error)
"""


@pytest.mark.skipif(os.name != "posix", reason="RLIMIT_FSIZE is POSIX's")
@pytest.mark.parametrize("room", [100_000, 150_001])
def test_a_departure_is_stopped_where_the_disk_takes_no_more(tmp_path: Path, room: int) -> None:
    """What was sent is recorded, and what could not be recorded was not sent."""
    path = tmp_path / "a.db"
    done = subprocess.run(
        [sys.executable, "-c", DEPARTURES, str(path), str(room)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    count, message = done.stdout.split(" ", 1)
    assert "cannot be written" in message
    assert int(count) > 1
    with AuditLog(path) as log:
        log.verify()
        assert sum(record.kind in ("allow", "mask") for record in log.records()) == int(count)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot be written"):
        AuditLog(tmp_path / "missing" / "a.db")
    (tmp_path / "other.db").write_bytes(b"no database" * 100)
    (tmp_path / "other.db.key").write_text("")
    (tmp_path / "other.db.key").chmod(0o600)
    with pytest.raises(AuditError, match="empty"):
        AuditLog(tmp_path / "other.db")
    with pytest.raises(AuditError, match="not a database"):
        AuditLog(tmp_path / "other.db", key=b"k" * 32)
    with pytest.raises(AuditError, match="no audit log"):
        AuditLog(tmp_path / "b.db", create=False)
    assert not (tmp_path / "b.db").exists()


def test_closed_and_short_keys_and_bad_heads(tmp_path: Path) -> None:
    log = log_of(tmp_path / "a.db")
    log.close()
    with pytest.raises(AuditError, match="closed"):
        log.append("allow", text="x")
    with pytest.raises(AuditError, match="3 bytes"):
        AuditLog(tmp_path / "b.db", key=b"abc")
    with pytest.raises(InvalidInput, match="no head"):
        Head.parse("lily-audit:x:y")


def test_export(tmp_path: Path) -> None:
    with log_of(tmp_path / "a.db") as log:
        lines = [json.loads(line) for line in log.export()]
        assert [line["seq"] for line in lines[:-1]] == list(range(1, 7))
        assert lines[-1] == {"head": str(log.head())}
        assert lines[1]["policy"] == "p"


def test_threads_share_one_log(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db") as log:

        def write() -> None:
            for _ in range(20):
                log.append("allow", text="x")

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert log.verify().seq == 81


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_fork_has_its_own_connection(tmp_path: Path) -> None:
    with log_of(tmp_path / "a.db") as log:
        child = os.fork()
        if child == 0:
            try:
                log.append("allow", text="child")
                os._exit(0)
            finally:
                os._exit(1)
        log.append("allow", text="parent")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log.verify().seq == 8


WORKER = """
import os, sys
from lily import AuditLog

name, acknowledged = sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
with AuditLog(sys.argv[1]) as log:
    for number in range(int(sys.argv[4])):
        seq = log.append("allow", text=f"{name} {number}", values=[name], details={"by": name, "number": number})
        os.write(acknowledged, f"{seq} {name} {number}\\n".encode())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.timeout(600)
def test_eight_processes_and_kill_9(tmp_path: Path) -> None:
    """Every acknowledged record is there, under its number, and the chain holds."""
    path, acknowledged = tmp_path / "a.db", tmp_path / "acknowledged"
    acknowledged.touch()
    draw = random.Random(WRITES)
    started = 0

    def start() -> subprocess.Popen[bytes]:
        nonlocal started
        started += 1
        arguments = [str(path), f"w{started}", str(acknowledged), str(WRITES)]
        return subprocess.Popen([sys.executable, "-c", WORKER, *arguments])

    def written() -> int:
        return acknowledged.read_bytes().count(b"\n")

    workers = [start() for _ in range(8)]
    killed = 0
    try:
        while written() < WRITES or killed < 5:
            time.sleep(draw.uniform(0.02, 0.4))
            victim = draw.randrange(8)
            workers[victim].kill()
            killed += workers[victim].wait() == -signal.SIGKILL
            assert workers[victim].returncode in (0, -signal.SIGKILL)
            workers[victim] = start()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    with AuditLog(path) as log:
        head = log.verify()
        held = {record.seq: (record.body["by"], record.body["number"]) for record in log.records() if record.seq > 1}
    lines = [line.split() for line in acknowledged.read_text().splitlines()]
    assert len(lines) >= WRITES
    assert killed >= 5
    assert head.seq >= len(lines) + 1
    assert [line for line in lines if held.get(int(line[0])) != (line[1], int(line[2]))] == []
    assert len({line[0] for line in lines}) == len(lines)
