"""lily bench: its contract on arms whose times are known, the order and the refusals of the runner, a real run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lily import cli
from lily.bench import command, contract, plot, runner
from lily.bench.contract import STEPS, Arm, Watch, digest, measure, prompt
from lily.bench.runner import run
from lily.errors import DeviceError, Disturbed, InvalidInput, NumericalError


def arm(seconds: float = 1.0, foreign: float | None = 0.0, digest: str = "d") -> Arm:
    return Arm("device", seconds, 2.0, STEPS, digest, foreign, 1000)


def test_prompts_spread_over_the_vocabulary() -> None:
    ids = prompt(4096, 248320)
    assert ids[:3] == [0, 2654435761 % 248320, 2 * 2654435761 % 2**32 % 248320]
    assert len(set(ids)) > 4000
    assert max(ids) > 240_000


def test_digest_is_fnv_1a() -> None:
    assert digest([]) == "cbf29ce484222325"
    assert digest([ord("a")]) != digest([ord("b")])
    bytewise = 0xCBF29CE484222325
    for byte in (1, 2, 0, 0):
        bytewise = (bytewise ^ byte) * 0x100000001B3 % 2**64
    assert digest([0x0201]) == f"{bytewise:016x}"


def test_measure_warms_up_and_takes_reading_and_writing_apart() -> None:
    passes = []

    def read_and_write() -> Iterator[int]:
        passes.append(time.perf_counter())
        time.sleep(0.2)
        for token in range(STEPS + 1):
            if token:
                time.sleep(0.1 / STEPS)
            yield token

    found = measure("d", read_and_write)
    assert len(passes) == 2
    assert found.prefill_seconds >= 0.2
    assert found.decode_seconds >= 0.1
    assert found.steps == STEPS
    assert found.digest == digest(range(STEPS + 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what others use")
def test_foreign_load_is_seen_and_own_is_not() -> None:
    watch = Watch()
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end:  # own work
        pass
    quiet = watch.foreign()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        time.sleep(0.2)
        watch, knowing = Watch(), Watch(other.pid)
        time.sleep(1.0)
        loud, without = watch.foreign(), knowing.foreign()
        other.kill()
    assert quiet is not None
    assert loud is not None
    assert without is not None
    assert without < loud
    assert loud > max(0.3, quiet - 1)  # the machine may be shared: the burner gets a share at least


def test_rounds_alternate() -> None:
    order: list[tuple[str, int]] = []

    def noted(engine: str, options: Mapping[str, Any]) -> Arm:
        order.append((engine, options["length"]))
        return arm()

    run({"a": {}, "b": {}}, [512, 256], rounds=3, measure=noted)
    first = [("a", 256), ("b", 256), ("a", 512), ("b", 512)]
    assert order == first + first[::-1] + first


def test_medians_and_spreads() -> None:
    seconds = iter([1.0, 4.0, 2.0])
    (row,) = run({"a": {}}, [100], rounds=3, measure=lambda *_: arm(next(seconds))).rows
    assert (row.prefill.low, row.prefill.median, row.prefill.high) == (25, 50, 100)
    assert row.decode.median == STEPS / 2


def test_a_disturbed_sample_is_taken_again_and_then_refused() -> None:
    foreign = iter([0.5, 0.1, 0.0])
    (row,) = run({"a": {}}, [100], measure=lambda *_: arm(foreign=next(foreign))).rows
    assert row.foreign == 0.1
    with pytest.raises(Disturbed, match=r"0\.50 cores"):
        run({"a": {}}, [100], measure=lambda *_: arm(foreign=0.5))
    (row,) = run({"a": {}}, [100], measure=lambda *_: arm(foreign=0.5), ignore_load=True).rows
    assert row.foreign == 0.5


def test_a_length_that_is_named_twice_is_measured_once() -> None:
    seconds = iter([1.0])
    (row,) = run({"a": {}}, [100, 100], rounds=1, measure=lambda *_: arm(next(seconds))).rows
    assert row.rounds == 1


@pytest.mark.parametrize("given", [{"rounds": 0}, {"rounds": -3}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_no_rounds_and_no_time_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        run({"a": {}}, [100], measure=lambda *_: arm(), **given)


def test_other_tokens_in_another_round_are_a_defect() -> None:
    digests = iter("xy")
    with pytest.raises(NumericalError, match="different tokens"):
        run({"a": {}}, [100], measure=lambda *_: arm(digest=next(digests)))


def test_what_does_not_fit_into_the_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("lily.bench.runner.time.monotonic", lambda: now[0])

    def slow(engine: str, options: Mapping[str, Any]) -> Arm:
        now[0] += options["length"] / 10
        return arm()

    report = run({"a": {}}, [100, 200, 400, 800], seconds=200, measure=slow)
    assert {row.length for row in report.rows} == {100, 200, 400}
    assert list(report.left_out) == [800]
    assert now[0] <= 200


def test_a_failing_arm_says_why() -> None:
    with pytest.raises(DeviceError, match="no-such-folder"):
        runner.measure_in_a_process(
            "lily", {"model": "no-such-folder", "device": "cpu", "threads": 1, "activations": None, "length": 8}
        )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH is of Python 3.11")
def test_an_arm_runs_this_lily_wherever_it_is(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.py").write_text("raise RuntimeError", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = {"model": str(tiny), "device": "cpu", "threads": 1, "activations": None, "length": 8}
    assert runner.measure_in_a_process("lily", options).steps == STEPS


def test_an_arm_ends_with_whoever_started_it(tiny: Path) -> None:
    """However that process ended, killed ones included: it held the other end of the arm's standard input."""
    options = {"model": str(tiny), "device": "cpu", "threads": 1, "activations": None, "length": 100_000}
    code = f"from lily.bench import runner; print(flush=True); runner.measure_in_a_process('lily', {options!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children")
        if not children.exists():
            starter.kill()
            pytest.skip("only Linux tells which processes were started")
        while not (found := children.read_text(encoding="ascii").split()):
            time.sleep(0.05)
        starter.kill()
    end = time.monotonic() + 20
    arm = Path(f"/proc/{found[0]}/stat")
    while arm.exists() and arm.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "the arm still runs"
        time.sleep(0.1)


