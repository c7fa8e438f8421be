"""A text under construction with its labelled spans. Offsets are code points, end exclusive."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """A stretch of text to be found."""

    start: int
    end: int
    label: str
    sub: str = ""


@dataclass
class Document:
    """What the generator makes: the text, its spans, and whether the whole is sensitive (None: not known).

    `covers` names the labels that are annotated exhaustively; `skip` are regions where the loss is masked.
    """

    parts: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    length: int = 0
    sensitive: float | None = None
    covers: frozenset[str] | None = None
    skip: list[tuple[int, int]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    def plain(self, text: str) -> None:
        """Appends text that is nobody's."""
        self.parts.append(text)
        self.length += len(text)

    def mark(self, text: str, label: str, sub: str = "") -> None:
        """Appends a value to be found. Its outer white space stays outside the span."""
        core = text.strip()
        start = self.length + text.index(core)
        self.spans.append(Span(start, start + len(core), label, sub))
        self.plain(text)

    def extend(self, other: Document) -> None:
        """Appends another document."""
        self.spans += [Span(s.start + self.length, s.end + self.length, s.label, s.sub) for s in other.spans]
        self.skip += [(a + self.length, b + self.length) for a, b in other.skip]
        self.plain(other.text)
        if other.sensitive is not None:
            self.sensitive = max(self.sensitive or 0.0, other.sensitive)

    def check(self) -> None:
        """Raises ValueError unless the spans are inside the text, in order and apart."""
        last = 0
        for span in self.spans:
            if not (last <= span.start < span.end <= self.length):
                raise ValueError(f"span {span} in a text of {self.length} characters, the one before ends at {last}")
            last = span.end
