"""What recognizers share: the hit, the words that stand before a value, and the parts of a text that hold digits.

A hit counts in characters of the folded view; `find` of the package turns it into a finding of the text as given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lily.gate.folding import View
from lily.gate.spans import Strength


class Hit(NamedTuple):
    """Something found in the view."""

    start: int
    end: int
    label: str
    sub: str
    strength: Strength
    score: float
    why: str


class Cues:
    """Words that announce a value, by the kind of value: {"kind": "word, another word"}. A word may have several kinds.

    They match whole words in any case, also as parts of names such as customer_id or "passport-no".
    """

    def __init__(self, table: dict[str, str]) -> None:
        self._kinds: dict[str, tuple[str, ...]] = {}
        for kind, words in table.items():
            for word in words.split(", "):
                self._kinds[word] = (*self._kinds.get(word, ()), kind)
        longest_first = sorted(self._kinds, key=len, reverse=True)
        # Scripts without blanks between words have no whole words to match.
        open_, closed = [[w for w in longest_first if (w[0] > "\u2e7f") is east] for east in (True, False)]
        # A blank of a word may be a space, an underscore, a hyphen, a dot or nothing: card number, cardNumber, CARD_NO.
        pattern = "|".join(re.escape(w).replace(r"\ ", r"[ _.-]?") for w in closed)
        pattern = rf"(?<![^\W\d_])(?:{pattern})(?![^\W\d_\u2e80-\uffef])"
        self._pattern = re.compile("|".join([pattern, *map(re.escape, open_)]))
        self._squeeze = {re.sub(r"[ _.-]", "", word): kinds for word, kinds in self._kinds.items()}

    def find(self, view: View, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """Each cue of a part of the view as (start, end, kinds)."""
        for match in self._pattern.finditer(view.lower, start, len(view.lower) if end is None else end):
            yield match.start(), match.end(), self._squeeze[re.sub(r"[ _.-]", "", match[0])]

    def before(self, view: View, at: int, reach: int) -> bool:
        """Whether a cue stands within `reach` characters before a place."""
        return self._pattern.search(view.lower, max(0, at - reach), at) is not None


_DIGITS = re.compile(r"[0-9]+")
_GAP = 48  # digits nearer to each other than this lie in one zone
_LEAD = 64  # a zone starts this far before its first digit, so that the letters and cues before a number are in it
_TAIL = 24


def digit_zones(view: View) -> list[tuple[int, int]]:
    """The parts of a view that a rule about numbers must read, ascending and apart. Prose has few of them."""
    zones: list[tuple[int, int]] = []
    size = len(view.folded)
    first = last = -1
    for match in _DIGITS.finditer(view.folded):
        if last < 0:
            first = match.start()
        elif match.start() - last > _LEAD + _TAIL + _GAP:
            zones.append((max(0, first - _LEAD), min(size, last + _TAIL)))
            first = match.start()
        last = match.end()
    if last >= 0:
        zones.append((max(0, first - _LEAD), min(size, last + _TAIL)))
    return zones


def boundary(text: str, at: int) -> bool:
    """Whether a word may start here: what stands before is neither a letter nor a digit."""
    return at == 0 or not text[at - 1].isalnum()