def test_the_command(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shared = ["bench", str(tiny), "--lengths", "32,64,1000000", "--ignore-load"]
    assert cli.main([*shared, "--save", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in found["rows"]] == [32, 64]
    assert all(row["rounds"] == 2 and row["digest"] and row["prefill"]["low"] > 0 for row in found["rows"])
    assert all(row["device"].startswith("lily, cpu") for row in found["rows"])
    assert "positions" in found["left_out"]["1000000"]
    assert json.loads(command.profile(str(tiny), tiny).read_text(encoding="utf-8")) == found
    assert cli.main([*shared, "--rounds", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert any(line.startswith("model ") and str(tiny) in line for line in table)
    assert sum(line.strip().startswith(("32 ", "64 ")) for line in table) == 2


def test_every_checkpoint_has_a_profile_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folders = [tmp_path / "a" / "small", tmp_path / "b" / "small"]
    first, second = (command.profile("small", folder) for folder in folders)
    assert first != second
    folders[0].mkdir(parents=True)
    (tmp_path / "link").symlink_to(folders[0])
    assert command.profile("small", tmp_path / "link") == first
    assert len(command.profile("x" * 255, folders[0]).name) < 100


@pytest.mark.parametrize(
    "arguments",
    [["--vs", "llama.cpp"], ["--gguf", "x.gguf"], ["--lengths", "1000000"], ["--lengths", "8", "--device", "dream"]],
)
def test_the_command_refuses(arguments: list[str], tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", str(tiny), *arguments]) == 1
    assert capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "run", lambda *_, **__: pytest.fail("measured before the check"))
    assert cli.main(["bench", str(tiny), "--lengths", "8", "--plot", str(tmp_path / "p.word")]) == 1
    assert capsys.readouterr().out == ""


def test_a_result_is_printed_even_if_it_cannot_be_kept(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert cli.main(["bench", str(tiny), "--lengths", "8", "--rounds", "1", "--ignore-load", "--save", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"]


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install matplotlib")
    report = run({"a": {}, "b": {}}, [256, 512], measure=lambda engine, _: replace(arm(0.1), device=f"engine {engine}"))
    plot.draw(report, tmp_path / "p.svg", "title")
    drawn = (tmp_path / "p.svg").read_text(encoding="utf-8")
    for text in ("title", "engine a", "engine b", "512", "5,000"):
        assert f"<!-- {text} -->" in drawn
    with pytest.raises(InvalidInput, match="expected one of"):
        plot.require(tmp_path / "p.word")


def test_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidInput, match="pip install"):
        plot.require(tmp_path / "p.png")


def test_lengths_are_the_published_ones() -> None:
    assert contract.LENGTHS == (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
