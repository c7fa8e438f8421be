"""Text to token ids and back, for the byte-level BPE of tokenizer.json.

The `tokenizers` library turns ordinary text into ids. Control tokens (every added token of the file, such as
<|im_end|> or <think>) are found here instead, and only when asked for, so that a text can never inject one. Decoding
is bytes: each id stands for some bytes, read as UTF-8 together. Chat templates and stop strings are not known here.
"""

from __future__ import annotations

import codecs
import hashlib
import operator
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from .arguments import switch
from .errors import CheckpointError, ContextOverflow, InvalidInput, UnsupportedCheckpoint
from .local_files import read_small_file

_LONG = 1 << 16  # characters
_UNASSIGNED = b"\xff"  # never valid in UTF-8: an id without a token shows as U+FFFD, not as nothing


def check_text(text: object, what: str = "the text") -> str:
    """`text` if it is a str that UTF-8 can carry. Raises InvalidInput with the position of a lone surrogate."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is a {type(text).__name__}; expected a str.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{what} has the lone surrogate U+{ord(text[error.start]):04X} at position {error.start}, which is not a "
            "character; decode the bytes it came from with errors='replace', or remove it."
        ) from None
    return text


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE (GPT-2): printable Latin-1 stands for itself, the other bytes, in order, for
    the characters from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = sorted(set(range(256)) - set(printable))
    return table | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_of_character()


class Tokenizer:
    """The tokenizer of one checkpoint. Thread-safe: nothing changes after it was opened.

    `vocab` is the number of rows of the model's output, which may be more than the tokenizer has tokens.
    """

    def __init__(self, inner: Any, *, vocab: int | None = None, origin: str = "the tokenizer") -> None:
        from tokenizers import AddedToken, decoders, models

        if not isinstance(inner.model, models.BPE) or not isinstance(inner.decoder, decoders.ByteLevel):
            raise UnsupportedCheckpoint(
                f"{origin} is a {type(inner.model).__name__} model with a {type(inner.decoder).__name__} decoder; lily "
                "reads byte-level BPE (model BPE, decoder ByteLevel). The engine still runs on token ids."
            )
        added: dict[int, Any] = inner.get_added_tokens_decoder()
        for token in added.values():
            if token.lstrip or token.rstrip or token.single_word:
                raise UnsupportedCheckpoint(
                    f"{origin} has the added token {token.content!r} with lstrip, rstrip or single_word; lily matches "
                    "added tokens exactly as written."
                )
        size = max([inner.get_vocab_size(with_added_tokens=False) - 1, *added]) + 1
        if vocab is not None and size > vocab:
            raise CheckpointError(
                f"{origin} has token ids up to {size - 1}, but the model's vocabulary has {vocab} entries; the "
                "tokenizer belongs to another model."
            )
        # With all added tokens registered as special, this flag keeps the library from matching any of them.
        inner.add_special_tokens([AddedToken(token.content, special=True) for token in added.values()])
        inner.encode_special_tokens = True
        self._inner = inner
        self._vocab = size if vocab is None else vocab
        self._control = {token.content: index for index, token in added.items()}
        self._special = frozenset(token.content for token in added.values() if token.special)
        self._control_bytes: dict[int, bytes] = {index: token.content.encode() for index, token in added.items()}
        longest_first = sorted(self._control, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._size: int = size

    @classmethod
    def open(cls, folder: Path, vocab: int | None = None) -> Tokenizer:
        """Reads `folder`/tokenizer.json. Raises CheckpointError (missing, broken, or more ids than the model's `vocab`)
        and UnsupportedCheckpoint (not byte-level BPE)."""
        import tokenizers

        path = folder / "tokenizer.json"
        if not path.exists():
            raise CheckpointError(
                f"{path} is missing, so text cannot be turned into tokens; copy it from the model's repository, or "
                "work with token ids."
            )
        data = read_small_file(path, "a tokenizer", "fetch it again")
        try:
            inner = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path} cannot be read: {error}; fetch it again.") from None
        return cls(inner, vocab=vocab, origin=str(path))

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"<lily.Tokenizer {self._size} tokens, {len(self._control)} of them control tokens>"

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Every added token and its id: what `encode(..., special=True)` finds in a text."""
        return MappingProxyType(self._control)

    @property
    def special_tokens(self) -> frozenset[str]:
        """The control tokens that the file marks special: turn and document borders, not <think> and the like."""
        return self._special

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of `text`. Control tokens written in the text are ordinary characters unless `special` is True.
        Nothing is added before or after. Raises InvalidInput for a lone surrogate."""
        check_text(text)
        if not switch(special, "special"):
            return self._ordinary(text)
        ids: list[int] = []
        for piece, control in self.split(text):
            ids.extend(self._ordinary(piece) if control is None else (control,))
        return ids

    def at_least(self, text: str) -> int:
        """A number of tokens that `text` has for certain, at a small part of the cost of `encode`: no token stands for
        more bytes than the longest one of the vocabulary. Raises InvalidInput for a lone surrogate."""
        check_text(text)
        if self._inner.normalizer is not None:
            text = self._inner.normalizer.normalize_str(text)
        return -(-len(text.encode()) // self._longest)

    def require_room(self, text: str, most: int) -> None:
        """Raises ContextOverflow for a text that has more than `most` tokens for certain; a short one is not looked at,
        because to encode it takes no time."""
        if len(text) > _LONG and (tokens := self.at_least(text)) > most:
            raise ContextOverflow(
                f"a prompt of {len(text):,} characters has at least {tokens:,} tokens; max_context is {most}. Shorten "
                "the prompt, or load the engine with a larger one.",
                tokens, most,
            )  # fmt: skip

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, over the bytes that each id stands for: who shares it means the same by every id."""
        found = hashlib.sha256()
        for piece in map(self.token_bytes, range(self._size)):
            found.update(len(piece).to_bytes(4, "little") + piece)
        return found.hexdigest()

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest token; a control token is encoded whole only where it is asked for."""
        pieces = self._inner.get_vocab(with_added_tokens=False)  # one character stands for one byte
        return max(1, *map(len, pieces), *map(len, self._control_bytes.values()))

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of ordinary `text`, and for each the characters (code points) that it stands for, end exclusive.
        Tokens that share a character have the same. Raises InvalidInput for a lone surrogate."""
        check_text(text)
        encoding = self._inner.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def split(self, text: str) -> Iterable[tuple[str, int | None]]:
        """`text` cut at control tokens (the longest at each place): pairs of a piece and its id, None for ordinary
        text. The pieces joined are the text."""
        end = 0
        for match in self._pattern.finditer(text):
            if match.start() > end:
                yield text[end : match.start()], None
            yield match.group(), self._control[match.group()]
            end = match.end()
        if end < len(text):
            yield text[end:], None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, control tokens included. Bytes that are not UTF-8, and ids of the vocabulary that have no
        token, become U+FFFD. Raises InvalidInput for an id outside the vocabulary."""
        if isinstance(ids, (str, bytes, bytearray)) or not isinstance(ids, Iterable):
            raise InvalidInput(f"ids is a {type(ids).__name__}; expected token ids, such as a list of int.")
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one id stands for; a character may need several. Raises InvalidInput for another."""
        try:
            if isinstance(token, (bool, np.bool_)):
                raise TypeError("a bool is no id")
            index = operator.index(token)
        except TypeError:
            raise InvalidInput(f"token id {token!r} is a {type(token).__name__}; expected an int.") from None
        if not 0 <= index < self._vocab:
            raise InvalidInput(f"token id {index} is outside the vocabulary, which has 0 to {self._vocab - 1}.")
        control: bytes | None = self._control_bytes.get(index)
        if control is not None:
            return control
        name: str | None = self._inner.id_to_token(index)
        if name is None:
            return _UNASSIGNED
        try:
            return bytes([_BYTE_OF[character] for character in name])
        except KeyError:  # a token outside the byte alphabet stands for itself
            return name.encode()

    def stream(self) -> TokenStream:
        """A decoder for ids that arrive one by one."""
        return TokenStream(self)

    def _ordinary(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids


class TokenStream:
    """Decodes ids one by one and never splits a character (a code point): text comes out as soon as its last byte is
    there. All that push and flush returned, joined, equals `decode` of all the ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes, often none or one piece of a word. Raises InvalidInput as `decode` does."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD if the last character never became whole. The stream is as new afterwards."""
        return self._decoder.decode(b"", final=True)
