"""The engine: one model on one device. Reading (prefill), writing (decode), and the text calls on top of them.

This file checks arguments, keeps the books and hands over; the work is in lily._ext (C++), text is in tokenizer.py,
chat.py and stream.py. All calls may come from any thread: the engine works on one step (a chunk of a prefill, or one
token) at a time, without the interpreter's lock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _ext
from .arguments import Tokens, callback, count, token_array
from .checkpoint import Checkpoint, open_checkpoint
from .device import parse_activations, parse_device
from .display import size, table
from .errors import ContextOverflow, DeviceError, InvalidInput, LilyError
from .location import locate
from .sampling import GREEDY, Sampling, checkpoint_sampling
from .scores import Scores
from .session import PrefillResult, Session, SessionStats
from .stream import Generation, Piece, Progress, Run, StopStrings, collect, hand_off

if TYPE_CHECKING:
    from .chat import ChatTemplate, Message
    from .tokenizer import Tokenizer

logger = logging.getLogger("lily")

CHUNK = (
    512  # tokens of one prefill step; edges lie at multiples, so that results do not depend on where a prompt is cut
)


class Engine:
    """A loaded model; made by Engine.load. Has close() and is a context manager.

    Attributes: checkpoint, vocab (entries of the output), max_context (tokens a session can hold), stop_ids (a
    frozenset), default_sampling (the checkpoint's own), device (such as "cpu (avx2, 4 threads)").
    """

    def __init__(self, inner: _ext.Engine, checkpoint: Checkpoint, *, source: str, max_context: int) -> None:
        self._inner = inner
        self._closed = False
        self._source = source
        self.checkpoint = checkpoint
        self.vocab = checkpoint.architecture.vocab
        self.max_context = max_context
        self.stop_ids = frozenset(checkpoint.stop_ids)
        self.default_sampling = checkpoint_sampling(
            checkpoint.generation_config, str(checkpoint.path / "generation_config.json")
        )
        self.device = inner.device_name

    @classmethod
    def load(
        cls,
        path_or_repo: str | Path,
        *,
        device: str = "auto",
        max_context: int = 4096,
        threads: int | None = None,
        activations: str | None = None,
        revision: str | None = None,
        offline: bool | None = None,
        progress: Progress | None = None,
    ) -> Engine:
        """Opens the checkpoint in a folder, in a repository of the hub (downloaded once), or in the package ("nano"),
        and readies the device.

        device        "auto", "cpu" or "metal"; "cpu:avx2" forces one instruction set; "metal:host" runs the kernels
                      of Metal on the CPU, slowly, for tests
        max_context   tokens a session can hold; every session reserves its memory for all of them
        threads       None is one for each CPU this process may use (affinity and cgroup quota)
        activations   how matrices take their inputs: "int8", in 8 bits, or "bf16"; None is
                      the faster one, int8 on the CPU and bf16 on Metal (docs/internals.md, where numbers are rounded)
        revision      of a repository; None is the pinned one
        offline       True never touches the network; None asks the environment (LILY_OFFLINE)
        progress      called with bytes done and in all while a repository downloads

        Raises CheckpointError, UnsupportedCheckpoint, HubError, DeviceError, OutOfMemory, InvalidInput.
        """
        arguments = parse_device(device)
        byte_inputs = parse_activations(activations, arguments["device"])
        context = count(max_context, "max_context", 2**31 - 1)
        workers = 0 if threads is None else count(threads, "threads", _ext.MAX_THREADS)
        callback(progress, "progress")
        start = time.perf_counter()
        checkpoint = open_checkpoint(locate(path_or_repo, revision, offline, progress))
        try:
            _check_positions(context, checkpoint.max_positions)
            weights = _ext.Weights(checkpoint.files, checkpoint.tensors)
            inner = _ext.Engine(
                weights,
                checkpoint.config,
                threads=workers,
                max_context=context,
                chunk=CHUNK,
                byte_inputs=byte_inputs,
                **arguments,
            )
            engine = cls(inner, checkpoint, source=str(path_or_repo), max_context=context)
        except BaseException:
            checkpoint.close()
            raise
        logger.info("loaded %s on %s in %.2f s", checkpoint.path, engine.device, time.perf_counter() - start)
        if copied := engine.memory["weights_copied"]:
            logger.info(
                "copied %s of it to the device; where files are aligned (lily repack), Metal copies nothing",
                size(copied),
            )
        return engine

    def session(self) -> Session:
        """A new, empty timeline of max_context tokens, all its memory reserved. Raises OutOfMemory."""
        return Session(self, self._open().session())

    def prefill(self, session: Session, tokens: Tokens, progress: Progress | None = None) -> PrefillResult:
        """Reads `tokens` at the end of the session; a pending token is read before them.

        `progress` is called with the tokens done and in all, after each chunk. Raises ContextOverflow before any work,
        Cancelled (session.cancel(); whole chunks that were read stay read), NumericalError, InvalidInput."""
        return self.read(session, tokens, progress, claim=None)

    def read(self, session: Session, tokens: Tokens, progress: Progress | None, *, claim: int | None) -> PrefillResult:
        """What prefill and stream are made of; refused if somebody else has claimed the session since `claim`."""
        self._ready(session)
        callback(progress, "progress")
        ids = token_array(tokens, self.vocab)
        before = session.position
        start = time.perf_counter()
        try:
            self._inner.prefill(session.native, ids, progress, claim)
        finally:
            seconds = time.perf_counter() - start
            with suppress(LilyError):  # `progress` may have closed the session, and what it raised comes first
                session.stats = SessionStats(
                    cached_tokens=before, prefill_tokens=session.position - before, prefill_seconds=seconds
                )
        return PrefillResult(session.logits(), session.stats.prefill_tokens, before, seconds)

    def decode(self, session: Session, max_tokens: int = 64, sampling: Sampling = GREEDY) -> Iterator[int]:
        """Yields up to `max_tokens` tokens, one by one, and stops at a stop id.

        A token is fed when the next one is asked for: until then it is session.pending. The stop id is not yielded but
        is pending too, so that a chat which goes on does so after it, and so does another decode. The iterator may be
        left at any time; the session stays usable.

        A session has one writer, the latest: once another decode or stream begins on it, or it is reset or restored,
        the iterator raises InvalidInput and feeds nothing, because its text would go on in a timeline of somebody
        else's. To write several continuations side by side, fork() the session. A prefill changes nothing: the
        iterator goes on after what was read.

        Raises InvalidInput too for a session that has read nothing, ContextOverflow when the session is full,
        Cancelled, NumericalError."""
        self._ready(session)
        limit = count(max_tokens, "max_tokens", 2**31 - 1)
        sampler = _sampling(sampling).sampler(self.vocab)
        if session.position == 0:
            raise InvalidInput(
                "the session is empty, so nothing can follow; engine.prefill(session, tokens) comes first."
            )
        return self._tokens(self.steps(session, sampler, limit, claim=session.native.claim()))

    def steps(
        self, session: Session, sampler: _ext.Sampler, limit: int, *, claim: int | None = None
    ) -> Generator[int, None, None]:
        """`limit` tokens, stop ids among them: what decode and stream are made of. With a claim, refused once somebody
        else has claimed the session."""
        feeds = session.pending is not None
        for _ in range(limit):
            self._ready(session)
            start = time.perf_counter()
            token: int = self._inner.step(session.native, sampler, claim)
            if feeds:
                stats = session.stats
                session.stats = replace(
                    stats,
                    decode_tokens=stats.decode_tokens + 1,
                    decode_seconds=stats.decode_seconds + time.perf_counter() - start,
                )
            feeds = True
            yield token

    def _tokens(self, steps: Iterator[int]) -> Generator[int, None, None]:
        for token in steps:
            if token in self.stop_ids:
                return
            yield token

    def forward(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Logits after every one of `tokens`, read from an empty timeline: float32 [len(tokens), vocab].

        For short inputs: raises InvalidInput when the result would be over 512 MB (score reduces it, so it takes any
        length), ContextOverflow beyond max_context."""
        return self._open().forward(token_array(tokens, self.vocab))

    def score(self, tokens: Tokens, top: int = 16) -> Scores:
        """How likely each token was, and what the `top` most likely ones were, at every position from an empty
        timeline. Raises InvalidInput, ContextOverflow. Ctrl-C ends it with KeyboardInterrupt."""
        return Scores(*self._open().score(token_array(tokens, self.vocab), count(top, "top", self.vocab)))

    def stream(
        self,
        prompt: str | Sequence[Message],
        max_tokens: int | None = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        session: Session | None = None,
        progress: Progress | None = None,
        thinking: bool | None = None,
    ) -> Generator[Piece, None, None]:
        """Yields an answer piece by piece; the last piece has the finish reason and the numbers.

        prompt      a text, continued as it stands, or messages, which go through the checkpoint's chat template; what
                    either spells out never becomes a control token
        max_tokens  the most to generate; None is as many as the context holds
        sampling    None is engine.default_sampling
        stop        strings that end the text and are cut from it
        session     None is one of its own. Given one whose tokens begin the prompt, only the rest is read; otherwise it
                    is emptied and read from the start, and stats.cache_miss says why. A session has one writer: from
                    its first piece on the stream is it, until another decode or stream begins on the session or it is
                    reset or restored; then the next piece raises InvalidInput and nothing is fed
        thinking    for messages: passes enable_thinking to the template

        Arguments are checked at once, before the first piece is asked for. Raises ContextOverflow if prompt +
        max_tokens + 1 is over max_context, InvalidInput, CheckpointError without a tokenizer or template, Cancelled.
        """
        callback(progress, "progress")
        ids = self._prompt(prompt, thinking)
        if session is not None:
            self._ready(session)
        return Run(
            self,
            ids,
            max_tokens=self._room(len(ids), max_tokens),
            sampling=self.default_sampling if sampling is None else _sampling(sampling),
            stops=StopStrings(stop),
            session=session,
            progress=progress,
        ).pieces()

    def generate(
        self,
        prompt: str | Sequence[Message],
        max_tokens: int | None = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        session: Session | None = None,
        progress: Progress | None = None,
        thinking: bool | None = None,
    ) -> Generation:
        """The whole answer of `stream`, with the same arguments and errors."""
        return collect(self.stream(prompt, max_tokens, sampling, stop, session, progress, thinking))

    async def astream(
        self,
        prompt: str | Sequence[Message],
        max_tokens: int | None = 256,
        sampling: Sampling | None = None,
        stop: str | Sequence[str] = (),
        session: Session | None = None,
        progress: Progress | None = None,
        thinking: bool | None = None,
    ) -> AsyncIterator[Piece]:
        """`stream` for an event loop: the work is done in a worker thread, `progress` is called there. Cancelling the
        task stops it within one chunk or one token."""
        own = self.session() if session is None else session
        try:
            async for piece in hand_off(self.stream(prompt, max_tokens, sampling, stop, own, progress, thinking), own):
                yield piece
        finally:
            if session is None:
                own.close()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read at first use. Raises CheckpointError if the checkpoint has none."""
        from .tokenizer import Tokenizer

        return Tokenizer.open(self.checkpoint.path, self.vocab)

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """Read at first use. Raises CheckpointError if the checkpoint has none."""
        from .chat import ChatTemplate

        return ChatTemplate.open(self.checkpoint.path, self.tokenizer)

    @property
    def info(self) -> dict[str, Any]:
        """What is loaded and where it runs: plain values, ready for JSON."""
        return {
            "source": self._source,
            "device": self.device,
            "threads": self._inner.threads,
            "instruction_set": self._inner.isa,
            "activations": "int8" if self._inner.byte_inputs else "bf16",
            "max_context": self.max_context,
            "chunk": self._inner.chunk,
            **self.checkpoint.describe(),
        }

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by use: weights_mapped (file pages, shared and reclaimable), weights_copied (of them, to a device that
        cannot read them where they lie), weights_converted, scratch, sessions."""
        return self._inner.memory()

    def close(self) -> None:
        """Waits for the running step, then frees everything, sessions included. May be called twice."""
        if not self._closed:
            self._closed = True
            self._inner.close()
            self.checkpoint.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"on {self.device}, max_context {self.max_context}"
        return f"<lily.Engine {self.checkpoint.name} {state}>"

    def _repr_html_(self) -> str:
        title = f"lily: {self.checkpoint.name}"
        try:
            memory = {name.replace("_", " "): size(count) for name, count in self.memory.items()}
        except DeviceError:
            return table(title, {"state": "loaded before fork(), usable in the parent process only"})
        except InvalidInput:
            return table(title, {"state": "closed"})
        facts = self.checkpoint.describe()
        return table(title, {
            "checkpoint": facts["path"],
            "parameters": f"{facts['parameters']:,}, of which {facts['active_parameters']:,} work on a token",
            "device": self.device,
            "max_context": self.max_context,
            **memory,
        })  # fmt: skip

    def _open(self) -> _ext.Engine:
        """What every call needs: an open engine, and files that are what they were."""
        try:
            if not self._closed:
                self.checkpoint.check_unchanged()
        except (LilyError, OSError):
            if not self._closed:  # else another thread closed the files while they were looked at
                raise
        if self._closed:
            raise InvalidInput("the engine is closed; load it again with Engine.load.")
        return self._inner

    def _ready(self, session: object) -> None:
        """What a call on a session needs besides: a session of this engine."""
        self._open()
        if not isinstance(session, Session) or session.engine is not self:
            raise InvalidInput(f"{session!r} is not a session of {self!r}; make one with engine.session().")

    def _prompt(self, prompt: str | Sequence[Message], thinking: bool | None) -> list[int]:
        self._open()
        if not isinstance(prompt, str):
            return self.chat_template.encode(prompt, thinking=thinking, most=self.max_context)
        if thinking is not None:
            raise InvalidInput("thinking is an option of messages, and the prompt is a text; leave one of them out.")
        self.tokenizer.require_room(prompt, self.max_context)
        ids = self.tokenizer.encode(prompt)
        if not ids:
            raise InvalidInput("the prompt is empty; expected at least one character.")
        return ids

    def _room(self, prompt: int, max_tokens: int | None) -> int:
        """How many tokens to generate, or ContextOverflow. One position stays free for the token after the last."""
        wanted = 1 if max_tokens is None else count(max_tokens, "max_tokens", 2**31 - 1)
        needed = prompt + wanted + 1
        if needed > self.max_context:
            raise ContextOverflow(
                f"a prompt of {prompt} tokens, {wanted} to generate and 1 spare are {needed}; max_context is "
                f"{self.max_context}. Shorten the prompt, lower max_tokens, or load the engine with a larger one.",
                needed, self.max_context,
            )  # fmt: skip
        return self.max_context - prompt - 1 if max_tokens is None else wanted


def _sampling(sampling: object) -> Sampling:
    if not isinstance(sampling, Sampling):
        raise InvalidInput(f"sampling is a {type(sampling).__name__}; expected lily.Sampling(...).")
    return sampling


def _check_positions(max_context: int, positions: int | None) -> None:
    if positions is not None and max_context > positions:
        raise InvalidInput(f"max_context is {max_context}; this model has positions for at most {positions} tokens.")
