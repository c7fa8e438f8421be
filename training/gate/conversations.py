"""Longer texts: conversations in which the same people and numbers come back, letters of many sentences, prose with a
sentence of personal data in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .document import Document
from .slots import Slots
from .structured import structured
from .templates import REGISTERS, Template, fill, load, pairs

OPENERS = (
    ("User: ", "Assistant: "),
    ("Human: ", "AI: "),
    ("user\n", "assistant\n"),
    ("Q: ", "A: "),
    ("Customer: ", "Agent: "),
    ("<|user|> ", "<|assistant|> "),
    ("- ", "- "),
    ("", ""),
    ("[me] ", "[bot] "),
    ('{"role": "user", "content": "', '{"role": "assistant", "content": "'),
    ("Me: ", "Them: "),
)


@dataclass
class Writer:
    """Draws documents of every kind from one source of randomness. `prose` are paragraphs that name nobody known."""

    rng: random.Random
    prose: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = list(REGISTERS)
        self.weights = list(REGISTERS.values())

    def template(self) -> Template:
        """A template of a register."""
        return self.rng.choice(load(self.rng.choices(self.names, self.weights)[0]))

    def short(self, document: Document, slots: Slots) -> None:
        """One to three filled templates, a negative among them now and then."""
        rng = self.rng
        for i in range(rng.choice((1, 1, 1, 1, 2, 2, 3))):
            if i:
                document.plain(rng.choice((" ", "\n", "\n\n", " ")))
            fill(document, rng.choice(load("negatives")) if i and rng.random() < 0.3 else self.template(), slots, rng)

    def negative(self, document: Document, slots: Slots) -> None:
        """Look-alikes only."""
        rng = self.rng
        for i in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            if i:
                document.plain(rng.choice((" ", "\n", "\n")))
            fill(document, rng.choice(load("negatives")), slots, rng)

    def pair(self, document: Document, slots: Slots) -> None:
        """A positive, its negative twin, or both."""
        rng = self.rng
        yes, no = rng.choice(pairs())
        chosen = rng.choice(((yes,), (no,), (yes, no), (no, yes)))
        for i, template in enumerate(chosen):
            if i:
                document.plain(rng.choice((" ", "\n", " ")))
            fill(document, template, slots, rng)

    def paragraph(self) -> str:
        """Somebody's prose."""
        return self.rng.choice(self.prose) if self.prose else "The weather was fine and nothing happened."

    def spliced(self, document: Document, slots: Slots) -> None:
        """Benign paragraphs with a sentence or two of personal data between their sentences."""
        rng = self.rng
        sentences = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            sentences += self.paragraph().split(". ")
        at = {rng.randrange(len(sentences) + 1) for _ in range(rng.choice((1, 1, 2, 3)))}
        document.sensitive = 0.0
        for i in range(len(sentences) + 1):
            if i in at:
                fill(document, self.template(), slots, rng)
                document.plain(rng.choice((" ", "\n", "\n\n")))
            if i < len(sentences):
                document.plain(sentences[i] + (". " if i < len(sentences) - 1 else "\n"))

    def plain(self, document: Document, slots: Slots) -> None:  # noqa: ARG002 (as the other kinds)
        """Prose alone."""
        document.plain("\n\n".join(self.paragraph() for _ in range(self.rng.choice((1, 1, 1, 2, 3)))))
        document.sensitive = 0.0

    def dialogue(self, document: Document, slots: Slots) -> None:
        """A conversation of up to two thousand tokens with people and numbers that come back."""
        rng = self.rng
        openers = rng.choice(OPENERS)
        close = '"}' if openers[0].startswith("{") else ""
        for turn in range(rng.choice((3, 4, 6, 8, 12, 16))):
            document.plain(openers[turn % 2])
            for _ in range(rng.choice((1, 1, 2, 3))):
                x = rng.random()
                if x < 0.42:
                    fill(document, rng.choice(load("recall")), slots, rng)
                elif x < 0.62:
                    fill(document, self.template(), slots, rng)
                elif x < 0.76:
                    fill(document, rng.choice(load("negatives")), slots, rng)
                elif x < 0.94 or close:
                    document.plain(self.paragraph()[:400])
                else:
                    inner = Document()
                    structured(inner, slots)
                    document.extend(inner)
                document.plain(" ")
            document.plain(close + "\n")

    def names_only(self, document: Document, slots: Slots) -> None:
        """Lists of people, with and without something between them."""
        rng = self.rng
        sep = rng.choice((", ", "\n", "; ", " and ", "\n- ", " | ", " / "))
        kind = rng.choice(("full", "person", "first", "comma", "lower", "upper", "initials", "last"))
        document.sensitive = 0.0
        document.plain(rng.choice(("", "", "Attendees: ", "Team: ", "- ", "Winners\n", "cc: ")))
        for i in range(rng.randint(1, 8)):
            document.plain(sep if i else "")
            if rng.random() < 0.12:
                slots.put(document, rng.choice(("comp", "thing", "city", "public")))
            else:
                slots.put(document, kind if rng.random() < 0.9 else "person")
            if rng.random() < 0.1:
                document.plain(" (")
                slots.put(document, rng.choice(("email", "phone", "age", "job")))
                document.plain(")")

    KINDS = ("short", "structured", "spliced", "negative", "pair", "dialogue", "plain", "names_only")
    SHARES = (46, 14, 10, 11, 6, 4, 6, 3)

    def write(self, slots: Slots) -> Document:
        """One document of a kind drawn by its share."""
        document = Document()
        kind = self.rng.choices(self.KINDS, self.SHARES)[0]
        if kind == "structured":
            structured(document, slots)
        else:
            getattr(self, kind)(document, slots)
        return document
