"""lily runs Qwen3.6-35B-A3B on this machine: `Engine` reads and writes; `Gate` decides what may leave the device.

This file only names what is public. A name is imported when it is first used, so that `import lily` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors as errors
    from ._ext import Snapshot
    from .engine import Engine
    from .errors import LilyError
    from .gate import AuditLog, Gate, Outcome, Policy, Span, Verdict
    from .sampling import Sampling
    from .scores import Scores
    from .session import PrefillResult, Session, SessionStats
    from .stream import Generation, GenerationStats, Piece
    from .tokenizer import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "AuditLog",
    "Engine",
    "Gate",
    "Generation",
    "GenerationStats",
    "LilyError",
    "Outcome",
    "Piece",
    "Policy",
    "PrefillResult",
    "Sampling",
    "Scores",
    "Session",
    "SessionStats",
    "Snapshot",
    "Span",
    "Tokenizer",
    "Verdict",
    "errors",
]

_HOMES = {
    "AuditLog": "gate",
    "Engine": "engine",
    "Gate": "gate",
    "Generation": "stream",
    "GenerationStats": "stream",
    "LilyError": "errors",
    "Outcome": "gate",
    "Piece": "stream",
    "Policy": "gate",
    "PrefillResult": "session",
    "Sampling": "sampling",
    "Scores": "scores",
    "Session": "session",
    "SessionStats": "session",
    "Snapshot": "_ext",
    "Span": "gate",
    "Tokenizer": "tokenizer",
    "Verdict": "gate",
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "errors":
            return importlib.import_module(".errors", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
