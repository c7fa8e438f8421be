"""Scores spans against gold: by character and exactly, typed and untyped, only for the labels a document covers.

Characters are those without white space. A prediction that lies mostly on a document's `ignore` regions counts neither
way. It is the only scorer: training measures the model alone with it, benchmarks/gate_quality.py whole tools.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

Found = tuple[int, int, str]


def characters(text: str, start: int, end: int) -> set[int]:
    """Positions that are not white space."""
    return {i for i in range(start, end) if not text[i].isspace()}


@dataclass
class Counts:
    """True and false positives, false negatives."""

    tp: int = 0
    fp: int = 0
    fn: int = 0

    def add(self, tp: int, fp: int, fn: int) -> None:
        """More of them."""
        self.tp += tp
        self.fp += fp
        self.fn += fn

    def merge(self, other: Counts) -> None:
        """The counts of other documents as well."""
        self.add(other.tp, other.fp, other.fn)

    def measures(self) -> tuple[float, float, float]:
        """Precision, recall, F1."""
        p = self.tp / (self.tp + self.fp) if self.tp + self.fp else 0.0
        r = self.tp / (self.tp + self.fn) if self.tp + self.fn else 0.0
        return p, r, 2 * p * r / (p + r) if p + r else 0.0


@dataclass
class Share:
    """So many of so many."""

    part: int = 0
    whole: int = 0

    def add(self, part: int, whole: int) -> None:
        """More of them."""
        self.part += part
        self.whole += whole

    def merge(self, other: Share) -> None:
        """Those of other documents as well."""
        self.add(other.part, other.whole)

    @property
    def ratio(self) -> float:
        """From 0 to 1; 0 of none."""
        return self.part / self.whole if self.whole else 0.0

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}"


@dataclass
class Score:
    """The counts of a set of documents. Can be pickled, so that processes may share the work, and merged."""

    untyped: Counts = field(default_factory=Counts)
    by_label: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    exact: dict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    by_sub: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))  # characters found under any label
    clean: Share = field(default_factory=Share)  # documents without gold spans that have a prediction
    repeated: Share = field(default_factory=Share)  # values that occur twice or more, found whole everywhere
    documents: int = 0
    length: int = 0

    def add(self, document: dict[str, Any], predicted: list[Found]) -> None:
        """One document."""
        text, covers = document["text"], set(document["covers"])
        self.documents += 1
        self.length += len(text)
        gold: list[Found] = [(s["start"], s["end"], s["label"]) for s in document["spans"]]
        gold_all = set().union(*(characters(text, a, b) for a, b, _ in gold)) if gold else set()
        ignored = set().union(
            *(characters(text, g["start"], g["end"]) for g in document.get("ignore") or [{"start": 0, "end": 0}])
        )
        kept = []
        for a, b, label in predicted:
            c = characters(text, a, b)
            if label in covers and c and (c & gold_all or 2 * len(c & ignored) < len(c)):
                kept.append((a, b, label))
        guessed: dict[str, set[int]] = defaultdict(set)
        right: dict[str, set[int]] = defaultdict(set)
        for spans, by in ((kept, guessed), (gold, right)):
            for a, b, label in spans:
                by[label] |= characters(text, a, b)
        for label in {*guessed, *right}:
            p, g = guessed[label], right[label]
            self.by_label[label].add(len(p & g), len(p - g - ignored), len(g - p))
        all_guessed = set().union(*guessed.values()) if guessed else set()
        self.untyped.add(
            len(all_guessed & gold_all), len(all_guessed - gold_all - ignored), len(gold_all - all_guessed)
        )
        p_spans, g_spans = Counter(kept), Counter(gold)
        for label in {s[2] for s in (*p_spans, *g_spans)}:
            p_count = sum(n for s, n in p_spans.items() if s[2] == label)
            g_count = sum(n for s, n in g_spans.items() if s[2] == label)
            hits = sum(min(n, p_spans[s]) for s, n in g_spans.items() if s[2] == label)
            self.exact[label].add(hits, p_count - hits, g_count - hits)
        values: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for (a, b, label), s in zip(gold, document["spans"], strict=True):
            c = characters(text, a, b)
            name = f"{label}/{s['sub']}" if s.get("sub") else label
            self.by_sub[name].add(len(c & all_guessed), len(c))
            values[label, text[a:b].lower()].append(c <= all_guessed)
        for hits_of in values.values():
            if len(hits_of) > 1:
                self.repeated.add(all(hits_of), 1)
        if not gold:
            self.clean.add(bool(kept), 1)

    def merge(self, other: Score) -> None:
        """The counts of other documents as well."""
        self.untyped.merge(other.untyped)
        for label, counts in other.by_label.items():
            self.by_label[label].merge(counts)
        for label, counts in other.exact.items():
            self.exact[label].merge(counts)
        for name, share in other.by_sub.items():
            self.by_sub[name].merge(share)
        self.clean.merge(other.clean)
        self.repeated.merge(other.repeated)
        self.documents += other.documents
        self.length += other.length

    def found(self, name: str) -> Share:
        """The characters of gold spans of a label, or "label/sub", that lie in any prediction, whatever its label."""
        out = Share()
        for key, share in self.by_sub.items():
            if key == name or key.startswith(f"{name}/"):
                out.merge(share)
        return out

    @staticmethod
    def total(counts: dict[str, Counts]) -> Counts:
        """The sum over labels."""
        out = Counts()
        for c in counts.values():
            out.merge(c)
        return out

    def line(self) -> str:
        """One line: the four headline figures and the counts of clean and repeated."""
        u, t, e = (c.measures() for c in (self.untyped, self.total(self.by_label), self.total(self.exact)))
        quality = f"untyped {u[0]:.3f}/{u[1]:.3f}/{u[2]:.3f} typed {t[2]:.3f} exact {e[2]:.3f}"
        return f"{quality} clean flagged {self.clean} repeated {self.repeated}"
