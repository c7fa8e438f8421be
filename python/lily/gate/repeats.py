"""Log text in which most lines are one of a few forms: the model reads each form once.

The skeleton of a line is the line without its numbers and identifiers. Short numbers of any length are alike; from
seven digits on the length counts, so that what looks like an account number stands for such only. `condense` keeps the
first line of each skeleton; what the model says about it is then said of every line with that skeleton, numbers mapped
to numbers. Letters are never left out: a line with another name or another word is read. Rules still see every line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

LEAST_LINES = 64
LEAST_LENGTH = 40  # characters of a line; what a shorter one means, its neighbours say
MOST_KEPT = 0.7  # of the characters; above, it is not worth the lost context
ANY_DIGITS = 6  # up to so many digits the length does not count

# An identifier of eight or more hexadecimal digits, with or without dashes, at least one of them a number; or digits.
_VARIABLE = re.compile(r"(?<![0-9A-Za-z])(?=[a-fA-F-]*[0-9])[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*(?![0-9A-Za-z])|[0-9]+")

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Line:
    """A line: where it begins and ends in its text, and the borders of its variable parts, 0 and its length outside."""

    start: int
    end: int
    borders: tuple[int, ...]


@dataclass(frozen=True)
class Condensed:
    """A text with one line of each skeleton.

    lines   of the whole text; forms gives for each the number of the kept line with its skeleton
    kept    the kept lines, at their places in `text`; sources gives the number of each among `lines`
    """

    text: str
    lines: list[Line]
    forms: list[int]
    kept: list[Line]
    sources: list[int]

    def tokens(self, offsets: Integers) -> tuple[Integers, Integers]:
        """For the tokens of all lines in order: the number of the token in the condensed text, and its characters in
        the whole one. `offsets` [tokens, 2] are those of the condensed text; a token is of the line it begins in."""
        edges = np.searchsorted(offsets[:, 0], [line.start for line in self.kept] + [len(self.text)])
        numbers = [np.zeros(0, np.int32)]
        places = [np.zeros((0, 2), np.int32)]
        for line, form in zip(self.lines, self.forms, strict=True):
            first, last = edges[form], edges[form + 1]
            numbers.append(np.arange(first, last, dtype=np.int32))
            places.append(self._moved(offsets[first:last], self.kept[form], line))
        return np.concatenate(numbers), np.concatenate(places)

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The places in the whole text of the characters start .. end of the condensed one."""
        first = self._line_at(start)
        last = self._line_at(end - 1)
        if first == last:
            parts = [(first, start, end)]
        else:
            together = range(self.sources[first], self.sources[first] + last - first + 1)
            if self.sources[first : last + 1] == list(together):
                yield self._place(start, first), self._place(end, last)
            parts = [
                (form, max(start, self.kept[form].start), min(end, self.kept[form].end))
                for form in range(first, last + 1)
            ]
        for form, a, b in parts:
            for number in self._lines_of[form]:
                moved = self._moved(np.array([[a, b]], np.int32), self.kept[form], self.lines[number])
                yield int(moved[0, 0]), int(moved[0, 1])

    def _place(self, at: int, form: int) -> int:
        return at - self.kept[form].start + self.lines[self.sources[form]].start

    def _line_at(self, at: int) -> int:
        return bisect_right(self.kept, at, key=lambda line: line.start) - 1

    @cached_property
    def _lines_of(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.kept]
        for number, form in enumerate(self.forms):
            found[form].append(number)
        return found

    @staticmethod
    def _moved(places: Integers, source: Line, target: Line) -> Integers:
        """Characters [n, 2] of the source line, of the condensed text, as those of the target, of the whole text."""
        inside = np.clip(places - source.start, 0, source.end - source.start)
        if source.borders != target.borders:
            mapped = np.interp(inside, source.borders, target.borders)
            inside = np.stack([np.floor(mapped[:, 0]), np.ceil(mapped[:, 1])], axis=1).astype(np.int32)
        return np.asarray(inside + target.start, np.int32)


def condense(text: str) -> Condensed | None:
    """The text with one line of each skeleton, or None where too few lines repeat one."""
    if text.count("\n") < LEAST_LINES:
        return None
    lines: list[Line] = []
    forms: list[int] = []
    kept: list[str] = []
    sources: list[int] = []
    seen: dict[str, int] = {}
    at = size = 0
    for content in text.splitlines(keepends=True):
        skeleton, borders = _skeleton(content)
        form = seen.get(skeleton) if len(content) >= LEAST_LENGTH else None
        if form is None:
            form = seen[skeleton] = len(kept)
            kept.append(content)
            sources.append(len(lines))
            size += len(content)
            if size > MOST_KEPT * len(text):
                return None
        forms.append(form)
        lines.append(Line(at, at + len(content), borders))
        at += len(content)
    starts = [0, *accumulate(map(len, kept))]
    places = [
        Line(start, start + len(content), lines[source].borders)
        for start, content, source in zip(starts, kept, sources, strict=False)
    ]
    return Condensed("".join(kept), lines, forms, places, sources)


def _skeleton(line: str) -> tuple[str, tuple[int, ...]]:
    """The line without what varies, and the borders of that."""
    parts: list[str] = []
    borders = [0]
    end = 0
    for match in _VARIABLE.finditer(line):
        start, stop = match.span()
        found = match.group()
        parts.append(line[end:start])
        if not found.isdecimal():
            parts.append("\0x")
        else:
            parts.append("\0" if len(found) <= ANY_DIGITS else f"\0{len(found)};")
        borders += (start, stop)
        end = stop
    parts.append(line[end:])
    borders.append(len(line))
    return "".join(parts), tuple(borders)
