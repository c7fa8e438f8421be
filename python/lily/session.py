"""One timeline: the tokens read so far, the state that followed from them, and the token that comes next.

A session only holds and reports; reading and writing are Engine.prefill and Engine.decode. All its memory is reserved
when it is made. Sessions of one engine share its weights and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .display import size, table
from .errors import DeviceError, InvalidInput

if TYPE_CHECKING:
    from . import _ext
    from .engine import Engine


@dataclass(frozen=True)
class PrefillResult:
    """What one prefill did.

    logits         float32 [vocab], of the last position
    tokens         how many tokens this call read, a pending token included
    cached_tokens  how many the session held before, which were not read again
    seconds        wall time of the call
    """

    logits: npt.NDArray[np.float32]
    tokens: int
    cached_tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens read a second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class SessionStats:
    """The last prefill of a session, and the decoding since.

    cached_tokens    positions the session held already and did not read again
    cache_miss       why a prompt could not go on from what the session held and was read from the start; else None
    prefill_tokens   tokens read, in prefill_seconds
    decode_tokens    tokens fed one by one, in decode_seconds; the first token after a prefill costs no feeding
    """

    cached_tokens: int = 0
    cache_miss: str | None = None
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0

    @property
    def prefill_tps(self) -> float:
        """Tokens read a second; 0.0 where none was read."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tps(self) -> float:
        """Tokens fed a second while decoding; 0.0 where none was."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds > 0 else 0.0

    def _repr_html_(self) -> str:
        return table("lily session, last call", {
            "read": f"{self.prefill_tokens} tokens, {self.prefill_tps:.1f} tok/s",
            "cached": f"{self.cached_tokens} tokens",
            "cache miss": self.cache_miss or "none",
            "written": f"{self.decode_tokens} tokens, {self.decode_tps:.1f} tok/s",
        })  # fmt: skip


class Session:
    """A timeline of one engine; made by Engine.session(). Has close() and is a context manager.

    One call at a time changes a session: calls from several threads are safe, but their tokens land in one timeline. It
    has one writer: a decode or stream that is left open raises InvalidInput once another one begins on the session, or
    after reset() or restore(), instead of going on in a timeline that is not its own.
    """

    def __init__(self, engine: Engine, inner: _ext.Session) -> None:
        self._engine = engine
        self._inner = inner
        self._closed = False
        self.stats = SessionStats()

    @property
    def engine(self) -> Engine:
        """The engine whose weights this session uses."""
        return self._engine

    @property
    def native(self) -> _ext.Session:
        """The session of the extension, for Engine. Raises InvalidInput once closed."""
        if self._closed:
            raise InvalidInput("the session is closed; make a new one with engine.session().")
        return self._inner

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """The tokens read so far, int32 [position]."""
        return self.native.tokens

    @property
    def position(self) -> int:
        """How many tokens were read; the next one gets this position."""
        return self.native.position

    @property
    def pending(self) -> int | None:
        """The token decode chose last, if it was not fed yet. It is fed before anything that comes next."""
        return self.native.pending

    @property
    def capacity(self) -> int:
        """The most tokens the session can hold: max_context of its engine."""
        return self.native.capacity

    @property
    def memory(self) -> int:
        """Bytes reserved for this session: keys and values, recurrent state, last logits."""
        return self.native.memory

    def logits(self) -> npt.NDArray[np.float32]:
        """The logits of the last token that was read, float32 [vocab], a copy. Raises InvalidInput before any was."""
        if self.position == 0:
            raise InvalidInput(
                "the session is empty, so it has no logits; engine.prefill(session, tokens) comes first."
            )
        return self.native.logits()

    def snapshot(self) -> _ext.Snapshot:
        """A copy of the whole timeline (tokens, keys and values, recurrent state, last logits, pending token). It has
        .position and .bytes."""
        return self.native.snapshot()

    def restore(self, snapshot: _ext.Snapshot) -> None:
        """Makes this timeline what it was at `snapshot`, which may come from any session of the same engine.

        Raises InvalidInput for what is no snapshot, or is one of another engine."""
        from ._ext import Snapshot

        if not isinstance(snapshot, Snapshot):
            raise InvalidInput(f"snapshot is a {type(snapshot).__name__}; session.snapshot() makes one.")
        self.native.restore(snapshot)

    def fork(self) -> Session:
        """A new session with the same timeline, which goes its own way. Raises OutOfMemory."""
        twin = Session(self._engine, self.native.fork())
        twin.stats = self.stats
        return twin

    def reset(self) -> None:
        """Empties the timeline; the memory stays reserved."""
        self.native.reset()
        self.stats = SessionStats()

    def cancel(self) -> None:
        """Stops the prefill or decode of this session, from any thread: it raises Cancelled within one chunk or one
        token. With none running, the next decode step does. The session keeps what was read and can go on."""
        self.native.cancel()

    def close(self) -> None:
        """Frees the memory. May be called twice."""
        if not self._closed:
            self._closed = True
            self._inner.close()

    def reuse(self, prompt: Sequence[int] | npt.NDArray[np.int32]) -> str | None:
        """None if `prompt` begins with all that this session holds (tokens read and the pending one), so that only the
        rest needs reading; otherwise the reason why not. A recurrent state cannot rewind, so a part is of no use."""
        held = self.tokens if self.pending is None else np.append(self.tokens, np.int32(self.pending))
        wanted = np.asarray(prompt, dtype=np.int32)
        shared = min(len(held), len(wanted))
        differing = np.flatnonzero(held[:shared] != wanted[:shared])
        if len(differing):
            at = int(differing[0])
            return f"position {at} holds token {held[at]}, the prompt has {wanted[at]}; {len(held)} tokens held"
        if len(held) > len(wanted):
            return f"the prompt ends at {len(wanted)} of the {len(held)} tokens held"
        return None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            token = self.pending
            pending = "" if token is None else f", token {token} pending"
            return f"<lily.Session {self.position} of {self.capacity} tokens{pending}, {size(self.memory)}>"
        except DeviceError:
            return "<lily.Session made before fork(), usable in the parent process only>"
        except InvalidInput:  # also closed by another thread just now, or with its engine
            return "<lily.Session closed>"
