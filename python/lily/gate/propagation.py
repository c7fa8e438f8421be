"""What was found once is found everywhere: every surface form is swept through the text and the session.

Forms are compared in the folded view, in small letters and with runs of blanks as one, so that full-width, zero-width
and capital spellings count; numbers also without their separators. Short forms and common words are not swept.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .folding import View, view_of
from .spans import Span

SHORTEST = 4
"""Forms of fewer characters are not swept."""

_FEW = 48  # up to this many forms, plain searches beat one pass over every place
_LONG = 8  # secrets from this length on count inside longer words too
_BLANKS = re.compile(r"\s{2,}|[^\S ]")
_NUMBER = re.compile(r"[0-9](?<![0-9].)[0-9]*(?:[ .\-/()]{1,2}[0-9]+){0,12}")
_COMMON = frozenset(
    (
        "about above admin after again against also always among another april august baker bank because been before "
        "being below best between bill both brother call carter chase cook could dad daughter dawn dear december does "
        "doing done down each east even every faith false father february female find first five four friday friend "
        "from general give good grace grant great guest have hello help here high home hope house however hunter "
        "husband into january july june just king know last late lead left life like line list little long look love "
        "made main make male many march mark mary mason may me might monday money month more most mother much must "
        "name need never next none north november null october office only order other over own page part password "
        "people person phone place pleasant please police post president price prince queen read rest rich right root "
        "rose said same saturday school secret see september sister small some son south spring state still stone "
        "street such summer sunday system take team tell test text than thank thanks that their them then there these "
        "they thing think this those thursday time today token tomorrow true tuesday under unknown until user very "
        "victor want wednesday week well were west what when where which while white wife will winter with without "
        "woman word work would year years yesterday young your"
    ).split()
)


def _key(view: View, span: Span) -> str:
    """The form under which a span of the view's text is remembered."""
    return " ".join(View(view.text[span.start : span.end]).lower.split())


def sweepable(form: str, label: str) -> bool:
    """Whether a form (folded, small letters) is swept: long enough, no common word, more than marks.

    Ages, sexes and single common words would hit half of any text. A secret of eight characters always is.
    """
    if len(form) < SHORTEST or not any(c.isalnum() for c in form):
        return False
    if label == "secret" and len(form) >= _LONG:
        return True
    if form in _COMMON or (form.isdigit() and len(form) < 6):
        return False
    return not (label in ("private_date", "other_pii") and form.isalpha())


@dataclass(frozen=True, slots=True)
class _Form:
    label: str
    sub: str


class Found:
    """The forms found so far, of one text or of a whole session. Not safe for concurrent use."""

    def __init__(self) -> None:
        self._forms: dict[str, _Form] = {}
        self._numbers: dict[str, _Form] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def learn(self, text: str | View, spans: Iterable[Span]) -> None:
        """Remember the forms of the spans of a text. The first label of a form stays."""
        view = view_of(text)
        for span in spans:
            form = _key(view, span)
            if not sweepable(form, span.label):
                continue
            self._forms.setdefault(form, _Form(span.label, span.sub))
            digits = re.sub(r"[^0-9]", "", form)
            if (
                span.label in ("account_number", "private_phone")
                and len(digits) >= 8
                and re.fullmatch(r"[0-9 .\-/()+]+", form)
            ):
                self._numbers.setdefault(digits, _Form(span.label, span.sub))

    def sweep(self, text: str | View, spans: Iterable[Span] = ()) -> list[Span]:
        """`spans`, which may not overlap one another, and every further place of a remembered form; sorted, apart."""
        view = view_of(text)
        taken = sorted(spans)
        starts = [span.start for span in taken]
        fresh: list[Span] = []
        for start, end, form in self._places(view):
            first, last = view.origin(start, end)
            at = bisect_right(starts, last - 1) - 1
            if at < 0 or taken[at].end <= first or not (taken[at].start <= first and last <= taken[at].end):
                fresh.append(Span(first, last, form.label, form.sub, 0.9, "found elsewhere"))
        return _merged(taken, fresh)

    def _places(self, view: View) -> Iterator[tuple[int, int, _Form]]:
        lower, cuts = _collapsed(view.lower)
        for start, form in _occurrences(lower, self._forms):
            end = start + len(form)
            known = self._forms[form]
            if (known.label == "secret" and len(form) >= _LONG) or _whole(lower, start, end):
                yield _expand(start, cuts), _expand(end - 1, cuts) + 1, known
        if self._numbers:
            for match in _NUMBER.finditer(view.lower):
                number = self._numbers.get(re.sub(r"[^0-9]", "", match[0]))
                if number is not None and _whole(view.lower, match.start(), match.end()):
                    yield match.start(), match.end(), number


