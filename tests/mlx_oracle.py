"""mlx-lm as a second opinion: its converter writes the checkpoints, its model in float32 says what the logits are.

float32 means: the stored codes as they are, scales, biases and vectors widened, all arithmetic in float32. The bf16
path of mlx on a CPU accumulates in bf16 and is no oracle. Nothing here is imported unless mlx is installed.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_source import Model, write_source

from reference import Array


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep mlx-lm and what it imports from printing and warning; none of that is ours to fix."""
    sink = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        warnings.simplefilter("ignore")
        yield


def require_mlx() -> None:
    """Skips, in one line that says how to run it, where mlx or mlx-lm is missing."""
    with quiet():
        for name in ("mlx.core", "mlx_lm"):
            reason = f"{name} is missing: pip install 'lily[test]' where mlx has wheels"
            pytest.importorskip(name, reason=reason, exc_type=ImportError)


def convert(model: Model, seed: int, folder: Path) -> Path:
    """Make a random checkpoint of this shape and let mlx-lm quantise it to 4 bits; return the folder."""
    require_mlx()
    source, target = folder / "source", folder / "mlx"
    write_source(source, model, seed)
    with quiet():
        from mlx_lm.convert import convert as mlx_convert

        mlx_convert(str(source), str(target), quantize=True)
    return target


class MlxOracle:
    """mlx-lm's model of a checkpoint, in float32, on the CPU."""

    def __init__(self, folder: Path) -> None:
        require_mlx()
        with quiet():
            import mlx.core as mx
            from mlx.utils import tree_map
            from mlx_lm.utils import load_model

            mx.set_default_device(mx.Device(mx.cpu))
            mx.disable_compile()  # it would call a C++ compiler for every small function
            self.mx: Any = mx
            self.model: Any
            self.model, _ = load_model(folder)

        def widen(array: Any) -> Any:
            return array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array

        self.model.update(tree_map(widen, self.model.parameters()))
        mx.eval(self.model.parameters())

    def prefill(self, tokens: Array, cache: Any = None) -> Array:
        """Return the logits of every position, in one call: float32 [len(tokens), vocab]."""
        logits = self.model(self.mx.array([tokens.tolist()]), cache=cache)
        return np.array(logits[0])

    def token_by_token(self, tokens: Array) -> Array:
        """Return the same through the cache, one token a call."""
        cache = self.model.make_cache()
        return np.concatenate([self.prefill(tokens[index : index + 1], cache) for index in range(len(tokens))])
