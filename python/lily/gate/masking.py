"""Values out, placeholders in, and back: the vault of one session, and what the other operators write.

A placeholder is [TYPE_n]. `restore` also knows the forms that models make of one: other brackets or none, other case,
a blank or hyphen for the underscore, a plural or genitive ending. Whatever in a text looks like a placeholder is kept
apart from those of the vault, so that restoring a masked text gives the text, character for character. Which spans
are masked is the policy's business.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..display import counted
from ..errors import InvalidInput
from .policy import Operator, form
from .spans import LABELS, Span

_TYPES = {
    "private_person": "PERSON",
    "private_email": "EMAIL",
    "private_phone": "PHONE",
    "private_address": "ADDRESS",
    "private_url": "URL",
    "private_date": "DATE",
    "account_number": "ACCOUNT",
    "account_number/payment_card": "CARD",
    "account_number/iban": "IBAN",
    "account_number/government_id": "ID",
    "account_number/cvv": "CVV",
    "secret": "SECRET",
    "other_pii": "PII",
    "other_pii/ip": "IP",
    "other_pii/mac": "MAC",
    "other_pii/username": "USERNAME",
    "other_pii/denied": "TERM",
}
LITERAL = "LITERAL"
"""The type of what stood in a text and looks like a placeholder of the vault."""
WHOLE = "TEXT"
"""The type of a text that was masked as a whole, because it could not be read."""

_NAMES = "|".join(sorted({*_TYPES.values(), LITERAL, WHOLE}, key=len, reverse=True))
_NUMBER = "([1-9][0-9]{0,6})"
_ENDING = "((?:['\u2019]s?|s)?)"
_BODY = rf"\s{{0,3}}((?i:{_NAMES}))(?:\\?_|[-\s:#\u00a0\u2010-\u2013]){{0,2}}{_NUMBER}{_ENDING}\s{{0,3}}"
_BARE_END = r"(?![A-Za-z0-9_]|[.,][0-9])"
_PLACEHOLDER = re.compile(
    "|".join(
        [
            rf"\\\[{_BODY}\\\]",
            rf"\[{_BODY}\]",
            rf"<{_BODY}>",
            rf"\{{{_BODY}\}}",
            rf"\u3010{_BODY}\u3011",
            rf"\uff3b{_BODY}\uff3d",
            rf"(?i:%5B){_BODY}(?i:%5D)",
            rf"(?<![A-Za-z0-9_])({_NAMES})(?:\\?_|[- \u00a0\u2010-\u2013]){_NUMBER}{_ENDING}{_BARE_END}",
            rf"(?<![A-Za-z0-9_])((?i:{_NAMES}))\\?_{_NUMBER}{_ENDING}{_BARE_END}",
        ]
    ),
    re.ASCII,
)

Key = tuple[str, int]


class _Mention(NamedTuple):
    """Something in a text that reads as a placeholder."""

    start: int
    end: int
    key: Key
    ending: str
    certain: bool  # in brackets, or in capitals: nobody writes that by chance


def mentions(text: str) -> Iterator[_Mention]:
    """Everything in a text that `restore` would take for a placeholder, from left to right."""
    for match in _PLACEHOLDER.finditer(text):
        last = match.lastindex or 0  # each form has three groups: name, number, ending
        name = match[last - 2]
        certain = not match[0][0].isalpha() or name.isupper()
        yield _Mention(match.start(), match.end(), (name.upper(), int(match[last - 1])), match[last], certain)


class Restored(str):
    """An answer with its values back. `unknown` has the placeholders that were left, for no value of the session has
    them; `replaced` is how many were.
    """

    unknown: tuple[str, ...]
    replaced: int

    def __new__(cls, text: str, unknown: tuple[str, ...] = (), replaced: int = 0) -> Restored:
        """An answer; `mask` and `restore` make these, callers only read them."""
        self = super().__new__(cls, text)
        self.unknown = unknown
        self.replaced = replaced
        return self


class Vault:
    """The values of one session and their placeholders. Safe for concurrent use."""

    def __init__(self, hash_key: bytes | None = None) -> None:
        self._keys: dict[str, Key] = {}
        self._values: dict[Key, str] = {}
        self._next: dict[str, int] = {}
        self._foreign: set[Key] = set()  # numbers that stand in a text of the session and are no placeholder of it
        self._hash_key = secrets.token_bytes(32) if hash_key is None else hash_key
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Vault of {counted(len(self), 'value')}>"

    def reserve(self, texts: Iterable[str]) -> None:
        """Never gives away a placeholder that already stands in one of these texts. Call it before `mask`."""
        with self._lock:
            for text in texts:
                self._foreign.update(found.key for found in mentions(text) if found.key not in self._values)

    def mask(self, text: str, spans: Iterable[tuple[Span, Operator]], *, answer: bool = False) -> str:
        """The text with what each operator writes in place of its span. The spans are sorted and apart.

        In a model's own `answer` the placeholders of the session are left as they are; elsewhere they are what somebody
        wrote, and are masked themselves.
        """
        self.reserve([text])
        with self._lock:
            parts: list[str] = []
            ours: set[tuple[int, int]] = set()
            at = size = 0
            for span, operator in spans:
                value = text[span.start : span.end]
                before = text[at : span.start]
                written = self._written(span, value, operator)
                size += len(before)
                if operator.kind == "placeholder":
                    ours.add((size, size + len(written)))
                size += len(written)
                parts += (before, written)
                at = span.end
            parts.append(text[at:])
            return self._without_strangers("".join(parts), ours, answer)

    def whole(self, text: str) -> str:
        """One placeholder for the whole text; an empty text as it is."""
        with self._lock:
            return self._placeholder(WHOLE, text) if text else text

    def restore(self, answer: str) -> Restored:
        """The answer with every placeholder of the session turned back into its value. Raises InvalidInput for what is
        no str."""
        given: object = answer  # of a function that somebody else wrote
        if not isinstance(given, str):
            raise InvalidInput(f"the answer is a {type(given).__name__}; expected a str.")
        parts: list[str] = []
        unknown: dict[str, None] = {}
        at = replaced = 0
        with self._lock:
            for found in mentions(answer):
                value = self._values.get(found.key)
                if value is None:
                    if found.certain and found.key not in self._foreign:
                        unknown[answer[found.start : found.end]] = None
                    continue
                parts += (answer[at : found.start], value, found.ending)
                at = found.end
                replaced += 1
        parts.append(answer[at:])
        return Restored("".join(parts), tuple(unknown), replaced)

    def _without_strangers(self, masked: str, ours: set[tuple[int, int]], answer: bool) -> str:
        """Whatever else in a masked text would be restored, masked in its turn."""
        seen = list(mentions(masked))
        # A span may have cut a shorter one out of what `reserve` saw.
        self._foreign.update(found.key for found in seen if found.key not in self._values)
        parts: list[str] = []
        at = 0
        for found in seen:
            if (found.start, found.end) in ours or found.key in self._foreign or (answer and found.certain):
                continue
            parts += (masked[at : found.start], self._placeholder(LITERAL, masked[found.start : found.end]))
            at = found.end
        parts.append(masked[at:])
        return "".join(parts)

    def _written(self, span: Span, value: str, operator: Operator) -> str:
        name = _TYPES.get(f"{span.label}/{span.sub}", _TYPES[span.label])
        if operator.kind == "placeholder":
            return self._placeholder(name, value)
        if operator.kind == "redact":
            return "[REDACTED]"
        if operator.kind == "mask":
            return _covered(value, operator)
        digest = hmac.new(self._hash_key, f"{span.label}\0{form(value)}".encode(), hashlib.sha256).hexdigest()
        return f"[{name}:h{digest[:12]}]"

    def _placeholder(self, name: str, value: str) -> str:
        key = self._keys.get(value)
        if key is None:
            number = self._next.get(name, 1)
            while (name, number) in self._foreign:
                number += 1
            self._next[name] = number + 1
            key = self._keys[value] = (name, number)
            self._values[key] = value
        return f"[{key[0]}_{key[1]}]"


def _covered(value: str, operator: Operator) -> str:
    """The value with its last letters and digits open; ASCII marks and blanks stay, so that its shape can be seen."""
    shown = [at for at, char in enumerate(value) if char.isalnum()]
    kept = set(shown[len(shown) - min(operator.keep, len(shown) // 4) :])
    return "".join(
        char if at in kept or (char.isascii() and not char.isalnum()) else operator.character
        for at, char in enumerate(value)
    )


assert {key.split("/")[0] for key in _TYPES} == set(LABELS)  # noqa: S101 (a label without a type would be a KeyError)
