"""Which tokens end an answer: the union of what the three config files of a checkpoint say.

One file alone is not enough: published checkpoints name <|im_end|> in one and <|endoftext|> in another, and a set taken
from one of them runs on into a second turn. Whether a text ends is the tokenizer's and the engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import CheckpointError
from .local_files import read_small_file
from .strict_json import read_object, shown

_ADVICE = "correct the file or take it from the source of the weights"


def read_stop_ids(
    folder: Path, config: Mapping[str, Any], text: Mapping[str, Any], generation: Mapping[str, Any], vocab: int
) -> tuple[int, ...]:
    """The stop ids, ascending; empty if no file names one. `generation` is the parsed generation_config.json or {}.

    Raises CheckpointError for ids that are no integers below `vocab` and for an eos_token that the tokenizer lacks.
    """
    found: set[int] = set()
    for scope, where in ((config, "config.json"), (text, "config.json"), (generation, "generation_config.json")):
        value = scope.get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for item in ids:
            if type(item) is not int or not 0 <= item < vocab:
                raise CheckpointError(
                    f"{folder / where}: eos_token_id has {shown(item)}, expected ids from 0 to {vocab - 1}; {_ADVICE}"
                )
            found.add(item)
    token_id = _eos_token_id(folder)
    if token_id is not None:
        if not 0 <= token_id < vocab:
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'}: eos_token has id {token_id}, expected at most "
                f"{vocab - 1}, the vocabulary of config.json; {_ADVICE}"
            )
        found.add(token_id)
    return tuple(sorted(found))


def _eos_token_id(folder: Path) -> int | None:
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return None
    config = read_object(path)
    token = config.get("eos_token")
    if isinstance(token, Mapping):
        token = token.get("content")
    if token is None:
        return None
    if not isinstance(token, str):
        raise CheckpointError(f"{path}: eos_token is {shown(token)}, expected a string; {_ADVICE}")
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, Mapping):
        for key, value in decoder.items():
            if isinstance(value, Mapping) and value.get("content") == token:
                return _id(key, path)
    return _id_in_tokenizer(folder / "tokenizer.json", token)


def _id(key: str, path: Path) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 20):  # thousands of digits are no number to Python
        raise CheckpointError(f"{path}: added_tokens_decoder has the key {shown(key)}, expected a token id; {_ADVICE}")
    return int(key)


def _id_in_tokenizer(path: Path, token: str) -> int | None:
    if not path.exists():  # a checkpoint without a tokenizer: ids in, ids out
        return None
    data = read_small_file(path, "a tokenizer", _ADVICE)
    try:
        text = data.decode("utf-8")
        for item in _added_tokens(text):
            if isinstance(item, Mapping) and item.get("content") == token and type(item.get("id")) is int:
                return int(item["id"])
        vocab = json.loads(text)["model"]["vocab"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: cannot be read as a tokenizer ({type(error).__name__}: {error}), expected the JSON "
            f"of the tokenizers library; {_ADVICE}"
        ) from None
    token_id = vocab.get(token) if isinstance(vocab, Mapping) else None
    if type(token_id) is not int:
        raise CheckpointError(
            f"{path}: has no token {shown(token)}, expected the eos_token of tokenizer_config.json; {_ADVICE}"
        )
    return token_id


def _added_tokens(text: str) -> list[Any]:
    """The list of added tokens, near the start of a tokenizer.json of 20 MB, without parsing the rest."""
    key = '"added_tokens"'
    start = text.find("[", text.find(key)) if key in text else -1
    if start < 0:
        return []
    value, _ = json.JSONDecoder().raw_decode(text, start)
    return value if isinstance(value, list) else []
