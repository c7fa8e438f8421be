"""Disturbs a finished document: case, scanner's spaces, full-width and look-alike letters, invisible characters.

Every change keeps the spans on their values; a value stays to be found however it is written.
"""

from __future__ import annotations

import random

from .document import Document, Span

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
LOOKALIKE = dict(zip("aeopcxyiABEKMHOPCTX", "аеорсхуіАВЕКМНОРСТХ", strict=True))  # noqa: RUF001 (Cyrillic)
HYPHENS = "\u2010\u2011\u2012\u2013\u2212"


def rewrite(document: Document, pieces: list[str]) -> Document:
    """The document with its i-th character replaced by pieces[i] (any length); spans follow."""
    at, place = 0, []
    for piece in pieces:
        place.append(at)
        at += len(piece)
    place.append(at)
    spans = []
    for s in document.spans:
        text = "".join(pieces[s.start : s.end])
        core = text.strip()
        if core:
            start = place[s.start] + text.index(core)
            spans.append(Span(start, start + len(core), s.label, s.sub))
    skip = [(place[a], place[b]) for a, b in document.skip]
    return Document(["".join(pieces)], spans, at, document.sensitive, document.covers, skip)


def same_length(text: str, change: str) -> str:
    """Lower or upper case by character, only where that keeps the length."""
    return "".join(c if len(getattr(c, change)()) != 1 else getattr(c, change)() for c in text)


def case(document: Document, rng: random.Random) -> Document:
    """All lower or all upper case, except secrets, links and account numbers, which case would change."""
    change = rng.choice(["lower", "lower", "upper"])
    kept = [s for s in document.spans if s.label in ("secret", "private_url") or s.sub in ("crypto_wallet",)]
    pieces = list(same_length(document.text, change))
    for s in kept:
        pieces[s.start : s.end] = document.text[s.start : s.end]
    return rewrite(document, pieces)


def scanned(document: Document, rng: random.Random) -> Document:
    """Spaces that a scanner adds or loses, and letters it mistakes."""
    swap = {"O": "0", "l": "1", "S": "5", "m": "rn", " ": "  ", ",": " ,", ".": " .", "-": " - ", "@": " @ "}
    rate = rng.choice([0.02, 0.05])
    return rewrite(document, [swap[c] if c in swap and rng.random() < rate else c for c in document.text])


def disguise(document: Document, rng: random.Random) -> Document:
    """Full-width, look-alike, invisible or hyphen characters inside values."""
    if not document.spans:
        return document
    pieces = list(document.text)
    kind = rng.randrange(5)
    for s in rng.sample(document.spans, max(1, len(document.spans) // 2)):
        for i in range(s.start, s.end):
            c = pieces[i]
            if kind == 0 and "!" <= c <= "~" and (rng.random() < 0.9 or not c.isalnum()):
                pieces[i] = chr(ord(c) + 0xFEE0)
            elif kind == 1 and c in LOOKALIKE and rng.random() < 0.4:
                pieces[i] = LOOKALIKE[c]
            elif kind == 2 and s.start < i and rng.random() < 0.15:
                pieces[i] = rng.choice(INVISIBLE) + c
            elif kind == 3 and c in "- ":
                pieces[i] = rng.choice(HYPHENS) if c == "-" else "\u00a0"
            elif kind == 4 and c in "-" and s.label in ("account_number", "private_phone") and rng.random() < 0.5:
                pieces[i] = "-\n"
    return rewrite(document, pieces)


def disturb(document: Document, rng: random.Random) -> Document:
    """Most documents stay as they are."""
    x = rng.random()
    if x < 0.10:
        return case(document, rng)
    if x < 0.12:
        return scanned(document, rng)
    if x < 0.145:
        return disguise(document, rng)
    return document
