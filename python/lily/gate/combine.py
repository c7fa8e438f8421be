"""One list of spans from rules and model: who wins where they meet.

Validated rules fix label and kind; where the model agrees on the label the extents are united, where it does not it
keeps what the rule leaves over. Cued rules add. Weak rules only raise the score of what the model saw. Vetoes delete
what an unsure model sees inside them. A number that is the whole text, with no word beside it, counts only where a rule
knows its form: the model learnt from surroundings, and there are none. The model's tokens end anywhere, so its spans
are mended first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .folding import View, view_of
from .recognizers import is_mere_uuid, is_no_machine, is_typeface, vetoed
from .spans import RANK, Finding, Span

_NUMBERS = frozenset({"account_number", "private_phone", "private_date"})
_MARGIN = 16  # characters (quotes, blanks) that may stand around a value that is the whole text
_WHOLE = frozenset({"private_person", "private_address", "secret"})  # labels whose values begin and end with a word
_LONGEST = 64  # characters by which a span may grow to the end of its word
_UNSPACED = 0x2E80  # from here on are the scripts without blanks between words
# Categories of the characters beyond ASCII that frame a value: 。 and “, and but for secrets also emoji and arrows.
_MARKS = frozenset({"Po", "Ps", "Pe", "Pi", "Pf", "Pd"})
_SYMBOLS = frozenset({"So", "Sm", "Sk", "Cf"})

SURE = 0.9
"""From this score on the model's span stands against a veto."""


def combine(text: str | View, findings: Iterable[Finding], model: Iterable[Span] = ()) -> list[Span]:
    """Sorted spans that do not overlap and hold at least one character that is no blank.

    `findings` are those of the rules for this text, `model` the classifier's spans (they may overlap neither each other
    nor the text's end). Raises ValueError for a span outside the text.
    """
    view = view_of(text)
    rules = list(findings)
    seen = sorted(model)
    for span in (*(f.span for f in rules), *seen):
        if span.end > len(view.text):
            raise ValueError(f"a span ends at {span.end}, the text at {len(view.text)}")
    settled = _settled([f for f in rules if f.strength != "weak"])
    weak = [f.span for f in rules if f.strength == "weak"]
    seen = [span for span in (_mended(view.text, span) for span in seen) if _possible(view.text, span, rules)]
    kept = _believed([_raised(span, weak) for span in seen], settled, vetoed(view) if seen else [])
    return _trimmed(view.text, _joined(view.text, settled, kept))


def _settled(findings: Sequence[Finding]) -> list[Span]:
    """Rule spans that do not overlap: the stronger names the union, so that nothing that was found is left open."""
    best: list[Finding] = []
    for finding in sorted(findings, key=lambda f: f.span):
        if best and best[-1].span.overlaps(finding.span):
            one, two = best[-1], finding
            winner, loser = (one, two) if _weight(one) >= _weight(two) else (two, one)
            best[-1] = replace(winner, span=winner.span.united(loser.span))
        else:
            best.append(finding)
    return [f.span for f in best]


def _weight(finding: Finding) -> tuple[int, int, float]:
    span = finding.span
    return RANK[finding.strength], span.end - span.start, span.score


def _mended(text: str, span: Span) -> Span:
    """A model's span with the whole of its words, and without the marks, emoji and arrows around it."""
    start, end = span.start, span.end
    if span.label in _WHOLE:
        while span.start - start < _LONGEST and _inside_a_word(text, start):
            start -= 1
        while end - span.end < _LONGEST and _inside_a_word(text, end):
            end += 1
    foreign = _MARKS if span.label == "secret" else _MARKS | _SYMBOLS
    while start < end and _is_frame(text[start], foreign):
        start += 1
    while end > start and _is_frame(text[end - 1], foreign):
        end -= 1
    return replace(span, start=start, end=end) if start < end else span


def _inside_a_word(text: str, at: int) -> bool:
    """Whether no word ends at a place."""
    if not 0 < at < len(text):
        return False
    return all((c.isalnum() and ord(c) < _UNSPACED) or unicodedata.combining(c) for c in text[at - 1 : at + 1])


def _is_frame(char: str, foreign: frozenset[str]) -> bool:
    if char.isascii():
        return char.isspace()
    return char.isspace() or char in "\ufe0e\ufe0f" or unicodedata.category(char) in foreign


def _possible(text: str, span: Span, rules: Sequence[Finding]) -> bool:
    """Whether there is more to a model's span than its look."""
    if span.label == "other_pii":
        return not is_no_machine(text[span.start : span.end])
    if span.label == "private_person":
        return not is_typeface(text, span.start, span.end)
    if span.label == "secret" and is_mere_uuid(text, span.start, span.end):
        return any(rule.span.overlaps(span) for rule in rules)
    outside = len(text) - (span.end - span.start)
    alone = outside <= _MARGIN and not any(c.isalnum() for c in text[: span.start] + text[span.end :])
    return not (alone and span.label in _NUMBERS) or any(rule.span.overlaps(span) for rule in rules)


def _raised(span: Span, weak: Sequence[Span]) -> Span:
    """A model span that a weak rule of the same label supports, with the score of both and the rule's kind."""
    for rule in weak:
        if rule.label == span.label and rule.overlaps(span):
            score = 1.0 - (1.0 - span.score) * (1.0 - rule.score)
            span = replace(span, sub=span.sub or rule.sub, score=score, why=f"{span.why}; {rule.why}".strip("; "))
    return span


def _believed(model: Sequence[Span], settled: Sequence[Span], vetoes: Sequence[tuple[int, int]]) -> list[Span]:
    out = []
    at = 0
    for span in model:
        while at < len(vetoes) and vetoes[at][1] <= span.start:
            at += 1
        inside = at < len(vetoes) and vetoes[at][0] <= span.start and span.end <= vetoes[at][1]
        if not inside or span.score >= SURE or any(rule.overlaps(span) for rule in settled):
            out.append(span)
    return out


def _joined(text: str, rules: list[Span], model: list[Span]) -> list[Span]:
    """Rules and model in one sweep; `rules` do not overlap one another."""
    united = list(rules)
    left: list[Span] = []
    at = 0
    for span in model:
        while at < len(united) and united[at].end <= span.start:
            at += 1
        place, rest = at, [span]
        while place < len(united) and united[place].start < span.end:
            rule = united[place]
            if rule.label == span.label:
                united[place] = replace(rule.united(span), sub=rule.sub or span.sub)
                rest = []
                break
            rest = [piece for part in rest for piece in _without(part, rule)]
            place += 1
        left += [piece for piece in rest if sum(c.isalnum() for c in text[piece.start : piece.end]) >= 2]
    return _apart(sorted([*united, *left]))


def _without(span: Span, hole: Span) -> list[Span]:
    parts = []
    if span.start < hole.start:
        parts.append(replace(span, end=min(span.end, hole.start)))
    if span.end > hole.end:
        parts.append(replace(span, start=max(span.start, hole.end)))
    return parts


def _apart(spans: list[Span]) -> list[Span]:
    """Sorted spans made disjoint: of two that overlap the first keeps its name and both keep their extent."""
    out: list[Span] = []
    for span in spans:
        if out and span.start < out[-1].end:
            out[-1] = out[-1].united(span)
        else:
            out.append(span)
    return out


def _trimmed(text: str, spans: list[Span]) -> list[Span]:
    out = []
    for span in spans:
        piece = text[span.start : span.end]
        start = span.start + len(piece) - len(piece.lstrip())
        end = span.end - (len(piece) - len(piece.rstrip()))
        if start < end:
            out.append(replace(span, start=start, end=end))
    return out
