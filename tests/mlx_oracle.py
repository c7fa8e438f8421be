"""mlx-lm as a second opinion: its converter writes the checkpoints, its model in float32 says what the logits are.

The model is the one that lily verify compares with (lily.verify.sides.MlxSide). Nothing here is imported unless mlx is
installed.
"""

from pathlib import Path

import numpy as np
import pytest
from hf_source import Model, write_source

from lily.verify.sides import MlxSide, quiet
from reference import Array


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


class MlxOracle(MlxSide):
    """mlx-lm's model of a checkpoint, in float32, on the CPU."""

    def token_by_token(self, tokens: Array) -> Array:
        """Return the logits of every position through the cache, one token a call: float32 [len(tokens), vocab]."""
        cache = self.model.make_cache()
        return np.concatenate([self.logits(tokens[index : index + 1], cache) for index in range(len(tokens))])
