"""What the Gate speaks about: labels, spans of a text, findings of rules, and what unites them.

It knows no recognizer, model or policy. Offsets are code points into the text as given, the end exclusive; `utf16` and
`utf8` turn them into the offsets that other languages count in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

LABELS = (
    "private_person",
    "private_email",
    "private_phone",
    "private_address",
    "private_url",
    "private_date",
    "account_number",
    "secret",
    "other_pii",
)
"""The labels, in the order in which the classifier's head has them."""

Strength = Literal["validated", "cued", "weak"]
"""How much a rule alone may say.

validated: its own form or check digits prove it. cued: the words around it say so. weak: it looks like one, and counts
only where the model sees something too.
"""

RANK: dict[Strength, int] = {"weak": 0, "cued": 1, "validated": 2}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a text that says something about somebody.

    `sub` is the kind below the label ("payment_card", "iban", "jwt"; empty where unknown), `score` from 0 to 1, `why`
    a few words on who found it.
    """

    start: int
    end: int
    label: str
    sub: str = ""
    score: float = 1.0
    why: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"a span from {self.start} to {self.end} holds no character; expected 0 <= start < end")
        if self.label not in LABELS:
            raise ValueError(f"{self.label!r} is no label; expected one of {', '.join(LABELS)}")

    def overlaps(self, other: Span) -> bool:
        """Whether the two share a character."""
        return self.start < other.end and other.start < self.end

    def united(self, other: Span) -> Span:
        """The same span with the extent of both."""
        return replace(self, start=min(self.start, other.start), end=max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found, and how sure the rule may be."""

    span: Span
    strength: Strength


def covered(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The extents of the spans, sorted, with touching and overlapping ones made one."""
    out: list[tuple[int, int]] = []
    for span in sorted(spans):
        if out and span.start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], span.end))
        else:
            out.append((span.start, span.end))
    return out


def _offsets(text: str, marks: Sequence[int], encoding: str, unit: int) -> list[int]:
    found: dict[int, int] = {}
    at = size = 0
    for mark in sorted(set(marks)):
        if not 0 <= mark <= len(text):
            raise ValueError(f"offset {mark} is outside the text of {len(text)} characters")
        size += len(text[at:mark].encode(encoding, "surrogatepass")) // unit
        at = mark
        found[mark] = size
    return [found[mark] for mark in marks]


def utf16(text: str, offsets: Sequence[int]) -> list[int]:
    """Code point offsets as UTF-16 code units (JavaScript, Java, .NET). Raises ValueError outside the text."""
    return _offsets(text, offsets, "utf-16-le", 2)


def utf8(text: str, offsets: Sequence[int]) -> list[int]:
    """Code point offsets as bytes of UTF-8 (Go, Rust). Raises ValueError outside the text."""
    return _offsets(text, offsets, "utf-8", 1)
