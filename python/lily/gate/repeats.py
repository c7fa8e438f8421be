"""Logs, in which the model need not read every line: lines that differ in numbers only, and lines without a new word.

The skeleton of a line is the line without its numbers and identifiers. Short numbers of any length are alike; from
seven digits on the length counts, so that what looks like an account number stands for such only. Of the lines with one
skeleton the first is read, and what the model says about it is then said of all of them, numbers mapped to numbers.

Lines that look like those of a program's log are looked through word by word as well. `condense` takes those with a
word that no earlier one has; two capitalised words in a row count as a word of their own, and so does a number with the
word before it. Of the others, `Log.second` takes those with a word on which the model's suspicion falls
wherever it was read. What is then left holds only words that are above suspicion somewhere, and is not read. Rules see
every line.
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
LEAST_NUMBERS = 3  # in a line of a program's log, the first of them
FIRST_NUMBER = 24  # at most so many characters from its start
CLEAN = 0.1  # the most that P(personal) of a token above suspicion is
LEAST_LENGTH = 40  # characters of a line; what a shorter one means, its neighbours say
MOST_KEPT = 0.7  # of the characters; above, it is not worth the lost context
ANY_DIGITS = 6  # up to so many digits the length does not count

# An identifier of eight or more hexadecimal digits, with or without dashes, at least one of them a number; or digits.
_VARIABLE = re.compile(r"(?<![0-9A-Za-z])(?=[a-fA-F-]*[0-9])[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]{4,})*(?![0-9A-Za-z])|[0-9]+")

_WORD = re.compile(r"[^\W\d_]+")
_PAIR = re.compile(r"(?<![^\W\d_])(?=([^\W\d_]+)((?:, |[ ._+-])[^\W\d_]+))")
_NUMBER = re.compile(r"[\0\1](?:[0-9]+;)?")  # as it stands in a skeleton
_BEFORE = 12  # characters before a number in which the word is that says what it is

LEFT_OUT = -1
_BLANK = "\2"  # in the place of what the model suspects

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Line:
    """A line: where it begins and ends in its text, and the borders of its variable parts, 0 and its length outside."""

    start: int
    end: int
    borders: tuple[int, ...]


@dataclass(frozen=True)
class Condensed:
    """Some lines of a text, one of each skeleton.

    lines   of the whole text; forms gives for each the number of the kept line with its skeleton, or LEFT_OUT
    kept    the kept lines, at their places in `text`; sources gives the number of each among `lines`
    """

    text: str
    lines: list[Line]
    forms: list[int]
    kept: list[Line]
    sources: list[int]

    def tokens(self, offsets: Integers) -> tuple[Integers, Integers]:
        """For the tokens of these lines in order: the number of the token in the condensed text, and its characters in
        the whole one. `offsets` [tokens, 2] are those of the condensed text; a token is of the line it begins in."""
        edges = np.searchsorted(offsets[:, 0], [line.start for line in self.kept] + [len(self.text)])
        numbers = [np.zeros(0, np.int32)]
        places = [np.zeros((0, 2), np.int32)]
        for line, form in zip(self.lines, self.forms, strict=True):
            if form == LEFT_OUT:
                continue
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
            if form != LEFT_OUT:
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


@dataclass(frozen=True)
class _Form:
    """A skeleton: its first line, its words (none if that is no line of a log), and whether it is read first."""

    source: int
    words: frozenset[str]
    first: bool


class Log:
    """The lines of a text by their skeletons, and which are to be read: `first`, and what `second` then asks for."""

    def __init__(self, text: str, lines: list[Line], numbers: list[int], forms: list[_Form]) -> None:
        self._text = text
        self._lines = lines
        self._numbers = numbers  # of the form of each line
        self._forms = forms
        self.first = self._condensed([number for number, form in enumerate(forms) if form.first])

    def second(self, any_pii: Floats, offsets: Integers) -> Condensed | None:
        """What else must be read, after the probabilities and places of the tokens of `first`; None if nothing must."""
        text = np.array(list(self.first.text))
        for start, end in offsets[any_pii > CLEAN]:
            text[start:end] = _BLANK
        clean: set[str] = set()
        for line in self.first.kept:
            clean |= _words(_skeleton("".join(text[line.start : line.end]))[0])
        rest = [number for number, form in enumerate(self._forms) if not form.first and not form.words <= clean]
        return self._condensed(rest) if rest else None

    def _condensed(self, chosen: list[int]) -> Condensed:
        """The lines of the chosen forms."""
        place = {number: at for at, number in enumerate(chosen)}
        sources = [self._forms[number].source for number in chosen]
        contents = [self._text[self._lines[source].start : self._lines[source].end] for source in sources]
        starts = [0, *accumulate(map(len, contents))]
        kept = [
            Line(start, end, self._lines[source].borders)
            for start, end, source in zip(starts, starts[1:], sources, strict=False)
        ]
        forms = [place.get(number, LEFT_OUT) for number in self._numbers]
        return Condensed("".join(contents), self._lines, forms, kept, sources)


def condense(text: str) -> Log | None:
    """The lines of a text by their skeletons, or None where most must be read anyway."""
    if text.count("\n") < LEAST_LINES:
        return None
    lines: list[Line] = []
    numbers: list[int] = []
    forms: list[_Form] = []
    seen: dict[str, int] = {}
    known: set[str] = set()
    at = size = 0
    for content in text.splitlines(keepends=True):
        skeleton, borders = _skeleton(content)
        number = seen.get(skeleton) if len(content) >= LEAST_LENGTH else None
        if number is None:
            number = seen[skeleton] = len(forms)
            words = _words(skeleton) if _of_a_log(content, borders) else frozenset()
            first = not words or not words <= known
            forms.append(_Form(len(lines), words, first))
            known |= words
            size += len(content) if first else 0
            if size > MOST_KEPT * len(text):
                return None
        numbers.append(number)
        lines.append(Line(at, at + len(content), borders))
        at += len(content)
    return Log(text, lines, numbers, forms)


def _of_a_log(line: str, borders: tuple[int, ...]) -> bool:
    return len(line) >= LEAST_LENGTH and len(borders) >= 2 * LEAST_NUMBERS + 2 and borders[1] <= FIRST_NUMBER


def _words(skeleton: str) -> frozenset[str]:
    """What must be known of a line before it need not be read: its words, pairs of names, the words before numbers."""
    words = set(_WORD.findall(skeleton))
    for match in _PAIR.finditer(skeleton):
        one, other = match.groups()
        if one[0].isupper() and any(character.isupper() for character in other[:3]):
            words.add(one + other)
    end = 0
    for match in _NUMBER.finditer(skeleton):
        before = _WORD.findall(skeleton[max(end, match.start() - _BEFORE) : match.start()])
        words.add((before[-1] if before else "") + match[0])
        end = match.end()
    return frozenset(words)


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
            parts.append("\1")
        else:
            parts.append("\0" if len(found) <= ANY_DIGITS else f"\0{len(found)};")
        borders += (start, stop)
        end = stop
    parts.append(line[end:])
    borders.append(len(line))
    return "".join(parts), tuple(borders)
