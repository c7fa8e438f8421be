"""Checks of arguments that several calls share; each refusal names the argument, its value and what is allowed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidInput

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]


def switch(value: object, name: str) -> bool:
    """`value` if it is True or False. The str "off" is true to Python, so nothing else stands for a switch."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} is {value!r}; expected True or False.")
    return value


def callback(value: object, name: str) -> None:
    """Refuses what is neither None nor can be called."""
    if value is not None and not callable(value):
        raise InvalidInput(f"{name} is {value!r}; expected a function of two numbers, done and in all, or None.")


def count(value: object, name: str, most: int) -> int:
    """`value` as an int from 1 to `most`."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise InvalidInput(f"{name} is {value!r}; expected a whole number from 1 to {most}.")
    return number


def token_array(tokens: Tokens, vocab: int) -> npt.NDArray[np.int32]:
    """`tokens` as int32 [n], every id checked against the vocabulary."""
    if isinstance(tokens, (str, bytes, bytearray)):
        raise InvalidInput(
            f"tokens is a {type(tokens).__name__}; expected token ids: engine.tokenizer.encode(text) makes them."
        )
    if not isinstance(tokens, Sequence) and not hasattr(tokens, "__array__"):
        raise InvalidInput(
            f"tokens is a {type(tokens).__name__}; expected one row of integers, the token ids: a list of int or an "
            "int array."
        )
    if isinstance(tokens, (list, tuple)):  # numpy would make an int of a bool among ints
        for at, token in enumerate(tokens):
            if isinstance(token, (bool, np.bool_)):
                raise InvalidInput(f"tokens[{at}] is {token!r}; expected an int, the id of a token.")
    try:
        ids = np.asarray(tokens)
    except (ValueError, TypeError):  # ragged, or objects that refuse
        raise InvalidInput(
            "tokens cannot be read as one row of token ids; expected a list of int or an int array."
        ) from None
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InvalidInput(
            f"tokens has shape {list(ids.shape)} and type {ids.dtype}; expected one row of integers, the token ids."
        )
    outside = np.flatnonzero((ids < 0) | (ids >= vocab))
    if outside.size:
        at = int(outside[0])
        raise InvalidInput(f"tokens[{at}] is {ids[at]}; the vocabulary has 0 to {vocab - 1}.")
    return np.ascontiguousarray(ids, dtype=np.int32)
