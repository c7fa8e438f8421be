"""The model of the Gate: texts to spans, to a score of the whole, and to a probability for every token.

A text of any length is cut into overlapping windows. Logits of tokens that lie in several windows are averaged, those
near the middle of a window counting most (a triangle), and one Viterbi path (lily._ext) runs over the whole text, so
that no window border shows and nothing is truncated. Windows of many texts go through the encoder together; at any time
there are as many as one batch, whatever the texts' lengths. Rules, policy and masks are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from .. import _ext
from ..arguments import count, switch
from ..device import parse_device
from ..errors import InvalidInput
from ..tokenizer import Tokenizer
from .checkpoint import TAGS, EncoderCheckpoint, open_encoder
from .repeats import Condensed, condense
from .spans import LABELS, Span

EMBEDDED = Path(__file__).parent.parent / "models" / "gate-nano"
"""The checkpoint that comes with the package."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]

_BATCH = 4096  # tokens of one call of the encoder, at least a window
_PIECE = 16_384  # characters that are tokenised at a time
_SEARCH = 4096  # of them, from the end, in which a good place for the cut is looked for
_CUT = re.compile(r"(?s:.*)[^\W_](?=\s)")  # behind a letter or digit and before white space every tokenizer cuts
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Reading:
    """What the model says about one text.

    spans        sorted, without overlap; `score` is the mean over the span's tokens of the probability of its label
                 (the four tags of the label together, from the averaged logits)
    sensitivity  0 to 1: the largest of the windows'; 0.0 for a text without tokens
    any_pii      float32 [tokens]: probability that the token is anything but O; of the tokens that the model read
    offsets      int32 [tokens, 2]: the characters of each token, end exclusive; tokens may share a character
    """

    spans: list[Span]
    sensitivity: float
    any_pii: Floats
    offsets: Integers


class Classifier:
    """A loaded classifier. Thread-safe; has close() and is a context manager.

    Attributes: checkpoint; tokenizer; device (such as "cpu (avx2, 4 threads)"); window and stride, in tokens; last,
    the tokens of a last window at most, which takes what would leave a window of little but overlap.
    """

    def __init__(self, inner: _ext.Encoder, checkpoint: EncoderCheckpoint, tokenizer: Tokenizer, stride: int) -> None:
        self._inner = inner
        self.checkpoint = checkpoint
        self.tokenizer = tokenizer
        self.window = checkpoint.window
        self.stride = stride
        self.last = min(2 * checkpoint.window - stride, checkpoint.longest)
        self.device = inner.device_name

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        stride: int | None = None,
    ) -> Classifier:
        """Opens the checkpoint in a folder; None is the embedded one.

        device   "auto", "cpu" or "metal"; "cpu:avx2" forces one instruction set; "metal:host" is for tests
        threads  None is one for each CPU this process may use
        stride   tokens from one window to the next, at most a window; None is what the checkpoint says

        Raises CheckpointError, UnsupportedCheckpoint, DeviceError, OutOfMemory, InvalidInput.
        """
        arguments = parse_device(device)
        workers = 0 if threads is None else count(threads, "threads", _ext.MAX_THREADS)
        checkpoint = open_encoder(EMBEDDED if path is None else path)
        try:
            step = checkpoint.stride if stride is None else count(stride, "stride", checkpoint.window)
            tokenizer = Tokenizer.open(checkpoint.path, int(checkpoint.config["vocab"]))
            weights = _ext.Weights(checkpoint.files, checkpoint.tensors)
            rows = max(checkpoint.longest, _BATCH)
            inner = _ext.Encoder(weights, checkpoint.config, threads=workers, max_rows=rows, **arguments)
        except BaseException:
            checkpoint.close()
            raise
        return cls(inner, checkpoint, tokenizer, step)

    def read(self, texts: Sequence[str], *, repeats: bool = True) -> list[Reading]:
        """A reading of each text, in order. Texts of any length; memory grows with the tokens by a few bytes each.

        Of the lines of a log only those are read that may hold something new (repeats.py); the reading has no tokens of
        the others. `repeats=False` reads every line.

        Raises CheckpointError (the files changed), NumericalError, DeviceError, InvalidInput.
        """
        if isinstance(texts, str):
            raise InvalidInput("texts is a str; expected a list of them: read([text]).")
        self.checkpoint.check_unchanged()
        logs = [condense(text) if switch(repeats, "repeats") else None for text in texts]
        readings = self._read([text if log is None else log.first.text for text, log in zip(texts, logs, strict=True)])
        rest: list[tuple[int, Condensed]] = []
        for at, log in enumerate(logs):
            if log is not None:
                more = log.second(readings[at].any_pii, readings[at].offsets)
                readings[at] = _spread(readings[at], log.first, texts[at])
                rest += [] if more is None else [(at, more)]
        for (at, more), reading in zip(rest, self._read([more.text for _, more in rest]), strict=True):
            readings[at] = _joined(readings[at], _spread(reading, more, texts[at]))
        return readings

    def _read(self, texts: Sequence[str]) -> list[Reading]:
        timelines = [_Timeline(self, text) for text in texts]
        windows = (window for timeline in timelines for window in timeline.windows())
        for batch in _batches(windows, self._inner.max_rows):
            ids = np.concatenate([window.ids for window in batch])
            lengths = np.array([len(window.ids) for window in batch], np.int32)
            logits, sensitivity = self._inner.logits(ids, lengths)
            edges = np.concatenate([[0], np.cumsum(lengths)])
            for window, first, last, score in zip(batch, edges, edges[1:], sensitivity, strict=False):
                window.timeline.take(window, logits[first:last], float(score))
        return [timeline.finish() for timeline in timelines]

    def close(self) -> None:
        """Gives the memory and the files back. Later calls raise InvalidInput."""
        self._inner.close()
        self.checkpoint.close()

    def __enter__(self) -> Classifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class _Window:
    timeline: _Timeline
    first: int  # token of the text
    ids: Integers


