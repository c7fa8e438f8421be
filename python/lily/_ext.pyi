"""The compiled part of lily. Private: use the classes of lily."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

MAX_THREADS: int = 1024

def instruction_sets() -> list[str]:
    """Instruction sets that this machine can run, best first."""

def usable_cpus() -> int:
    """Processors that this process may use."""

class Snapshot:
    """A copy of a session, for any session of the same engine."""

    @property
    def position(self) -> int: ...
    @property
    def bytes(self) -> int: ...

class Session:
    """One timeline of an engine."""

    @property
    def tokens(self) -> NDArray[numpy.int32]: ...
    @property
    def position(self) -> int: ...
    @property
    def pending(self) -> int | None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def memory(self) -> int: ...
    def logits(self) -> NDArray[numpy.float32]: ...
    def cancel(self, wanted: bool = True) -> None: ...
    def claim(self) -> int: ...
    def close(self) -> None: ...
    def snapshot(self) -> Snapshot: ...
    def restore(self, snapshot: Snapshot) -> int: ...
    def fork(self) -> Session: ...
    def reset(self) -> int: ...

class Weights:
    """
    The tensors of a checkpoint: views over its files, which it keeps alive.
    """

    def __init__(
        self, files: Sequence[NDArray[numpy.uint8]], tensors: Sequence[tuple[str, int, int, str, Sequence[int]]]
    ) -> None: ...

class Sampler:
    """Logits to tokens; its penalties count the tokens it produced."""

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] = {},
        seed: int = 0,
    ) -> None: ...
    def sample(self, logits: NDArray[numpy.float32]) -> int: ...

class Engine:
    """One model on one device."""

    def __init__(
        self,
        weights: Weights,
        config: dict[str, Any],
        *,
        device: str = "cpu",
        isa: str = "",
        threads: int = 0,
        kernels: Sequence[str] = [],
        max_context: int,
        chunk: int,
    ) -> None: ...
    @property
    def device_name(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def chunk(self) -> int: ...
    @property
    def max_context(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    def memory(self) -> dict[str, int]: ...
    def session(self) -> Session: ...
    def prefill(
        self,
        session: Session,
        tokens: NDArray[numpy.int32],
        progress: Callable[[int, int], object] | None = None,
        claim: int | None = None,
    ) -> None: ...
    def step(self, session: Session, sampler: Sampler, claim: int | None = None) -> int: ...
    def forward(
        self, tokens: NDArray[numpy.int32], progress: Callable[[int, int], object] | None = None
    ) -> NDArray[numpy.float32]: ...
    def score(
        self, tokens: NDArray[numpy.int32], top: int, progress: Callable[[int, int], object] | None = None
    ) -> tuple[NDArray[numpy.float32], NDArray[numpy.int32], NDArray[numpy.float32], NDArray[numpy.float32]]: ...
    def close(self) -> None: ...

class Encoder:
    """A bidirectional tagger on one device."""

    def __init__(
        self,
        weights: Weights,
        config: dict[str, Any],
        *,
        device: str = "cpu",
        isa: str = "",
        threads: int = 0,
        kernels: Sequence[str] = [],
        max_rows: int,
    ) -> None: ...
    @property
    def device_name(self) -> str: ...
    @property
    def max_rows(self) -> int: ...
    def memory(self) -> dict[str, int]: ...
    def logits(
        self, ids: NDArray[numpy.int32], lengths: NDArray[numpy.int32]
    ) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]: ...
    def close(self) -> None: ...

class Viterbi:
    """The best path of tags, decided as the logits come in."""

    def __init__(self, b_bias: float = 0.0, e_bias: float = 0.0) -> None: ...
    def push(self, logits: NDArray[numpy.float32]) -> NDArray[numpy.int32]: ...
    def finish(self) -> NDArray[numpy.int32]: ...

def viterbi(logits: NDArray[numpy.float32], b_bias: float = 0.0, e_bias: float = 0.0) -> NDArray[numpy.int32]:
    """The best path of tags through logits [rows, 37]."""

class Probe:
    """One sublayer on host arrays; bf16 travels as uint16."""

    def __init__(self, device: str, isa: str = "", threads: int = 0, kernels: Sequence[str] = []) -> None: ...
    def norm(self, x: NDArray[numpy.uint16], weight: NDArray[numpy.float32], eps: float) -> NDArray[numpy.uint16]: ...
    def matmul(self, x: NDArray[numpy.uint16], matrix: dict[str, Any], expert: int = 0) -> NDArray[numpy.float32]: ...
    def embed(self, table: dict[str, Any], ids: NDArray[numpy.int32]) -> NDArray[numpy.uint16]: ...
    def attention(
        self,
        shape: dict[str, Any],
        weights: dict[str, Any],
        x: NDArray[numpy.uint16],
        keys: NDArray[numpy.uint16],
        values: NDArray[numpy.uint16],
        position: int,
    ) -> tuple[NDArray[numpy.uint16], NDArray[numpy.uint16], NDArray[numpy.uint16]]: ...
    def gated_delta(
        self,
        shape: dict[str, Any],
        weights: dict[str, Any],
        x: NDArray[numpy.uint16],
        state: NDArray[numpy.float32],
        window: NDArray[numpy.uint16],
        position: int,
    ) -> tuple[NDArray[numpy.uint16], NDArray[numpy.float32], NDArray[numpy.uint16]]: ...
    def moe(
        self, shape: dict[str, Any], weights: dict[str, Any], x: NDArray[numpy.uint16]
    ) -> NDArray[numpy.uint16]: ...
    def bidirectional(
        self,
        shape: dict[str, Any],
        weights: dict[str, Any],
        turns: NDArray[numpy.float32],
        x: NDArray[numpy.uint16],
        starts: NDArray[numpy.int32],
    ) -> NDArray[numpy.uint16]: ...
    def mlp(
        self, shape: dict[str, Any], weights: dict[str, Any], x: NDArray[numpy.uint16]
    ) -> NDArray[numpy.uint16]: ...
    def classify(
        self, weights: dict[str, Any], eps: float, x: NDArray[numpy.uint16], starts: NDArray[numpy.int32]
    ) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32]]: ...
    def head(
        self, weights: dict[str, Any], eps: float, x: NDArray[numpy.uint16]
    ) -> tuple[NDArray[numpy.float32], NDArray[numpy.int32]]: ...

class Trace:
    """The work of a decoder, encoded and counted but not run."""

    def __init__(self, weights: Weights, config: dict[str, Any], *, max_context: int, rows: int) -> None: ...
    def step(self, position: int, rows: int) -> list: ...
