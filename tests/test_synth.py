"""Random checkpoints: the format of the converter to the byte, and weights with the statistics of a real model."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
import pytest
from checkpoint_files import SMALL, read_safetensors, shaped, tensors_of
from hf_source import Model
from hypothesis import given
from hypothesis import strategies as st
from mlx_oracle import MlxOracle, convert
from safetensors import safe_open
from tokenizers import Tokenizer

from lily import synth
from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, InvalidInput
from lily.toy_tokenizer import CONTROL, MINIMUM_VOCAB, build_tokenizer

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Floats = npt.NDArray[np.float32]


def read(path: Path) -> dict[str, object]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def widen(raw: bytes) -> Floats:
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)


# Format


def test_the_format_is_that_of_the_converter(tmp_path: Path) -> None:
    model = Model(layers=5)
    theirs = convert(model, 1, tmp_path)
    with open_checkpoint(theirs) as checkpoint:
        shape = checkpoint.architecture
    ours = synth.write_checkpoint(tmp_path / "ours", shape, seed=1)
    expected = {name: (dtype, dims) for name, (dtype, dims, _) in tensors_of(theirs / WEIGHTS).items()}
    found = {name: (dtype, dims) for name, (dtype, dims, _) in tensors_of(ours / WEIGHTS).items()}
    # The converter keeps A_log and the gated norm as its source has them; the real source has A_log in float32.
    assert {name for name in expected if expected[name] != found.get(name)} <= {
        name for name in expected if name.endswith(("A_log", "linear_attn.norm.weight"))
    }
    assert set(found) == set(expected)
    assert read_safetensors(ours / WEIGHTS)[0]["__metadata__"] == read_safetensors(theirs / WEIGHTS)[0]["__metadata__"]
    mine, other = read(ours / "config.json"), read(theirs / "config.json")
    assert mine["quantization"] == mine["quantization_config"] == other["quantization"]
    index, other_index = read(ours / INDEX), read(theirs / INDEX)
    assert index["weight_map"] == other_index["weight_map"]
    assert isinstance(index["metadata"], dict)
    assert isinstance(other_index["metadata"], dict)
    assert index["metadata"]["total_parameters"] == other_index["metadata"]["total_parameters"]
    assert index["metadata"]["total_size"] == sum(len(raw) for _, _, raw in tensors_of(ours / WEIGHTS).values())


def test_mlx_runs_it_and_the_logits_are_sane(tmp_path: Path) -> None:
    folder = synth.write_checkpoint(tmp_path / "model", synth.TINY, seed=5)
    tokens = np.random.default_rng(5).integers(0, synth.TINY.vocab, 48)
    logits = MlxOracle(folder).logits(tokens)
    assert np.isfinite(logits).all()
    assert 0.7 < float(logits.std()) < 1.4
    assert len(set(logits.argmax(-1).tolist())) > 24, "positions differ"


def test_the_header_is_as_long_as_it_is(tmp_path: Path) -> None:
    """Like MLX: no padding, so that the data of an ordinary checkpoint begins anywhere."""
    raw = (synth.write_checkpoint(tmp_path / "model", SMALL, tokenizer=False) / WEIGHTS).read_bytes()
    assert raw[8 + int.from_bytes(raw[:8], "little") - 1 :][:1] == b"}"


def test_shards_follow_the_limit(tmp_path: Path) -> None:
    limit = 60_000
    folder = synth.write_checkpoint(tmp_path / "model", SMALL, shard_bytes=limit, tokenizer=False)
    files = sorted(folder.glob("model-*-of-*.safetensors"))
    assert [f.name for f in files] == [f"model-{n + 1:05d}-of-{len(files):05d}.safetensors" for n in range(len(files))]
    weight_map = read(folder / INDEX)["weight_map"]
    assert isinstance(weight_map, dict)
    for file in files:
        tensors = tensors_of(file)
        assert len(tensors) == 1 or sum(len(raw) for _, _, raw in tensors.values()) <= limit
        assert all(weight_map[name] == file.name for name in tensors)
    whole = tensors_of(synth.write_checkpoint(tmp_path / "whole", SMALL, tokenizer=False) / WEIGHTS)
    assert {name: entry for file in files for name, entry in tensors_of(file).items()} == whole


# Weights


def test_the_seed_decides_every_byte(tmp_path: Path) -> None:
    one, same, other = (
        tensors_of(synth.write_checkpoint(tmp_path / name, SMALL, seed=seed, tokenizer=False) / WEIGHTS)
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same
    assert not any(one[name][2] == other[name][2] for name in one)
    deeper = tensors_of(synth.write_checkpoint(tmp_path / "deep", shaped(layers=8), seed=1, tokenizer=False) / WEIGHTS)
    assert all(deeper[name] == one[name] for name in one)


@pytest.mark.parametrize("bits", [4, 8])
def test_matrices(bits: int, tmp_path: Path) -> None:
    """Uniform codes; weights of zero mean whose deviation keeps activations at unit size; biases that matter."""
    tensors = tensors_of(synth.write_checkpoint(tmp_path / "m", synth.TINY, seed=6, bits=bits) / WEIGHTS)
    paths = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    assert len(paths) == 104
    for path in paths:
        scales, biases = widen(tensors[path + ".scales"][2]), widen(tensors[path + ".biases"][2])
        width = 8 if path.endswith(("mlp.gate", "shared_expert_gate")) else bits
        raw = np.frombuffer(tensors[path + ".weight"][2], np.uint8)
        codes = raw if width == 8 else np.stack([raw & 15, raw >> 4], -1).ravel()
        weights = codes.reshape(-1, 64) * scales[:, None] + biases[:, None]
        cols = tensors[path + ".scales"][1][-1] * 64
        gain = math.sqrt(cols) if path.endswith("embed_tokens") else 2.0 if path.endswith("mlp.gate") else 1.0
        noise = 6 / math.sqrt(weights.size)
        assert weights.std() * math.sqrt(cols) / gain == pytest.approx(1, abs=0.04 + noise)
        assert abs(weights.mean()) * math.sqrt(cols) / gain < noise
        if codes.size > 4096:
            counts = np.bincount(codes, minlength=1 << width)
            assert counts.min() > 0
            assert np.abs(biases / scales + ((1 << width) - 1) / 2).max() > 0.3, "not only the middle of the codes"


def test_decays_are_spread(tmp_path: Path) -> None:
    tensors = tensors_of(synth.write_checkpoint(tmp_path / "model", synth.TINY, seed=7, tokenizer=False) / WEIGHTS)
    rates = np.concatenate([np.frombuffer(t[2], np.float32) for name, t in tensors.items() if name.endswith("A_log")])
    steps = np.concatenate([widen(t[2]) for name, t in tensors.items() if name.endswith("dt_bias")])
    decay = np.exp(-np.exp(rates) * np.log1p(np.exp(steps)))
    assert decay.min() < 0.3
    assert decay.max() > 0.98
    assert 0.5 < np.median(decay) < 0.98
    assert ((decay > 0) & (decay < 1)).all()


# The folder


def test_progress_and_the_index(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = synth.write_checkpoint(tmp_path / "m", SMALL, progress=lambda done, total: seen.append((done, total)))
    total = sum(len(raw) for _, _, raw in tensors_of(folder / WEIGHTS).values())
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_an_empty_folder_is_taken_and_a_used_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    open_checkpoint(synth.write_checkpoint(tmp_path / "empty", SMALL)).close()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("x")
    for name in ("empty", "link", "file"):
        with pytest.raises(CheckpointError, match=r"exists, expected a new or empty folder; choose another"):
            synth.write_checkpoint(tmp_path / name, SMALL)
    assert (tmp_path / "file").read_text() == "x"


def test_a_full_disk_is_seen_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 1_000_000))
    with pytest.raises(CheckpointError) as caught:
        synth.write_checkpoint(tmp_path / "full", synth.FULL)
    assert "found 1,000,000 bytes free" in str(caught.value)
    assert "expected 19,508,789,376 for the checkpoint" in str(caught.value)
    assert "free 19,574,898,240 bytes" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert synth.write_checkpoint("a", SMALL) == tmp_path / "a"
    assert synth.write_checkpoint("~/b", SMALL) == tmp_path / "b"
    with pytest.raises(InvalidInput, match="no home folder is known for ~nobody-has-this-name"):
        synth.write_checkpoint("~nobody-has-this-name/x", SMALL)


def test_nothing_is_left_of_an_attempt_that_fails(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synth.write_checkpoint(tmp_path / "model", SMALL, progress=stop)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"cannot be written .*choose another place"):
        synth.write_checkpoint(tmp_path / "file" / "model", SMALL)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bits": 3}, "bits is 3, expected 4 or 8"),
        ({"header_residue": 16}, "header_residue is 16, expected None or 0 to 15"),
        ({"progress": 5}, "progress is 5; expected a function of two numbers"),
        ({"out": os.fsdecode(b"\xff")}, "whose bytes are not UTF-8"),
        ({"tokenizer": "no"}, "tokenizer is 'no'; expected True or False"),
        ({"shape": shaped(vocab=260)}, "vocab is 260, expected 261 to "),
        ({"shape": shaped(vocab=400_000)}, "vocab is 400000, expected 261 to "),
    ],
)
def test_arguments(options: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=says):
        synth.write_checkpoint(**({"out": tmp_path / "model"} | options))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# Tokenizer and template


@pytest.mark.parametrize("vocab", [MINIMUM_VOCAB, 1024, 70_000, synth.FULL.vocab])
def test_every_id_is_a_token(vocab: int) -> None:
    tokenizer = build_tokenizer(vocab)
    assert tokenizer.get_vocab_size() == vocab
    assert len(set(tokenizer.get_vocab().values())) == vocab
    assert [tokenizer.id_to_token(vocab - len(CONTROL) + i) for i in range(len(CONTROL))] == list(CONTROL)
    text = "Žluťoučký kůň\n\t日本語 🦊 the end<|im_end|>"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


TINY_TOKENIZER = build_tokenizer(synth.TINY.vocab)


@given(st.text() | st.lists(st.sampled_from([*CONTROL, " ", "a", "\x00", "é", "🦊"])).map("".join))
def test_any_text_comes_back(text: str) -> None:
    ids = TINY_TOKENIZER.encode(text).ids
    assert TINY_TOKENIZER.decode(ids, skip_special_tokens=False) == text
    assert len(ids) <= len(text.encode())


def test_common_words_are_short() -> None:
    assert len(TINY_TOKENIZER.encode(" the rain in spain").ids) < 14


def test_files_agree(tmp_path: Path) -> None:
    folder = synth.write_checkpoint(tmp_path / "model", synth.TINY)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()
    stop = [vocabulary["<|im_end|>"], vocabulary["<|endoftext|>"]]
    assert read(folder / "generation_config.json")["eos_token_id"] == stop
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.stop_ids == tuple(sorted(stop))
        assert checkpoint.architecture.vocab == tokenizer.get_vocab_size()
    template = jinja2.Environment(autoescape=False).from_string(
        str(read(folder / "tokenizer_config.json")["chat_template"])
    )
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi <&>"}]
    head = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi <&><|im_end|>\n"
    assert template.render(messages=messages) == head
    assert template.render(messages=messages, add_generation_prompt=True) == head + "<|im_start|>assistant\n"
    quiet = template.render(messages=messages, add_generation_prompt=True, enable_thinking=False)
    assert quiet == head + "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_the_safetensors_library_accepts_it(tmp_path: Path) -> None:
    folder = synth.write_checkpoint(tmp_path / "model", SMALL)
    with safe_open(folder / WEIGHTS, framework="numpy") as opened:
        assert opened.metadata() == {"format": "mlx"}
        assert len(opened.keys()) == len(tensors_of(folder / WEIGHTS))