def propagate(text: str | View, spans: Iterable[Span], found: Found | None = None) -> list[Span]:
    """Sorted, disjoint spans with every further place of what they hold, and of what `found` (a session's) remembers.

    `found` learns the forms of `spans`.
    """
    view = view_of(text)
    memory = Found() if found is None else found
    known = list(spans)
    memory.learn(view, known)
    return memory.sweep(view, known)


def _collapsed(lower: str) -> tuple[str, list[tuple[int, int]]]:
    """The text with every run of blanks as one space, and (place in it, characters left out up to there), ascending."""
    if not _BLANKS.search(lower):
        return lower, []
    parts: list[str] = []
    cuts: list[tuple[int, int]] = []
    at = size = left_out = 0
    for match in re.finditer(r"\s+", lower):
        parts += (lower[at : match.start()], " ")
        size += match.start() - at + 1
        at = match.end()
        if len(match[0]) > 1:
            left_out += len(match[0]) - 1
            cuts.append((size, left_out))
    parts.append(lower[at:])
    return "".join(parts), cuts


def _expand(place: int, cuts: list[tuple[int, int]]) -> int:
    at = bisect_right(cuts, (place, 1 << 62)) - 1
    return place + cuts[at][1] if at >= 0 else place


def _occurrences(lower: str, forms: dict[str, _Form]) -> Iterator[tuple[int, str]]:
    """Each place of each form."""
    if len(forms) <= _FEW:
        for form in forms:
            at = lower.find(form)
            while at >= 0:
                yield at, form
                at = lower.find(form, at + len(form))
        return
    # By the first characters, then by length: a place costs as many look-ups as there are lengths with its beginning.
    heads: dict[str, set[int]] = {}
    for form in forms:
        heads.setdefault(form[:SHORTEST], set()).add(len(form))
    for at in range(len(lower) - SHORTEST + 1):
        sizes = heads.get(lower[at : at + SHORTEST])
        if sizes is not None:
            for size in sizes:
                form = lower[at : at + size]
                if form in forms:
                    yield at, form


def _whole(text: str, start: int, end: int) -> bool:
    """Whether a place is no part of a longer word. Scripts without blanks between words have none."""
    return not (_joined(text, start - 1, start) or _joined(text, end, end - 1))


def _joined(text: str, outside: int, inside: int) -> bool:
    if not 0 <= outside < len(text):
        return False
    out, edge = text[outside], text[inside]
    return out.isalnum() and edge.isalnum() and ord(out) < 0x2E80 and ord(edge) < 0x2E80


def _merged(taken: list[Span], fresh: list[Span]) -> list[Span]:
    """Both in order; where they overlap, one span with the name of what was there first and the extent of both."""
    order = {span: rank for rank, span in enumerate([*taken, *fresh])}
    out: list[Span] = []
    for span in sorted({*taken, *fresh}):
        if out and span.start < out[-1].end:
            last = out[-1]
            name = last if order.get(last, -1) <= order[span] else span
            out[-1] = name.united(last if name is span else span)
        else:
            out.append(span)
    return out
