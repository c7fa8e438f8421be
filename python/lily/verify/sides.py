"""The two kinds of sides that a comparison can have: an engine of lily, and mlx-lm's model in float32."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import DeviceError

if TYPE_CHECKING:
    from ..engine import Engine


Ids = npt.NDArray[np.integer[Any]]


class Side(Protocol):
    """Something that can read a text, under a name for the report."""

    @property
    def name(self) -> str:
        """What it is, in a few words."""

    def logits(self, tokens: Ids) -> npt.NDArray[np.float32]:
        """The logits after each of `tokens`, read from an empty timeline: float32 [n, vocab]."""


class EngineSide:
    """An engine of lily, on whatever device it was loaded."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = f"lily on {engine.device}, {engine.info['activations']}"

    def logits(self, tokens: Ids) -> npt.NDArray[np.float32]:
        """Engine.forward; raises as it does."""
        return self._engine.forward(tokens)


class MlxSide:
    """mlx-lm's model of a checkpoint in float32, on the CPU: codes as stored, all else widened, arithmetic in float32.

    Its bf16 path on a CPU accumulates in bf16 and is no reference. Raises DeviceError where mlx-lm is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            with quiet():
                import mlx.core as mx
                from mlx.utils import tree_map
                from mlx_lm.utils import load_model
        except ImportError as error:
            raise DeviceError(
                f"mlx-lm cannot be imported ({error}); install it with pip install 'mlx[cpu]' mlx-lm, or compare with "
                "a stored reference"
            ) from None
        with quiet():
            mx.set_default_device(mx.Device(mx.cpu))
            mx.disable_compile()  # it would call a C++ compiler for every small function
            self._mx: Any = mx
            self.model: Any
            self.model, _ = load_model(Path(folder))

        def widen(array: Any) -> Any:
            return array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array

        self.model.update(tree_map(widen, self.model.parameters()))
        mx.eval(self.model.parameters())
        self.name = "mlx-lm in float32"

    def logits(self, tokens: Ids, cache: Any = None) -> npt.NDArray[np.float32]:
        """`cache` is one of mlx-lm's own, to go on where an earlier call stopped."""
        return np.array(self.model(self._mx.array([tokens.tolist()]), cache=cache)[0])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps mlx-lm and what it imports from printing and warning; none of that is ours to fix."""
    sink = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        warnings.simplefilter("ignore")
        yield
