"""What the tests of the rules ask: which spans do the rules alone give for a text."""

from __future__ import annotations

from lily.gate.combine import combine
from lily.gate.recognizers import find
from lily.gate.spans import Span

Piece = tuple[str, str]


def spans(text: str) -> list[Span]:
    """The spans of the rules alone."""
    return combine(text, find(text))


def pieces(text: str) -> list[Piece]:
    """(label, text) of every span of the rules."""
    return [(s.label, text[s.start : s.end]) for s in spans(text)]


def kinds(text: str) -> list[tuple[str, str, str]]:
    """(label, kind, text) of every span of the rules."""
    return [(s.label, s.sub, text[s.start : s.end]) for s in spans(text)]