def _batches(windows: Iterable[_Window], rows: int) -> Iterator[list[_Window]]:
    """The windows in order, as many at a time as fit into `rows` tokens."""
    batch: list[_Window] = []
    size = 0
    for window in windows:
        if size + len(window.ids) > rows:
            yield batch
            batch, size = [], 0
        batch.append(window)
        size += len(window.ids)
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """A text in pieces with their offsets, cut where its tokens are the same as without the cut."""
    at = 0
    while len(text) - at > _PIECE:
        end = at + _PIECE
        found = _CUT.match(text, end - _SEARCH, end)
        end = found.end() if found else end
        yield at, text[at:end]
        at = end
    if at < len(text):
        yield at, text[at:]


class _Timeline:
    """One text on its way: its windows go out in order, their logits come back in order, tags are decided behind them.

    Logits exist for the tokens between the last decided one and the last window only; every other token is 17 bytes.
    """

    def __init__(self, classifier: Classifier, text: str) -> None:
        self._classifier = classifier
        self._text = text
        self._viterbi = _ext.Viterbi(classifier.checkpoint.b_bias, classifier.checkpoint.e_bias)
        self._count = 0  # tokens, as far as the text was tokenised
        self._done = 0  # tokens whose logits are final
        self._sums = np.zeros((0, len(TAGS)), np.float32)  # of the tokens from there on: logits times weights
        self._weights = np.zeros(0, np.float32)
        self._waiting: list[Floats] = []  # probabilities of labels, of final tokens without a tag
        self._sensitivity = 0.0
        # Of the tokens, in order:
        self._offsets: list[Integers] = []
        self._any_pii: list[Floats] = []
        self._tags: list[npt.NDArray[np.uint8]] = []
        self._scores: list[Floats] = []  # probability of the tag's label

    def windows(self) -> Iterator[_Window]:
        """The windows, in order."""
        window, stride, last = self._classifier.window, self._classifier.stride, self._classifier.last
        ids, first = np.zeros(0, np.int32), 0
        # A lone surrogate is no character; one that stands for "not a character" keeps the offsets.
        text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", self._text)
        pieces = _pieces(text)
        more = True
        while more:
            while len(ids) <= last and (piece := next(pieces, None)) is not None:
                start, part = piece
                new_ids, new_offsets = self._classifier.tokenizer.encode_with_offsets(part)
                places = np.array(new_offsets, np.int32).reshape(-1, 2) + np.int32(start)
                ids = np.concatenate([ids, np.array(new_ids, np.int32)])
                self._offsets.append(places)
                self._count += len(new_ids)
            more = len(ids) > last
            here = ids[:window] if more else ids
            if len(here):
                yield _Window(self, first, here)
            ids, first = ids[stride:], first + stride

    def take(self, window: _Window, logits: Floats, sensitivity: float) -> None:
        """Logits [n, tags] of a window; none of an earlier window comes after it."""
        self._settle(window.first)
        size = len(logits)
        self._grow(window.first + size)
        ramp = np.arange(1, size + 1, dtype=np.float32)
        triangle = np.minimum(ramp, ramp[::-1])
        self._sums[:size] += logits * triangle[:, None]
        self._weights[:size] += triangle
        self._sensitivity = max(self._sensitivity, _sigmoid(sensitivity))

    def finish(self) -> Reading:
        """The reading of the whole text."""
        self._settle(self._count)
        self._decide(self._viterbi.finish())
        offsets = np.concatenate([np.zeros((0, 2), np.int32), *self._offsets])
        tags = np.concatenate([np.zeros(0, np.uint8), *self._tags])
        scores = np.concatenate([np.zeros(0, np.float32), *self._scores])
        any_pii = np.concatenate([np.zeros(0, np.float32), *self._any_pii])
        return Reading(_spans(self._text, offsets, tags, scores), self._sensitivity, any_pii, offsets)

    def _grow(self, end: int) -> None:
        """Room for the sums of the tokens before `end`."""
        if (missing := end - self._done - len(self._weights)) > 0:
            self._sums = np.concatenate([self._sums, np.zeros((missing, len(TAGS)), np.float32)])
            self._weights = np.concatenate([self._weights, np.zeros(missing, np.float32)])

    def _settle(self, end: int) -> None:
        """The tokens before `end` get no more logits: their probabilities, and the tags that are now decided."""
        size = end - self._done
        if size > 0:
            logits = self._sums[:size] / self._weights[:size, None]
            self._done, self._sums, self._weights = end, self._sums[size:], self._weights[size:]
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
            self._any_pii.append(np.maximum(1 - odds[:, 0], 0))
            self._waiting.append(odds[:, 1:].reshape(size, len(LABELS), 4).sum(axis=2))
            self._decide(self._viterbi.push(logits))

    def _decide(self, tags: Integers) -> None:
        if len(tags):
            waiting = np.concatenate(self._waiting)
            labels = np.maximum(tags - 1, 0) // 4
            self._scores.append(waiting[np.arange(len(tags)), labels])
            self._tags.append(tags.astype(np.uint8))
            self._waiting = [waiting[len(tags) :]]


