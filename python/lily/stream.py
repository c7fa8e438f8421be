"""Text out of tokens: pieces, stop strings, and the loop that generates them.

Everything here is bookkeeping above Engine.prefill and decode steps; which token comes next, and at what speed, is
decided below.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .errors import InvalidInput
from .sampling import Sampling
from .session import Session, SessionStats
from .tokenizer import check_text

if TYPE_CHECKING:
    from .engine import Engine

FinishReason = Literal["stop", "length"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class GenerationStats(SessionStats):
    """The numbers of one generation: those of its session, and

    prompt_tokens     tokens of the whole prompt; cached_tokens of them were not read again
    generated_tokens  tokens generated, the stop id not counted
    seed              of the sampling that was used; give it again for the same text
    stopped_by        the stop string or the stop id that ended the text; None for finish reason "length"
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    seed: int | None = None
    stopped_by: str | int | None = None


@dataclass(frozen=True)
class Piece:
    """One step of a stream. Every generated token gives one piece, and one closing piece follows.

    text           what became certain with this step; empty while a character is incomplete or a stop string may begin
    tokens         the id of this step; none in the closing piece
    finish_reason  "stop" (a stop id or stop string) or "length" (max_tokens, or the context is full) in the closing
                   piece, else None
    stats          in the closing piece, else None
    """

    text: str
    tokens: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    stats: GenerationStats | None = None


@dataclass(frozen=True)
class Generation:
    """A whole stream: the joined text, all token ids (those of a stop string too), and the numbers."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stats: GenerationStats = field(repr=False)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.stats.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the session held already and did not read again."""
        return self.stats.cached_tokens

    @property
    def prefill_tps(self) -> float:
        """Tokens read a second; 0.0 where none was."""
        return self.stats.prefill_tps

    @property
    def decode_tps(self) -> float:
        """Tokens fed a second while decoding; 0.0 where none was."""
        return self.stats.decode_tps


class StopStrings:
    """Cuts a text at the first stop string to become complete (of several that end together, the longest), however the
    text is chunked. Text that may be the beginning of one is held back until it is known."""

    def __init__(self, stops: str | Sequence[str]) -> None:
        """Raises InvalidInput for a stop string that is empty, no str or not valid Unicode."""
        if isinstance(stops, str):
            stops = [stops]
        if not isinstance(stops, Sequence):
            raise InvalidInput(f"stop is a {type(stops).__name__}; expected a str or a list of str.")
        self._stops = [check_text(stop, f"stop[{index}]") for index, stop in enumerate(stops)]
        if "" in self._stops:
            raise InvalidInput(f"stop[{self._stops.index('')}] is empty, which every text contains; leave it out.")
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The part of the text so far that is certain to belong to the output. Nothing comes after a match."""
        if self.matched is not None:
            return ""
        self._held += text
        found = [(self._held.find(stop), stop) for stop in self._stops if stop in self._held]
        if found:
            start, self.matched = min(found, key=lambda match: (match[0] + len(match[1]), match[0]))
            certain, self._held = self._held[:start], ""
            return certain
        border = len(self._held) - self._beginning()
        certain, self._held = self._held[:border], self._held[border:]
        return certain

    def flush(self) -> str:
        """What was held back, now that no more text comes."""
        text, self._held = self._held, ""
        return text

    def _beginning(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max(map(len, self._stops), default=0) - 1
        return next(
            (
                length
                for length in range(min(longest, len(self._held)), 0, -1)
                if any(stop.startswith(self._held[-length:]) for stop in self._stops)
            ),
            0,
        )


class Run:
    """One generation on one session: reads what the session does not hold yet, then yields pieces."""

    def __init__(
        self,
        engine: Engine,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        stops: StopStrings,
        session: Session | None,
        progress: Progress | None,
    ) -> None:
        self._engine = engine
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._sampling = sampling.with_seed()
        self._sampler = self._sampling.sampler(engine.vocab)
        self._stops = stops
        self._session = session
        self._progress = progress

    def pieces(self) -> Generator[Piece, None, None]:
        """The stream; a session made for it is closed with it, one that was passed in stays usable."""
        if self._session is not None:
            yield from self._pieces(self._session)
            return
        with self._engine.session() as session:
            yield from self._pieces(session)

    def _pieces(self, session: Session) -> Generator[Piece, None, None]:
        claim = self._read(session)
        text = self._engine.tokenizer.stream()
        generated = 0
        stopped_by: str | int | None = None
        for token in self._engine.steps(session, self._sampler, self._max_tokens, claim=claim):
            if token in self._engine.stop_ids:
                stopped_by = token
                break
            generated += 1
            yield Piece(self._stops.push(text.push(token)), (token,))
            if (stopped_by := self._stops.matched) is not None:
                break
        rest = self._stops.push(text.flush()) + self._stops.flush()
        stopped_by = stopped_by if stopped_by is not None else self._stops.matched
        stats = GenerationStats(
            **vars(session.stats),
            prompt_tokens=len(self._prompt),
            generated_tokens=generated,
            seed=None if self._sampling.greedy else self._sampling.seed,
            stopped_by=stopped_by,
        )
        yield Piece(rest, (), "length" if stopped_by is None else "stop", stats)

    def _read(self, session: Session) -> int:
        """Brings the session to the end of the prompt, from where it stands if the prompt continues it, and claims it
        first: whoever else begins in the meantime ends this run, instead of both reading into one timeline."""
        claim = session.native.claim()
        miss = session.reuse(self._prompt)
        if miss is not None:
            claim = session.native.reset()
        held = session.position + (session.pending is not None)
        if held < len(self._prompt):
            self._engine.read(session, self._prompt[held:], self._progress, claim=claim)
        else:  # the prompt is exactly what the session holds: the first step goes on from there
            session.stats = SessionStats(cached_tokens=session.position)
        session.stats = replace(session.stats, cache_miss=miss)
        return claim


def collect(pieces: Iterable[Piece]) -> Generation:
    """A whole stream as one result."""
    texts: list[str] = []
    tokens: list[int] = []
    for piece in pieces:
        texts.append(piece.text)
        tokens.extend(piece.tokens)
        if piece.finish_reason is not None and piece.stats is not None:
            return Generation("".join(texts), tuple(tokens), piece.finish_reason, piece.stats)
    raise AssertionError("a stream ends with a closing piece")


async def hand_off(pieces: Generator[Piece, None, None], session: Session) -> AsyncIterator[Piece]:
    """The same pieces for an event loop, which stays free: each is made in a worker thread. If the task is cancelled
    the session is too, and the worker is waited for, at most one chunk or one token."""
    loop = asyncio.get_running_loop()
    while True:
        step = loop.run_in_executor(None, next, pieces, None)
        try:
            piece = await asyncio.shield(step)
        except asyncio.CancelledError:
            while not step.done():
                session.cancel()  # again and again: a prefill that is about to start forgets an earlier call
                await asyncio.wait([step], timeout=0.01)
            step.exception()  # Cancelled, as asked
            session.native.cancel(wanted=False)  # what the worker did not take is not meant for the next call
            raise
        if piece is None:
            return
        yield piece
