"""The commands `lily gate` and `lily audit`: results on standard output, one line for an error, exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lily import AuditLog, cli
from lily.gate import gate as gate_module

from .fakes import FakeClassifier


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClassifier:
    """The embedded classifier is a fake one."""
    classifier = FakeClassifier(["Anna Berg"])
    monkeypatch.setattr(gate_module, "_embedded", lambda: classifier)
    return classifier


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.txt"
    path.write_bytes("I am Anna Berg,\r\n😀 a.berg@vlinderpost.nl\n".encode())
    return path


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_the_verdict_in_words(request_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gate", request_file) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "outcome      MASK"
    assert any(line.split()[:3] == ["5-14", "private_person", "0.97"] for line in lines)
    assert lines[-2:] == ["I am [PERSON_1],", "😀 [EMAIL_1]"]


def test_json(request_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gate", request_file, "--json", "--destination", "api.example") == 0
    out = capsys.readouterr().out
    assert "Anna" not in out
    assert json.loads(out)["outcome"] == "mask"
    assert json.loads(out)["destination"] == "api.example"


def test_html(request_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gate", request_file, "--html") == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_mask_gives_only_what_may_leave(request_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gate", request_file, "--mask") == 0
    assert capsys.readouterr().out == "I am [PERSON_1],\r\n😀 [EMAIL_1]\n"
    request_file.write_text("key AKIAIOSFODNN7QZXWPLM and card 5425 2334 3010 9903")
    assert run("gate", request_file, "--mask", "--policy", "strict") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lily: The policy strict keeps this text here: refuse")


def test_standard_input_policy_and_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, log = tmp_path / "p.toml", tmp_path / "a.db"
    policy.write_text('[outcomes]\nprivate_person = "local"\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Anna Berg"), "utf-8"))
    AuditLog(log).close()
    assert run("audit", "verify", log) == 0
    assert capsys.readouterr().out.startswith("1 record, unbroken\n")
    assert run("gate", "-", "--policy", policy, "--audit", log) == 0
    assert capsys.readouterr().out.startswith("outcome      LOCAL")
    assert run("audit", "verify", log) == 0
    first, head = capsys.readouterr().out.splitlines()
    assert first == "2 records, unbroken"
    assert run("audit", "export", log, "--head") == 0
    assert capsys.readouterr().out.strip() == head
    kept = tmp_path / "head.txt"
    kept.write_text(head)
    assert run("audit", "verify", log, "--head", kept) == 0
    assert run("audit", "verify", log, "--head", head) == 0
    capsys.readouterr()
    assert run("audit", "export", log) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("kind") for line in lines] == ["begin", "local", None]
    with AuditLog(log) as opened:
        opened._open().execute("DELETE FROM records WHERE seq = 2")
    assert run("audit", "verify", log) == 1
    assert "ends at record 1, its head names 2" in capsys.readouterr().err


def test_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([{"role": "user", "content": "I am Anna Berg"}]))
    assert run("gate", path, "--messages", "--mask") == 0
    assert json.loads(capsys.readouterr().out) == [{"role": "user", "content": "I am [PERSON_1]"}]
    for text in ("[", "[" * 5000):
        path.write_text(text)
        assert run("gate", path, "--messages") == 1
        assert "not JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gate", "missing.txt"], "missing.txt"),
        (["gate", "latin.txt"], "latin.txt is not UTF-8: byte 1 is 0xe9"),
        (["gate", "latin.txt", "--policy", "lax"], "lax cannot be read as a policy"),
        (["audit", "verify", "missing.db"], "there is no audit log missing.db"),
        (["audit", "export", "missing.db"], "there is no audit log missing.db"),
        (["audit", "verify", "folder"], "folder is a folder; expected the database file of an audit log"),
        (["gate", "folder"], "folder"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.txt").write_bytes(b"J\xe9r\xf4me")
    Path("folder").mkdir()
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["gate"], ["audit"], ["audit", "verify"], ["gate", "x", "--json", "--mask"]])
def test_wrong_command_lines(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["gate"],
            ["FILE", "--policy", "--destination", "--model", "--messages", "--audit", "--json", "--mask", "--html"],
        ),
        (["audit"], ["verify", "export"]),
        (["audit", "verify"], ["DB", "--head HEAD"]),
        (["audit", "export"], ["DB", "--head"]),
    ],
)
def test_help(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments, "--help")
    assert caught.value.code == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"usage: lily {' '.join(arguments)} ")
    assert [word for word in words if word not in captured.out] == []
    assert captured.err == ""


def test_closed_standard_input_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run("gate", "-") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lily: standard input is closed")
    assert captured.err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor with a POSIX shell")
def test_a_process_without_standard_input(tmp_path: Path) -> None:
    """Nothing that is opened later is taken for the text."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m lily gate - --audit "$1" <&-', sys.executable, str(tmp_path / "a.db")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lily: standard input is closed")
    assert not (tmp_path / "a.db").exists()