def _sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-np.float64(x))))


def _spread(reading: Reading, condensed: Condensed, text: str) -> Reading:
    """The reading of a condensed text as that of the whole one."""
    numbers, offsets = condensed.tokens(reading.offsets)
    found = sorted(
        replace(span, start=start, end=end)
        for span in reading.spans
        for start, end in condensed.spans(span.start, span.end)
        if start < end
    )
    spans: list[Span] = []
    for span in found:
        start, end = _trimmed(text, max(span.start, spans[-1].end if spans else 0), span.end)
        if start < end:
            spans.append(replace(span, start=start, end=end))
    return Reading(spans, reading.sensitivity, reading.any_pii[numbers], offsets)


def _joined(one: Reading, other: Reading) -> Reading:
    """The readings of different lines of a text as one."""
    offsets = np.concatenate([one.offsets, other.offsets])
    order = np.argsort(offsets[:, 0], kind="stable")
    any_pii = np.concatenate([one.any_pii, other.any_pii])[order]
    spans = sorted([*one.spans, *other.spans])
    return Reading(spans, max(one.sensitivity, other.sensitivity), any_pii, offsets[order])


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The part of start .. end without outer white space."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _spans(text: str, offsets: Integers, tags: npt.NDArray[np.uint8], scores: Floats) -> list[Span]:
    """The spans of a path: outer white space trimmed, and two that share a character cut behind the first."""
    parts = np.where(tags > 0, (tags.astype(np.int32) - 1) % 4, -1)  # B 0, I 1, E 2, S 3
    begins = np.flatnonzero((parts == 0) | (parts == 3))
    ends = np.flatnonzero((parts == 2) | (parts == 3))
    spans: list[Span] = []
    free = 0
    for first, last in zip(begins.tolist(), ends.tolist(), strict=True):
        start, end = _trimmed(text, max(int(offsets[first, 0]), free), int(offsets[last, 1]))
        if start < end:
            label = LABELS[(int(tags[first]) - 1) // 4]
            spans.append(Span(start, end, label, score=float(scores[first : last + 1].mean()), why="model"))
            free = end
    return spans
