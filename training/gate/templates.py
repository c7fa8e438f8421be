r"""Reads the template files and fills templates.

A line is a template: `{slot}` is a value (see slots.py), `<a|b|>` one of several wordings, `\n` a line break, `{{` a
brace. `@lang xx` sets the language of the lines below it, `@tag finance` or `@tag health` says that a person in them
makes the text sensitive. In pairs.txt a line holds a positive and its negative twin.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import cache

from .document import Document
from .lists import DATA
from .slots import Slots

_PIECE = re.compile(r"<([^<>|]*(?:\|[^<>|]*)+)>|(?<!\{)\{(\w+)\}(?!\})")
STRICT = (
    "secret/",
    "account_number/payment_card",
    "account_number/government_id",
    "account_number/iban",
    "account_number/health_id",
)


@dataclass(frozen=True)
class Template:
    """Pieces in order: plain text, a slot's name in a one-tuple, or a list of alternatives (each a list of pieces)."""

    pieces: tuple[object, ...]
    language: str = ""
    topic: str = ""
    source: str = ""


def _parse(text: str) -> tuple[object, ...]:
    """The pieces of one template."""
    found: list[object] = []
    at = 0
    for m in _PIECE.finditer(text):
        if m.start() > at:
            found.append(text[at : m.start()].replace("{{", "{").replace("}}", "}"))
        found.append([_parse(part) for part in m[1].split("|")] if m[1] is not None else (m[2],))
        at = m.end()
    if at < len(text):
        found.append(text[at:].replace("{{", "{").replace("}}", "}"))
    return tuple(found)


def _read(name: str) -> list[tuple[str, str, str]]:
    lines, language, topic = [], "", ""
    for line in (DATA / "templates" / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("@lang"):
            language = line[5:].strip()
        elif line.startswith("@tag"):
            topic = line[4:].strip()
        elif line.strip() and not line.startswith("# "):
            lines.append(
                (
                    line.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\"),
                    language,
                    topic,
                )
            )
    return lines


@cache
def load(name: str) -> tuple[Template, ...]:
    """The templates of one file."""
    return tuple(Template(_parse(text), language, topic, name) for text, language, topic in _read(name))


@cache
def pairs() -> tuple[tuple[Template, Template], ...]:
    """Positives and the negatives of the same shape."""
    made = []
    for text, language, topic in _read("pairs"):
        yes, no = text.split(" ||| ")
        made.append((Template(_parse(yes), language, topic, "pairs"), Template(_parse(no), language, topic, "pairs")))
    return tuple(made)


def fill(document: Document, template: Template, slots: Slots, rng: random.Random) -> None:
    """Writes a filled template. A template of a language moves the world there first."""
    if template.language:
        slots.world.move(template.language)
    before = len(document.spans)
    _fill(document, template.pieces, slots, rng)
    new = document.spans[before:]
    person = any(s.label == "private_person" for s in new)
    if any(f"{s.label}/{s.sub}".startswith(STRICT) for s in new) or (template.topic and person):
        document.sensitive = 1.0
    elif document.sensitive is None:
        document.sensitive = 0.0


def _fill(document: Document, pieces: tuple[object, ...], slots: Slots, rng: random.Random) -> None:
    for piece in pieces:
        if isinstance(piece, str):
            document.plain(piece)
        elif isinstance(piece, tuple):
            slots.put(document, piece[0])
        elif isinstance(piece, list):
            _fill(document, rng.choice(piece), slots, rng)


REGISTERS = {
    "chat": 16,
    "office": 14,
    "money": 10,
    "medical": 8,
    "secrets": 14,
    "social": 10,
    "machines": 10,
    "languages": 16,
    "brief": 12,
}


def count() -> int:
    """How many templates there are, both halves of pairs counted."""
    return sum(len(load(name)) for name in (*REGISTERS, "negatives", "recall")) + 2 * len(pairs())
