"""The Gate and its sessions: what a program calls to know what may leave the device.

This is the public face; the work is in pipeline.py. Here are the embedded model, the organisation's policy and the
hooks that send.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..display import counted
from ..errors import CheckpointError, InvalidInput, PolicyError
from ..location import locate
from .masking import Restored
from .messages import Content, Document
from .pipeline import Memory, Pipeline, Reader
from .policy import Outcome, Policy
from .verdict import Verdict

if TYPE_CHECKING:
    from .audit import AuditLog

EMBEDDED = Path(__file__).resolve().parent.parent / "models" / "gate-nano"
"""The folder of the model that comes with lily."""

ORGANISATION = Path("/etc/lily/gate.toml")
"""If this file exists, its floors are under every policy, and it is the policy where none is given."""


class Gate:
    """Decides what may leave the device. Thread-safe; texts are read one after the other.

    `policy` is Policy.balanced() where none is given. With an AuditLog every verdict is recorded before it is given;
    what cannot be recorded raises AuditError and has no verdict. Raises CheckpointError if the embedded model is
    missing, PolicyError if the organisation's policy cannot be read.
    """

    def __init__(
        self, policy: Policy | None = None, audit: AuditLog | None = None, *, classifier: Reader | None = None
    ) -> None:
        organisation = _organisation()
        if policy is None:
            policy = organisation or Policy.balanced()
        elif organisation is not None:
            policy = policy.under(organisation)
        self.policy = policy
        self.audit = audit
        self._pipeline = Pipeline(policy, audit, _embedded() if classifier is None else classifier)
        self._hash_key = _hash_key()

    @classmethod
    def load(
        cls,
        path_or_repo: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        audit: AuditLog | None = None,
        device: str = "auto",
        threads: int | None = None,
        revision: str | None = None,
        offline: bool | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Gate:
        """A Gate with another classifier: ours, or the reference's (bf16 or MLX int8), in a folder or in a repository
        of the hub (downloaded once).

        revision, offline and progress are as for `Engine.load`. Raises CheckpointError and UnsupportedCheckpoint for
        what is no such classifier, HubError, DeviceError, OutOfMemory, InvalidInput.
        """
        from .classifier import Classifier

        folder = locate(path_or_repo, revision, offline, progress)
        return cls(policy, audit, classifier=Classifier.load(folder, device=device, threads=threads))

    def close(self) -> None:
        """Gives the classifier's memory back. Every later verdict is LOCAL, or stricter. The audit log stays open."""
        self._pipeline.classifier.close()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self) -> GateSession:
        """A conversation: placeholders and found values are shared by all of its texts."""
        return GateSession(self._pipeline, self._hash_key)

    def classify(self, text: Content, policy: Policy | None = None, *, destination: str | None = None) -> Verdict:
        """The verdict on a text, or on chat messages (contents, tool-call arguments, results).

        A `policy` of the call replaces the Gate's rules, never its floors. `destination` names where the text is to
        go, for the policy's rules about that. Raises InvalidInput for what is neither text nor messages, AuditError if
        the decision cannot be recorded.
        """
        return self.session().classify(text, policy, destination=destination)

    def classify_many(
        self, texts: Sequence[Content], policy: Policy | None = None, *, destination: str | None = None
    ) -> list[Verdict]:
        """The verdicts on many texts, read together; each has a session of its own."""
        if isinstance(texts, str):
            raise InvalidInput("texts is one str; expected a list of texts: classify() takes one.")
        active = self._pipeline.active(policy)
        found = self._pipeline.read([Document(text) for text in texts])
        return [self._pipeline.decide(one, active, destination, Memory(self._hash_key)) for one in found]

    def send(
        self,
        text: Content,
        call: Callable[[Any], str],
        policy: Policy | None = None,
        *,
        destination: str | None = None,
        consent: Callable[[Verdict], bool] | None = None,
    ) -> Restored:
        """`call` with what may leave of a text, and its answer with the values restored.

        For ASK `consent` is asked. Raises PolicyBlocked, before `call`, if nothing may leave.
        """
        return self.session().send(text, call, policy, destination=destination, consent=consent)

    def __repr__(self) -> str:
        return f"<Gate with policy {self.policy.name}, {'an' if self.audit else 'no'} audit log>"


class GateSession:
    """A conversation's memory: its values, their placeholders. Thread-safe; forgets everything with the object."""

    def __init__(self, pipeline: Pipeline, hash_key: bytes) -> None:
        self._pipeline = pipeline
        self._memory = Memory(hash_key)
        self._lock = threading.Lock()

    def classify(self, text: Content, policy: Policy | None = None, *, destination: str | None = None) -> Verdict:
        """As `Gate.classify`; what earlier texts of the session held is found here, too."""
        active = self._pipeline.active(policy)
        (found,) = self._pipeline.read([Document(text)])
        with self._lock:
            return self._pipeline.decide(found, active, destination, self._memory)

    def send(
        self,
        text: Content,
        call: Callable[[Any], str],
        policy: Policy | None = None,
        *,
        destination: str | None = None,
        consent: Callable[[Verdict], bool] | None = None,
    ) -> Restored:
        """As `Gate.send`, with this session's placeholders."""
        verdict = self.classify(text, policy, destination=destination)
        agreed = verdict.outcome is Outcome.ASK and consent is not None and consent(verdict) is True
        return verdict.restore(call(verdict.outgoing(consent=agreed)))

    def restore(self, answer: str) -> Restored:
        """An answer with every placeholder of the session turned back."""
        return self._memory.vault.restore(answer)

    def __repr__(self) -> str:
        return f"<GateSession with {counted(len(self._memory.vault), 'value')}>"


def _embedded() -> Reader:
    if not (EMBEDDED / "config.json").is_file():
        raise CheckpointError(
            f"the embedded classifier is not in {EMBEDDED}: this installation is incomplete; install lily again, or "
            "name another classifier with Gate.load(path_or_repo)."
        )
    from .classifier import Classifier

    return Classifier.load(EMBEDDED)


def _organisation() -> Policy | None:
    try:
        ORGANISATION.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PolicyError(f"the organisation's policy {ORGANISATION} cannot be read: {error}.") from None
    return Policy.load(ORGANISATION)


def _hash_key() -> bytes:
    """The key of the hash operator: LILY_GATE_HASH_KEY, so that hashes of many runs compare, or one for this Gate."""
    given = os.environ.get("LILY_GATE_HASH_KEY", "")
    return given.encode() if given else secrets.token_bytes(32)
