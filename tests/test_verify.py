"""lily verify: its numbers on sides whose answers are known, its file, and the command on two real sides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mlx_oracle import require_mlx

from lily import Engine, cli
from lily.errors import DeviceError, InvalidInput
from lily.tokenizer import Tokenizer
from lily.verify.comparison import compare
from lily.verify.golden import Golden, read_windows
from lily.verify.sides import EngineSide

VOCAB = 200
Ids = npt.NDArray[np.integer[Any]]


class Told:
    """A side whose logits are a random table by the last token, moved by `noise`: all about it is known."""

    def __init__(self, name: str = "told", noise: float = 0.0, seed: int = 3) -> None:
        self.name = name
        self.table = 3 * np.random.default_rng(1).standard_normal((VOCAB, VOCAB))
        self.table += noise * np.random.default_rng(seed).standard_normal(self.table.shape)

    def logits(self, tokens: Ids) -> npt.NDArray[np.float32]:
        return self.table[tokens].astype(np.float32)

    def log_probs(self, tokens: Ids) -> npt.NDArray[np.float64]:
        logits = self.table[tokens]
        return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))


@pytest.fixture
def tokens() -> Ids:
    return np.random.default_rng().integers(0, VOCAB, 1000, dtype=np.int32)


def test_a_side_equals_itself(tokens: Ids) -> None:
    report = compare(read_windows(Told(), tokens, 100), Told())
    assert abs(report.difference) < 1e-7
    assert report.agreement == report.clear_agreement == 1.0
    assert report.divergence < 1e-9
    assert (report.positions, report.windows) == (990, 10)


def test_numbers_against_their_definitions(tokens: Ids) -> None:
    reference, tested = Told(), Told("moved", noise=0.3)
    report = compare(read_windows(reference, tokens, 1000), tested)
    p, q = reference.log_probs(tokens[:-1]), tested.log_probs(tokens[:-1])
    rows = np.arange(999)
    following_p, following_q = p[rows, tokens[1:]], q[rows, tokens[1:]]
    assert report.reference_perplexity == pytest.approx(np.exp(-following_p.mean()), rel=1e-5)
    assert report.tested_perplexity == pytest.approx(np.exp(-following_q.mean()), rel=1e-5)
    difference = following_p - following_q
    assert report.difference == pytest.approx(np.expm1(difference.mean()), abs=1e-6)
    error = np.exp(difference.mean()) * difference.std(ddof=1) / np.sqrt(999)
    assert report.standard_error == pytest.approx(error, rel=1e-4)
    same = p.argmax(-1) == q.argmax(-1)
    ranked = np.sort(p, axis=-1)
    clear = ranked[:, -1] - ranked[:, -2] > 0.25
    assert report.agreement == pytest.approx(same.mean())
    assert report.clear == clear.sum()
    assert report.clear_agreement == pytest.approx(same[clear].mean())
    exact = (np.exp(p) * (p - q)).sum(-1)
    assert 0.9 * exact.mean() < report.divergence <= exact.mean() * (1 + 1e-6)
    worst = report.worst[0]
    assert worst.divergence == report.largest_divergence
    assert worst.tested_best == q[worst.position].argmax()
    assert worst.following == tokens[worst.position + 1]


def test_the_error_bar_covers_the_truth() -> None:
    """Of many texts, about 95 % of the intervals of two standard errors hold the difference over a text without end."""
    reference, tested = Told(), Told("moved", noise=0.2)
    p, q = reference.log_probs(np.arange(VOCAB, dtype=np.int32)), tested.log_probs(np.arange(VOCAB, dtype=np.int32))
    truth = np.expm1((p - q).mean())  # tokens of the texts are uniform
    inside = 0
    for seed in range(200):
        text = np.random.default_rng(seed).integers(0, VOCAB, 400, dtype=np.int32)
        report = compare(read_windows(reference, text, 40), tested)
        inside += abs(report.difference - truth) < 2 * report.standard_error
    assert 175 <= inside <= 199


def test_a_golden_is_kept_whole(tokens: Ids, tmp_path: Path) -> None:
    golden = read_windows(Told(), tokens, 333)
    golden.save(tmp_path / "g.npz", "t")
    found = Golden.load(tmp_path / "g.npz", "t")
    assert found.name == golden.name
    assert compare(found, Told("m", 0.3)) == compare(golden, Told("m", 0.3))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"no archive at all"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "g.npz").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"g\.npz"):
        Golden.load(tmp_path / "g.npz", "t")


@pytest.mark.parametrize(
    "damage",
    [
        {"lengths": [13]},
        {"lengths": [10, 21]},
        {"lengths": [1, 29]},
        {"lengths": [-3, 33]},
        {"lengths": 30},
        {"lengths": [15.0, 15.0]},
        {"tokens": ["a"] * 30},
        {"format": [1, 1]},
        {"name": ["a", "b"]},
        {"log_probs": [np.nan] * 28},
        {"top_ids": np.full((28, 64), -1)},
        {"top_ids": np.zeros((28, 1), np.int32), "top_log_probs": np.zeros((28, 1), np.float32)},
        {"top_log_probs": np.zeros((5, 64), np.float32)},
    ],
)
def test_a_damaged_golden_is_refused(damage: dict[str, Any], tokens: Ids, tmp_path: Path) -> None:
    read_windows(Told(), tokens[:30], 15).save(tmp_path / "g.npz", "t")
    with np.load(tmp_path / "g.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "g.npz", **{**arrays, **{name: np.array(value) for name, value in damage.items()}})
    with pytest.raises(InvalidInput, match=r"g\.npz"):
        Golden.load(tmp_path / "g.npz", "t")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"format": 1, "tokenizer": None}, "format is 1 and not 2"),
        ({"tokenizer": None}, "has no tokenizer"),
        ({"tokenizer": "another"}, "tokenizer another, expected the model's, t"),
    ],
)
def test_a_golden_of_another_kind_is_refused_by_name(
    damage: dict[str, Any], words: str, tokens: Ids, tmp_path: Path
) -> None:
    read_windows(Told(), tokens[:30], 15).save(tmp_path / "g.npz", "t")
    with np.load(tmp_path / "g.npz") as file:
        arrays: dict[str, Any] = {**file, **damage}
    np.savez(tmp_path / "g.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(InvalidInput, match=words):
        Golden.load(tmp_path / "g.npz", "t")


def test_one_array_is_no_golden(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.arange(3))
    with pytest.raises(InvalidInput, match=r"g\.npy"):
        Golden.load(tmp_path / "g.npy", "t")


@pytest.mark.parametrize(("count", "window"), [(1, 8), (0, 8), (9, 1)])
def test_too_short_for_a_prediction(count: int, window: int) -> None:
    with pytest.raises(InvalidInput, match="expected at least 2"):
        read_windows(Told(), np.zeros(count, np.int32), window)


def test_a_last_token_alone_is_left_out() -> None:
    golden = read_windows(Told(), np.arange(9, dtype=np.int32), 4)
    assert [len(window.tokens) for window in golden.windows] == [4, 4]


def test_a_damaged_engine_is_seen(engine: Engine, tokens: Ids) -> None:
    """The comparison is live: logits of the right engine under a small noise are told from the right ones."""

    class Damaged(EngineSide):
        def logits(self, tokens: Ids) -> npt.NDArray[np.float32]:
            logits = super().logits(tokens)
            noise = np.random.default_rng(5).standard_normal(logits.shape)
            moved: npt.NDArray[np.float32] = (logits + 0.05 * logits.std() * noise).astype(np.float32)
            return moved

    golden = read_windows(EngineSide(engine), tokens[:200], 100)
    right, damaged = compare(golden, EngineSide(engine)), compare(golden, Damaged(engine))
    assert right.divergence < 1e-9
    assert damaged.divergence > 1e-5


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("A lily is a flower that grows from a bulb. " * 20, encoding="utf-8")
    return path


def test_the_command_against_mlx(tiny: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_mlx()
    golden = tmp_path / "golden.npz"
    shared = ["verify", str(tiny), "--window", "64"]
    live = [*shared, "--text", str(text), "--positions", "150", "--save", str(golden)]
    assert cli.main(live) == 0
    words = capsys.readouterr().out
    assert "mlx-lm in float32" in words
    assert "147 predictions in 3 windows" in words
    assert "difference" in words
    assert cli.main([*live, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["positions"] == 147
    assert abs(found["difference"]) < 0.02
    assert cli.main([*shared, "--against", str(golden), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_the_command_against_a_device(tiny: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(tiny), "--text", str(text), "--against", "cpu", "--threads", "1", "--json"]
    assert cli.main([*arguments, "--activations", "bf16"]) == 0
    assert json.loads(capsys.readouterr().out)["divergence"] < 1e-9
    assert cli.main([*arguments, "--activations", "int8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 1e-5 < found["divergence"] < 0.05
    assert "int8" in found["tested"]


def test_the_command_says_what_is_missing(tiny: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tiny)]) == 1
    assert "--text" in capsys.readouterr().err
    text.write_bytes(b"\xff\xfe")
    assert cli.main(["verify", str(tiny), "--text", str(text), "--against", "cpu"]) == 1
    assert "not UTF-8" in capsys.readouterr().err
    text.write_text("a b c d", encoding="utf-8")
    assert cli.main(["verify", str(tiny), "--text", str(text), "--positions", "2", "--against", "cpu"]) == 0
    assert "1 prediction in 1 window\n" in capsys.readouterr().out


def test_no_option_is_passed_over(tiny: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = str(tmp_path / "golden.npz")
    live = ["verify", str(tiny), "--text", str(text), "--against", "cpu", "--positions"]
    assert cli.main([*live, "-1"]) == 1
    assert "positions is -1" in capsys.readouterr().err
    assert cli.main([*live, "9", "--save", golden]) == 0
    assert cli.main(["verify", str(tiny), "--against", golden, "--positions", "5"]) == 1
    assert "--positions" in capsys.readouterr().err
    assert cli.main([*live, "9", "--save", str(tmp_path / "golden")]) == 1
    assert ".npz" in capsys.readouterr().err


def test_a_golden_with_ids_beyond_the_model_is_refused(
    tiny: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "golden.npz"
    assert cli.main(["verify", str(tiny), "--text", str(text), "--against", "cpu", "--save", str(golden)]) == 0
    with np.load(golden) as file:
        arrays = dict(file)
    np.savez(golden, **{**arrays, "top_ids": arrays["top_ids"] + 10**6})
    assert cli.main(["verify", str(tiny), "--against", str(golden)]) == 1
    assert "another model" in capsys.readouterr().err


def test_a_golden_of_another_tokenizer_is_refused(
    tiny: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ids changed places, so the model's vocabulary has the same size, and nothing else would tell."""
    golden, other = tmp_path / "golden.npz", Path(shutil.copytree(tiny, tmp_path / "other"))
    assert cli.main(["verify", str(tiny), "--text", str(text), "--against", "cpu", "--save", str(golden)]) == 0
    content = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (other / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert cli.main(["verify", str(tiny), "--against", str(golden)]) == 0
    assert cli.main(["verify", str(other), "--against", str(golden)]) == 1
    assert "the model's, " + Tokenizer.open(other).digest[:8] in capsys.readouterr().err


def test_mlx_is_missing_by_name(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from lily.verify.sides import MlxSide

    monkeypatch.setitem(sys.modules, "mlx.core", None)
    with pytest.raises(DeviceError, match="pip install"):
        MlxSide(tiny)
