"""The folded view of a text that rules read, with an exact way back to the text as given.

People and tools write the same number with full-width digits, a no-break space or a zero-width character inside, and
attackers swap letters for look-alikes. The view undoes that for detection only: what is sent on is cut from the text
as given, never from the view. It is no normaliser; accents and other scripts stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache

# Characters without width: joiners, marks of direction, soft hyphen, selectors, tags.
_DROPPED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_HYPHENS = "\u2010\u2011\u2012\u2013\u2212\u02d7\ufe58\ufe63\uff0d"
_QUOTES = {"\u2018": "'", "\u2019": "'", "\u201b": "'", "\u2032": "'", "\u201c": '"', "\u201d": '"', "\u2033": '"'}
# Cyrillic, Greek and Armenian letters that look like Latin ones: they are folded only inside a Latin word.
_ALIKE = dict(
    zip(
        "аеорсухіјѕԁԛԝһӏҮАВЕКМНОРСТУХІЈЅԌՏαορνικυτΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսհոց",
        "aeopcyxijsdqwhlYABEKMHOPCTYXIJSGSaopvikutABEZHIKMNOPTYXouhng",
        strict=True,
    )
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_WORD = re.compile(r"[\w.@+-]+")
_ASCII_LETTER = re.compile(r"[A-Za-z]")
_ESCAPE = re.compile(r"\\{1,8}[nrt]")


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    """A character's form in the view: one character, or none."""
    if _DROPPED.match(char):
        return ""
    if char in _HYPHENS:
        return "-"
    if char in _QUOTES:
        return _QUOTES[char]
    if unicodedata.category(char) == "Zs":
        return " "
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    plain = unicodedata.normalize("NFKC", char)
    return plain if len(plain) == 1 and plain.isascii() and not plain.isdigit() else char


def _alike(match: re.Match[str]) -> str:
    """A Latin word with its look-alikes replaced; another word as it is."""
    word = match[0]
    if word.isascii() or not _ASCII_LETTER.search(word):
        return word
    folded = "".join(_ALIKE.get(c, c) for c in word)
    # A word that keeps letters of another script was not Latin: leave it whole.
    foreign = any(c.isalpha() and not c.isascii() and not unicodedata.name(c, "").startswith("LATIN") for c in folded)
    return word if foreign else folded


class View:
    """A folded text. `folded` is what rules match, `lower` the same in small letters and as long.

    The JSON escapes of line breaks and tabs become blanks, so that a word of a string inside JSON starts where it does.
    """

    __slots__ = ("_dropped", "folded", "lower", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._dropped: list[int] = []  # places in the view before which a character was dropped, ascending
        folded = text if text.isascii() else self._unicode(text)
        if "\\" in folded:
            folded = _ESCAPE.sub(lambda m: " " * len(m[0]), folded)
        self.folded = folded
        lower = folded.lower()
        if len(lower) != len(folded):
            lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in folded)
        self.lower = lower

    def _unicode(self, text: str) -> str:
        parts: list[str] = []
        at = size = 0
        for match in _NOT_ASCII.finditer(text):
            parts.append(text[at : match.start()])
            size += match.start() - at
            for char in match[0]:
                new = _fold(char)
                if new:
                    parts.append(new)
                    size += 1
                else:
                    self._dropped.append(size)
            at = match.end()
        parts.append(text[at:])
        return _WORD.sub(_alike, "".join(parts))

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """A non-empty part of the view as offsets into the text as given."""
        if not self._dropped:
            return start, end
        return start + bisect_right(self._dropped, start), end + bisect_right(self._dropped, end - 1)


def view_of(text: str | View) -> View:
    """The view of a text; a view as it is."""
    return text if isinstance(text, View) else View(text)
