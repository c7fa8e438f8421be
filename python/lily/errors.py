"""Every error that lily raises, in one tree under LilyError.

Errors are API: catch them by class, read them as one or two sentences that say what was found, what was expected and
what to do. The classes hold no logic beyond the few numbers a caller may want to act on; nothing else lives here.
"""

from __future__ import annotations


class LilyError(Exception):
    """The root: `except lily.errors.LilyError` catches everything that lily raises on purpose."""


class InvalidInput(LilyError, ValueError):
    """An argument is outside what the function accepts (a token id, an option, a text that is not valid Unicode)."""


class CheckpointError(LilyError):
    """A checkpoint on disk is not what it claims to be: missing, truncated, corrupt, changed or inconsistent."""


class UnsupportedCheckpoint(CheckpointError):
    """A checkpoint that is sound as far as it was read, but not of the one architecture and format that lily runs."""


class ContextOverflow(LilyError):
    """The tokens do not fit into the session. Raised before any work is done; nothing is ever truncated.

    `needed` and `limit` are positions, where the place that raised it knows them.
    """

    def __init__(self, message: str, needed: int | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.needed = needed
        self.limit = limit


class OutOfMemory(LilyError, MemoryError):
    """A reservation failed or would not fit; the message has the bytes asked for and, where known, those there are."""


class Cancelled(LilyError):
    """The work was stopped by `session.cancel()`. The session keeps what was committed and can go on. Ctrl-C is not
    this: it raises KeyboardInterrupt."""


class GrammarError(LilyError):
    """A grammar or JSON schema that cannot be compiled, or output that cannot continue under it."""


class NumericalError(LilyError):
    """Logits or a state hold NaN or infinity: the result would be meaningless, so there is none."""


class DeviceError(LilyError):
    """The device, its driver or the compiled extension cannot do what was asked (also: use after fork)."""


class Disturbed(LilyError):
    """A measurement that would be worth nothing, because other programs used the machine while it ran."""


class HubError(LilyError):
    """A repository of the Hugging Face hub could not be found, reached or stored."""


class PolicyError(LilyError):
    """A policy that cannot be used as it is written. `problems` has one sentence for each thing that is wrong."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class PolicyBlocked(LilyError):
    """The policy keeps this text on the device. `outcome` is what it decided ("local", "ask", "refuse")."""

    def __init__(self, message: str, outcome: str = "", reasons: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reasons = reasons


class AuditError(LilyError):
    """The audit log cannot be written, read or believed. What it could not record does not leave the device."""
