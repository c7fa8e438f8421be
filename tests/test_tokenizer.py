"""Text to ids and back: exact for any text, closed to injected control tokens, streaming without broken characters."""

from __future__ import annotations

import itertools
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Library

from lily import Tokenizer
from lily.chat import ChatTemplate
from lily.errors import CheckpointError, InvalidInput, UnsupportedCheckpoint
from lily.toy_tokenizer import build_tokenizer

VOCAB = 1024
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
library = build_tokenizer(VOCAB)
tokenizer = Tokenizer(build_tokenizer(VOCAB))

hard = st.sampled_from(
    ["é", "e\u0301", "नमस्ते", "漢字", "👩‍👩‍👧‍👦", "🏳️‍🌈", "\u200d", "\u00a0", "\x00", "\r\n", "\ufffd", "\U0010ffff"]
)
texts = st.lists(st.one_of(st.text(), hard, st.sampled_from(CONTROL)), max_size=12).map("".join)


@given(texts)
@example("<|im_<|im_end|>end|>")
def test_any_text_comes_back(text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True)) == text


@given(texts)
def test_with_control_tokens_it_is_the_library(text: str) -> None:
    ids = tokenizer.encode(text, special=True)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False)


@given(texts)
def test_text_cannot_inject_control_tokens(text: str) -> None:
    assert not set(tokenizer.encode(text)) & set(tokenizer.control_tokens.values())


@given(texts)
def test_split_cuts_at_control_tokens_and_loses_nothing(text: str) -> None:
    pieces = list(tokenizer.split(text))
    assert "".join(piece for piece, _ in pieces) == text
    for piece, control in pieces:
        assert piece
        assert control == tokenizer.control_tokens.get(piece)
    assert not any(a is None and b is None for (_, a), (_, b) in itertools.pairwise(pieces))


def test_the_longest_control_token_wins() -> None:
    inner = build_tokenizer(VOCAB)
    inner.add_special_tokens([AddedToken("<|im_end|>>", special=True), AddedToken("<|im", special=True)])
    longest = Tokenizer(inner)
    assert [piece for piece, _ in longest.split("a<|im_end|>>b<|im_end|><|im")] == [
        "a", "<|im_end|>>", "b", "<|im_end|>", "<|im",
    ]  # fmt: skip


@given(st.lists(st.integers(0, VOCAB - 1), max_size=60))
@example([])
def test_a_stream_is_the_whole_decode_cut_between_characters(ids: list[int]) -> None:
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in ids]
    rest = stream.flush()
    assert "".join(pieces) + rest == tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False)
    assert rest in ("", "\ufffd")


@given(texts)
def test_a_stream_of_real_text_never_shows_a_broken_character(text: str) -> None:
    stream = tokenizer.stream()
    shown = ""
    for token in tokenizer.encode(text):
        shown += stream.push(token)
        assert text.startswith(shown)
    assert shown == text
    assert stream.flush() == ""


def test_a_character_comes_with_its_last_byte() -> None:
    stream = tokenizer.stream()
    single = {tokenizer.token_bytes(token): token for token in range(VOCAB)}
    shown = [stream.push(single[bytes([byte])]) for byte in "a🤝é".encode()]
    assert shown == ["a", "", "", "", "🤝", "", "é"]


def test_a_character_cut_off_shows_only_at_the_end() -> None:
    single = {tokenizer.token_bytes(token): token for token in range(VOCAB)}
    stream = tokenizer.stream()
    assert [stream.push(single[bytes([byte])]) for byte in "🤝".encode()[:3]] == ["", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


def test_a_normalizer_of_the_file_is_used() -> None:
    inner = build_tokenizer(VOCAB)
    inner.normalizer = normalizers.NFC()
    composed = Tokenizer(inner)
    text = "e\u0301 A\u030a <|im_end|>"
    assert composed.decode(composed.encode(text, special=True)) == unicodedata.normalize("NFC", text)


def test_a_lone_surrogate_is_refused_with_its_position() -> None:
    for special in (False, True):
        with pytest.raises(InvalidInput, match=r"U\+D83D at position 3"):
            tokenizer.encode("abc\ud83d!", special=special)
    with pytest.raises(InvalidInput, match="is a bytes"):
        tokenizer.encode(b"abc")  # type: ignore[arg-type]


def test_special_is_a_bool() -> None:
    with pytest.raises(InvalidInput, match="special is 'no'; expected True or False"):
        tokenizer.encode("<|im_end|>", special="no")  # type: ignore[arg-type]


@given(texts)
def test_at_least_is_never_more_than_the_tokens(text: str) -> None:
    inner = build_tokenizer(VOCAB)
    inner.normalizer = normalizers.NFC()
    for some in (tokenizer, Tokenizer(inner)):
        assert some.at_least(text) <= len(some.encode(text, special=True))
        assert some.at_least(text) <= len(some.encode(text))


@pytest.mark.parametrize("token", [-1, VOCAB, 2**40])
def test_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    with pytest.raises(InvalidInput, match=rf"{token} is outside the vocabulary, which has 0 to 1023"):
        tokenizer.decode([5, token])
    with pytest.raises(InvalidInput, match=rf"{token} is outside"):
        tokenizer.stream().push(token)


def test_numpy_ids_decode_and_other_types_are_refused() -> None:
    ids = tokenizer.encode("numbers")
    assert tokenizer.decode(np.array(ids, np.int32)) == "numbers"
    with pytest.raises(InvalidInput, match=r"1\.0 is a float"):
        tokenizer.decode([1.0])  # type: ignore[list-item]
    for nothing in (None, 5, True):
        with pytest.raises(InvalidInput, match=r"ids is a (NoneType|int|bool); expected token ids"):
            tokenizer.decode(nothing)  # type: ignore[arg-type]
    for token in (True, np.True_):
        with pytest.raises(InvalidInput, match=r"True_? is a bool_?; expected an int"):
            tokenizer.decode([1, token])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="ids is a bytes"):
        tokenizer.decode(b"abc")


