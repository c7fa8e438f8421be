"""The Gate: what may leave the device. `Gate.classify` reads a text and gives a `Verdict` under a `Policy`.

This file only names what is public. A name is imported when it is first used, so that the command starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .audit import AuditLog, Head
    from .gate import Gate, GateSession
    from .masking import Restored
    from .policy import Decision, Destination, Limit, Operator, Outcome, Policy, Rules
    from .spans import LABELS, Span, utf8, utf16
    from .verdict import Verdict

__all__ = [
    "LABELS",
    "AuditLog",
    "Decision",
    "Destination",
    "Gate",
    "GateSession",
    "Head",
    "Limit",
    "Operator",
    "Outcome",
    "Policy",
    "Restored",
    "Rules",
    "Span",
    "Verdict",
    "utf8",
    "utf16",
]

_HOMES = {
    "audit": ("AuditLog", "Head"),
    "gate": ("Gate", "GateSession"),
    "masking": ("Restored",),
    "policy": ("Decision", "Destination", "Limit", "Operator", "Outcome", "Policy", "Rules"),
    "spans": ("LABELS", "Span", "utf8", "utf16"),
    "verdict": ("Verdict",),
}

if not TYPE_CHECKING:

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(importlib.import_module(f".{home}", __name__), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
