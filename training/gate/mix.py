"""The stream of training documents: generated ones, corpora, noise, in their shares."""

from __future__ import annotations

import lzma
import random
import re
from dataclasses import dataclass
from pathlib import Path

from .conversations import Writer
from .corpora import Corpora
from .document import Document
from .noise import disturb
from .slots import Slots
from .world import World, resources

CORPORA_SHARE = 0.12  # of documents
_DOUBTFUL = re.compile(r"@|password|passwd|api[_ ]?key|secret|\b\d{3}-\d{2,4}-\d{4}\b", re.IGNORECASE)


def read_prose(path: Path | None) -> list[str]:
    """Paragraphs of gather_text.py's file."""
    return lzma.decompress(path.read_bytes()).decode().split("\0") if path else []


@dataclass
class Mix:
    """Draws documents; the same seed and inputs give the same stream."""

    rng: random.Random
    world: World
    writer: Writer
    corpora: Corpora

    @classmethod
    def build(cls, seed: int, data: Path | None, prose: list[str]) -> Mix:
        """A stream from the data directory (or none) and prose (or none)."""
        rng = random.Random(seed)
        addresses, companies = resources(data)
        clean = [p for p in prose if not _DOUBTFUL.search(p)]
        return cls(rng, World(rng, addresses, companies), Writer(rng, clean), Corpora.load(data))

    def document(self) -> Document:
        """The next document."""
        self.world.move()
        slots = Slots(self.rng, self.world)
        if self.corpora.files and self.rng.random() < CORPORA_SHARE:
            return disturb(self.corpora.draw(slots), self.rng)
        document = disturb(self.writer.write(slots), self.rng)
        document.check()
        return document
