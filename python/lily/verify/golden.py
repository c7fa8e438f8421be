"""What a reference said about a text, reduced to what a comparison needs, and kept in a file if wanted.

For each prediction: the log-probability of the token that followed and the most likely tokens with theirs. The tokens
of the text are in it too, so a stored golden needs neither the text nor the reference again.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from .sides import Ids, Side

KEPT = 64  # tokens of each position whose probability is kept; together they hold nearly all of it

_FORMAT = 1
_ARRAYS = ("format", "name", "lengths", "tokens", "log_probs", "top_ids", "top_log_probs")


@dataclass(frozen=True)
class Window:
    """A piece of text of n tokens, and what the reference said about it.

    tokens int32 [n]; log_probs float32 [n - 1], of token i + 1 after tokens 0 to i; top_ids int32 [n - 1, kept] and
    top_log_probs float32 [n - 1, kept], the most likely next tokens, best first.
    """

    tokens: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]
    top_ids: npt.NDArray[np.int32]
    top_log_probs: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Golden:
    """The windows of a text and the name of the reference that read them."""

    name: str
    windows: tuple[Window, ...]

    def save(self, path: str | Path) -> None:
        """Writes a .npz file. Raises OSError."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file,
                format=np.int64(_FORMAT),
                name=np.array(self.name),
                lengths=np.array([len(window.tokens) for window in self.windows]),
                tokens=np.concatenate([window.tokens for window in self.windows]),
                log_probs=np.concatenate([window.log_probs for window in self.windows]),
                top_ids=np.concatenate([window.top_ids for window in self.windows]),
                top_log_probs=np.concatenate([window.top_log_probs for window in self.windows]),
            )

    @classmethod
    def load(cls, path: str | Path) -> Golden:
        """Reads what save wrote. Raises InvalidInput for another file, OSError."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                found = {name: file[name] for name in _ARRAYS}
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{path}: found no stored reference ({error}), expected a file that `lily verify --save` wrote"
            ) from None
        if int(found["format"]) != _FORMAT:
            raise InvalidInput(f"{path}: its format is {found['format']}, expected {_FORMAT}; save the reference again")
        lengths = found["lengths"].tolist()
        tokens = np.split(found["tokens"], np.cumsum(lengths)[:-1])
        cuts = np.cumsum([length - 1 for length in lengths])[:-1]
        parts = (np.split(found[name], cuts) for name in ("log_probs", "top_ids", "top_log_probs"))
        return cls(str(found["name"]), tuple(Window(*arrays) for arrays in zip(tokens, *parts, strict=True)))


def read_windows(
    reference: Side,
    tokens: Ids,
    window: int,
    progress: Callable[[int, int], object] | None = None,
) -> Golden:
    """Lets a reference read `tokens` in windows of `window` tokens, each from an empty timeline.

    A last window of one token predicts nothing and is left out. Raises InvalidInput for a text of less than two tokens
    or a window of less than two."""
    if window < 2 or len(tokens) < 2:
        raise InvalidInput(
            f"a text of {len(tokens)} tokens in windows of {window}: expected at least 2 of each, for one prediction"
        )
    cuts = [tokens[start : start + window] for start in range(0, len(tokens), window)]
    cuts = [cut for cut in cuts if len(cut) > 1]
    windows = []
    for index, cut in enumerate(cuts):
        windows.append(_reduced(cut, reference.logits(cut[:-1])))
        if progress is not None:
            progress(index + 1, len(cuts))
    return Golden(reference.name, tuple(windows))


def _reduced(tokens: Ids, logits: npt.NDArray[np.float32]) -> Window:
    kept = min(KEPT, logits.shape[-1])
    wide = logits.astype(np.float64)
    highest = wide.max(-1, keepdims=True)
    wide -= highest + np.log(np.exp(wide - highest).sum(-1, keepdims=True))
    ids = np.argpartition(-wide, kept - 1, axis=-1)[:, :kept]
    order = np.argsort(-np.take_along_axis(wide, ids, axis=-1), axis=-1, kind="stable")
    ids = np.take_along_axis(ids, order, axis=-1)
    return Window(
        tokens=tokens.astype(np.int32),
        log_probs=wide[np.arange(len(wide)), tokens[1:]].astype(np.float32),
        top_ids=ids.astype(np.int32),
        top_log_probs=np.take_along_axis(wide, ids, axis=-1).astype(np.float32),
    )
