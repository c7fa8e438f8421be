"""Real corpora of the data directory, as documents: what they annotate, what of them the loss must not judge.

Persons and numbers in them are replaced by invented ones half of the time, and every secret always: a model that saw
each of a few thousand texts a hundred times would learn the names by heart.
"""

from __future__ import annotations

import json
import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

from .document import Document, Span
from .labels import LABELS
from .noise import rewrite
from .slots import Slots

FILES = {"wnut17-train": 24, "btc-abf": 36, "secret-rules": 45, "meddocan-train": 6, "sec-filings-train": 4}  # shares
# the slots for a value of one word and of several
REFILL = {
    "private_person": ("first", "full"),
    "private_email": ("email", "email"),
    "private_phone": ("phone", "phone"),
    "private_date": ("dob", "dob"),
    "private_address/street": ("street", "street"),
    "private_address/postcode": ("zip", "zip"),
    "private_address/territory": ("area", "area"),
    "account_number/health_id": ("health", "health"),
    "account_number/licence_id": ("colegiado", "colegiado"),
    "other_pii/age": ("age", "age"),
}
_KEPT = re.compile(
    r"-----[A-Z ]+-----|^https?://[^\s/]+/(?:[a-z]+/)*|^[A-Za-z]{2,10}\d?[_\-.]|^(?:AKIA|ASIA|AIza|eyJ|ya29|EAA)|T3BlbkFJ|\\n"
)


def scramble(text: str, rng: random.Random) -> str:
    """A secret of the same shape: letters and digits by class, public prefixes and frames kept."""
    kept = [m.span() for m in _KEPT.finditer(text)]
    classes = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    out = []
    for i, c in enumerate(text):
        alphabet = next((a for a in classes if c in a), "")
        out.append(rng.choice(alphabet) if alphabet and not any(a <= i < b for a, b in kept) else c)
    return "".join(out)


def read(path: Path) -> list[Document]:
    """The documents of one file. A text whose sensitivity nobody judged has none."""
    documents = []
    for line in path.read_text("utf-8").splitlines():
        d = json.loads(line)
        spans = [Span(s["start"], s["end"], s["label"], s.get("sub") or "") for s in d["spans"]]
        skip = [
            (g["start"], g["end"]) for g in d.get("ignore") or [] if g["why"] == "handle" or g["why"].startswith("role")
        ]
        covers = frozenset(d["covers"])
        sensitive = 1.0 if len(covers) > 3 and spans else (1.0 if spans else 0.0) if "secret" in covers else None
        documents.append(Document([d["text"]], spans, len(d["text"]), sensitive, covers, skip))
    return documents


def complete(document: Document) -> bool:
    """Whether nearly every label is annotated, so that an O can be trusted."""
    return document.covers is None or len(document.covers) >= len(LABELS) - 1


@dataclass
class Corpora:
    """The corpora that may be trained on."""

    files: dict[str, list[Document]]

    @classmethod
    def load(cls, folder: Path | None) -> Corpora:
        """What the data directory has of them; nothing without one."""
        base = (folder or Path()) / "train-ok"
        return cls({n: read(base / f"{n}.jsonl") for n in FILES if folder and (base / f"{n}.jsonl").is_file()})

    def draw(self, slots: Slots) -> Document:
        """One document, its values replaced now and then."""
        rng = slots.rng
        name = rng.choices(list(self.files), [FILES[n] for n in self.files])[0]
        document = rng.choice(self.files[name])
        slots.world.move("es_ES" if name.startswith("meddocan") else None)
        if name == "secret-rules" or rng.random() < 0.5:
            return self.refilled(document, slots)
        return document

    def refilled(self, document: Document, slots: Slots) -> Document:
        """The same text about others; a value that occurs twice is replaced by the same one."""
        text, seen = document.text, dict[str, str]()
        pieces = list(text)
        for s in document.spans:
            old = text[s.start : s.end]
            if old not in seen:
                if s.label == "secret":
                    seen[old] = scramble(old, slots.rng)
                else:
                    one, many = REFILL.get(f"{s.label}/{s.sub}") or REFILL.get(s.label) or ("", "")
                    seen[old] = slots.value(one if " " not in old else many)[0] if one else old
            pieces[s.start : s.end] = [seen[old], *[""] * (s.end - s.start - 1)]
        return rewrite(document, pieces)
