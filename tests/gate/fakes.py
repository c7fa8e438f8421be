"""A classifier that finds given names, for tests of what is built on one; and a policy and Gate to go with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lily import AuditLog, Gate, Policy, Span


@dataclass
class FakeReading:
    spans: list[Span]
    sensitivity: float = 0.0
    any_pii: Any = field(default_factory=lambda: np.zeros(0, np.float32))
    offsets: Any = field(default_factory=lambda: np.zeros((0, 2), np.int32))


class FakeClassifier:
    """Finds each of `names` at its first place, with this score; raises `error` instead, where it is given."""

    def __init__(self, names: Sequence[str] = (), score: float = 0.97, sensitivity: float = 0.0) -> None:
        self.names = list(names)
        self.score = score
        self.sensitivity = sensitivity
        self.error: BaseException | None = None
        self.suspicious = ""
        self.calls: list[list[str]] = []

    def read(self, texts: Sequence[str]) -> list[FakeReading]:
        self.calls.append(list(texts))
        if self.error is not None:
            raise self.error
        return [self._reading(text) for text in texts]

    def _reading(self, text: str) -> FakeReading:
        if "BREAK" in text:
            raise RuntimeError(f"cannot read {text}")
        spans: list[Span] = []
        for name in self.names:
            at = text.find(name)
            if at >= 0:
                span = Span(at, at + len(name), "private_person", "", self.score, "model")
                if not any(span.overlaps(other) for other in spans):
                    spans.append(span)
        tokens = [match.span() for match in re.finditer(r"\S+", text)]
        sure = [0.8 if self.suspicious and self.suspicious in text[a:b] else 0.01 for a, b in tokens]
        return FakeReading(
            sorted(spans), self.sensitivity, np.array(sure, np.float32), np.array(tokens, np.int32).reshape(-1, 2)
        )

    def close(self) -> None:
        self.error = RuntimeError("closed")


def fake_gate(
    *names: str, policy: Policy | None = None, audit: AuditLog | None = None, classifier: FakeClassifier | None = None
) -> Gate:
    return Gate(policy, audit, classifier=classifier or FakeClassifier(names))


class Upstream:
    """A model elsewhere: keeps what it was sent and gives one answer."""

    def __init__(self, answer: str = "ok") -> None:
        self.answer = answer
        self.sent: list[Any] = []

    def __call__(self, content: Any) -> str:
        self.sent.append(content)
        return self.answer


def wide(text: str) -> str:
    """Printable ASCII in its full-width forms."""
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)
