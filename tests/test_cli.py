"""The command: results on standard output, the rest on standard error, exit codes, never a traceback."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lily
from lily import Engine, Sampling, cli
from lily.checkpoint import open_checkpoint


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lily", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("command", [[], ["info"], ["generate"], ["repack"], ["synth"]])
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*command, "--help")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {' '.join(['lily', *command])}")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"lily {lily.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["generate", "Hi"],
        ["generate", "--model", "m"],
        ["generate", "--model", "m", "--max-tokens", "many", "Hi"],
        ["generate", "--model", "m", "--raw", "--system", "s", "Hi"],
        ["generate", "--model", "m", "--raw", "--thinking", "off", "Hi"],
        ["generate", "--model", "m", "--thinking", "perhaps", "Hi"],
        ["generate", "--model", "m", "--max", "3", "Hi"],
        ["synth", "out"],
        ["synth", "out", "--tiny", "--full"],
        ["synth", "out", "--tiny", "--seed", "-1"],
        ["synth", "out", "--tiny", "--seed", "x"],
        ["repack", "in"],
        ["info", "a", "b"],
    ],
)
def test_wrong_arguments_are_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "usage: lily" in printed.err


def test_synth_writes_what_load_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny: Path) -> None:
    out = tmp_path / "new"
    assert run("synth", out, "--tiny", "--seed", 1) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert (out / "model.safetensors").read_bytes() == (tiny / "model.safetensors").read_bytes()
    assert run("synth", out, "--tiny") == 1
    assert capsys.readouterr().err.startswith("lily: ")


def test_generate_prints_the_answer_and_the_numbers(
    engine: Engine, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["generate", "--model", tiny, "--max-tokens", 12, "--temperature", 0.9, "--seed", 4]
    assert run(*options, "--system", "Be brief.", "Hi there") == 0
    printed = capsys.readouterr()
    sampling = Sampling(
        temperature=0.9, seed=4, top_k=engine.default_sampling.top_k, top_p=engine.default_sampling.top_p
    )
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi there"}]
    expected = engine.generate(messages, 12, sampling)
    assert printed.out == expected.text + "\n"
    assert printed.err.startswith(f"{expected.prompt_tokens} tokens read at ")
    assert f"finish reason {expected.finish_reason}, seed 4" in printed.err
    assert printed.err.count("\n") == 1


def test_generate_raw_quiet_and_from_standard_input(
    engine: Engine, tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = engine.generate("A lily is", 8, Sampling(temperature=0)).text + "\n"
    options = ["generate", "--model", tiny, "--max-tokens", 8, "--temperature", 0, "--raw", "--quiet"]
    assert run(*options, "A lily is") == 0
    assert capsys.readouterr() == (expected, "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A lily is")))
    assert run(*options, "-") == 0
    assert capsys.readouterr() == (expected, "")


def test_thinking_is_passed_on(engine: Engine, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = {}
    for thinking in ("on", "off"):
        assert run("generate", "--model", tiny, "--max-tokens", 1, "--thinking", thinking, "Hi") == 0
        read[thinking] = int(capsys.readouterr().err.split()[0])
    assert read["off"] > read["on"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "vulkan"], "'vulkan' is not known on this machine"),
        (["--max-context", "4"], "max_context is 4"),
        (["--max-tokens", "0"], "max_tokens is 0"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--threads", "0"], "threads is 0"),
        (["--revision", "main"], "revision"),
    ],
)
def test_errors_are_one_line_and_code_1(
    tiny: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("generate", "--model", tiny, *options, "Hi") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("lily: ")
    assert words in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("command", [["generate", "--model", "{}", "Hi"], ["info", "{}"], ["repack", "{}", "out"]])
def test_a_model_that_is_none(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*[part.format(tmp_path / "nothing") for part in command]) == 1
    assert capsys.readouterr().err.startswith("lily: ")


def test_a_prompt_of_broken_bytes(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "--model", tiny, os.fsdecode(b"caf\xe9")) == 1
    assert "lone surrogate U+DCE9 at position 3" in capsys.readouterr().err


def test_info_in_words_and_as_json(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("info", tiny) == 0
    assert str(tiny) in capsys.readouterr().out
    assert run("info", tiny, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"]["path"] == str(tiny)
    assert report["fit"]["max_context"] == 4096
    assert run("info", "--offline", "--json") == 0
    assert json.loads(capsys.readouterr().out)["default"]["repo"].count("/") == 1


def test_repack_writes_the_same_model(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "aligned"
    assert run("repack", tiny, out) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "compared with the source" in printed.err
    with open_checkpoint(tiny) as before, open_checkpoint(out) as after:
        assert [view[0] for view in before.tensors] == [view[0] for view in after.tensors]
    assert run("generate", "--model", out, "--max-tokens", 2, "Hi") == 0


def test_a_defect_is_one_line_too(
    tiny: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("two\nlines")

    monkeypatch.setattr("lily.info.report", broken)
    assert run("info", tiny) == 1
    assert capsys.readouterr().err.startswith("lily: defect: TypeError: two lines. Please report it")
    monkeypatch.setenv("LILY_DEBUG", "1")
    with pytest.raises(TypeError):
        run("info", tiny)
    monkeypatch.setattr("lily.info.report", lambda *_, **__: (_ for _ in ()).throw(MemoryError()))
    assert run("info", tiny) == 1
    assert "out of memory" in capsys.readouterr().err


def test_ctrl_c_is_code_130(tiny: Path) -> None:
    child = start("generate", "--model", tiny, "--max-context", 100_000, "--max-tokens", 90_000, "--raw", "a b")
    assert child.stdout is not None
    assert child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert err == "lily: interrupted\n"


def test_a_reader_that_leaves_is_no_traceback(tiny: Path) -> None:
    child = start("generate", "--model", tiny, "--max-context", 100_000, "--max-tokens", 90_000, "--raw", "a b")
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.read(1)
    child.stdout.close()
    with child.stderr as errors:
        assert errors.read() == ""
    assert child.wait(60) == 1


def shell(redirection: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command with its streams as a shell leaves them."""
    command = shlex.join([sys.executable, "-m", "lily", *map(str, arguments)])
    return subprocess.run(
        ["/bin/sh", "-c", f"exec {command} {redirection}"], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", [["info"], ["generate", "--max-tokens", "2", "--model"], ["gate"]])
def test_closed_streams(command: list[str], tiny: Path, tmp_path: Path) -> None:
    target = tmp_path / "text"
    target.write_text("a text")
    words = [*command, target if command == ["gate"] else tiny, *(["Hi"] if command[0] == "generate" else [])]
    for harmless in ("<&-", "2>&-", "2>/dev/full", "<&- 2>&-"):
        done = shell(harmless, *words)
        assert (done.returncode, done.stdout != "") == (0, True), harmless
    done = shell(">&-", *words)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("lily: standard output is closed, expected a place for the result")
    done = shell("<&- >&- 2>&-", *words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    done = shell(">/dev/full", *words)
    assert (done.returncode, done.stderr) == (1, "lily: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("command", [["generate", "--model", "m", "-"], ["gate", "-"]])
def test_standard_input(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = shell("<&-", *command)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("lily: standard input is closed, expected a text there")
    for data, words in ((b"J\xe9", "standard input is not UTF-8: byte 1 is 0xe9"), (b"abcde", "more than 4 bytes")):
        monkeypatch.setattr("lily.console.MAX_INPUT_BYTES", 4)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert run(*command) == 1
        assert words in capsys.readouterr().err


def test_a_text_file_is_read_up_to_a_limit(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lily.console.MAX_INPUT_BYTES", 20)
    (tmp_path / "short").write_text("a b c d e f g h i j", encoding="utf-8")
    (tmp_path / "long").write_text("a b c d e f g h i j k", encoding="utf-8")
    for command in (["gate"], ["verify", tiny, "--against", "cpu", "--text"]):
        assert run(*command, tmp_path / "short") == 0
        assert run(*command, tmp_path / "long") == 1
        assert f"{tmp_path / 'long'} holds more than 20 bytes" in capsys.readouterr().err


def test_wrong_words_of_a_command_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["generate", "--model", "m", "--raw", "--system", "s", "-"], "--system belongs to the chat template"),
        (["generate", "--model", "m", "--seed", "abc", "Hi"], "argument --seed: 'abc' is no whole number from 0"),
        (["generate", "--model", "m", "--seed", "9" * 5000, "Hi"], "is no whole number from 0"),
    ):
        with pytest.raises(SystemExit) as caught:
            run(*words)
        printed = capsys.readouterr().err
        assert caught.value.code == 2
        assert printed.startswith("usage: lily generate")
        assert message in printed


def test_ctrl_c_is_not_lost_in_an_import(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy turns a KeyboardInterrupt into an ImportError."""

    def importing(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("the C-extensions failed") from None

    monkeypatch.setattr("lily.info.report", importing)
    assert run("info", tiny) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_during_the_imports_is_code_130() -> None:
    code = """
import sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "lily.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from lily.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_terminal_without_unicode(tiny: Path) -> None:
    child = start(
        "generate", "--model", tiny, "--max-tokens", 40, "--seed", 1, "Hi", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    assert out.isascii()