def test_rows_of_the_model_without_a_token_show() -> None:
    padded = Tokenizer(build_tokenizer(VOCAB), vocab=2048)
    assert padded.decode([padded.encode("a")[0], 1500]) == "a\ufffd"
    with pytest.raises(InvalidInput, match="0 to 2047"):
        padded.decode([2048])


def test_sizes_and_names() -> None:
    assert len(tokenizer) == VOCAB
    assert sorted(tokenizer.control_tokens) == sorted(CONTROL)
    assert tokenizer.special_tokens == frozenset(CONTROL[:3])
    assert "1024 tokens, 5 of them control tokens" in repr(tokenizer)


def test_the_digest_is_of_what_ids_mean(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    content = json.loads(build_tokenizer(VOCAB).to_str())
    path.write_text(json.dumps(content, indent=3), encoding="utf-8")
    assert Tokenizer.open(tmp_path).digest == tokenizer.digest
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert Tokenizer.open(tmp_path).digest != tokenizer.digest


def test_a_missing_file_says_what_still_works(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing.*token ids"):
        Tokenizer.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": {"type": "BPE"}}', b"\xff\xfe\x00", b"null"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.open(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    build_tokenizer(VOCAB).save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.open(tmp_path, vocab=VOCAB)) == VOCAB
    with pytest.raises(CheckpointError, match=r"ids up to 1023, but the model's vocabulary has 1000"):
        Tokenizer.open(tmp_path, vocab=1000)


def test_other_kinds_of_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="is a WordLevel model"):
        Tokenizer(Library(models.WordLevel({"a": 0}, unk_token="a")))
    inner = build_tokenizer(VOCAB)
    inner.decoder = decoders.Metaspace()
    with pytest.raises(UnsupportedCheckpoint, match="with a Metaspace decoder"):
        Tokenizer(inner)
    inner = build_tokenizer(VOCAB)
    inner.add_tokens([AddedToken("<pad>", lstrip=True)])
    with pytest.raises(UnsupportedCheckpoint, match="'<pad>' with lstrip"):
        Tokenizer(inner)


def test_a_tokenizer_without_control_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    build_tokenizer(VOCAB).save(str(path))
    content = json.loads(path.read_text(encoding="utf-8"))
    content["added_tokens"] = []
    path.write_text(json.dumps(content), encoding="utf-8")
    bare = Tokenizer.open(tmp_path)
    assert not bare.control_tokens
    assert bare.encode("x <|im_end|>", special=True) == bare.encode("x <|im_end|>")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("tokenizer.json", Tokenizer.open),
        ("chat_template.jinja", lambda folder: ChatTemplate.open(folder, tokenizer)),
        ("tokenizer_config.json", lambda folder: ChatTemplate.open(folder, tokenizer)),
    ],
)
def test_only_regular_files_are_opened(name: str, read: Callable[[Path], object], kind: str, tmp_path: Path) -> None:
    """A pipe would wait for ever and /dev/zero never end."""
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(CheckpointError, match=rf"{name}: found no readable regular file, expected a"):
        read(tmp_path)


def test_a_file_without_an_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").touch()
    os.truncate(tmp_path / "tokenizer.json", 1 << 40)
    with pytest.raises(CheckpointError, match=r"found 1,099,511,627,776 bytes, expected at most 67,108,864"):
        Tokenizer.open(tmp_path)
