"""What a reference said about a text, reduced to what a comparison needs, and kept in a file if wanted.

For each prediction: the log-probability of the token that followed and the most likely tokens with theirs. The tokens
of the text are in it too, so a stored golden needs neither the text nor the reference again; a digest of the tokenizer
tells whether the tested model means the same by its ids.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..display import counted
from ..errors import InvalidInput
from .sides import Ids, Side

KEPT = 64  # tokens of each position whose probability is kept; together they hold nearly all of it

_FORMAT = 2
_ARRAYS = {
    "format": ("iu", 0), "name": ("U", 0), "tokenizer": ("U", 0), "lengths": ("iu", 1), "tokens": ("iu", 1),
    "log_probs": ("f", 1), "top_ids": ("iu", 2), "top_log_probs": ("f", 2),
}  # fmt: skip
"""What a file holds: kinds of number (numpy's letters) and dimensions of each array."""


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

    def save(self, path: str | Path, tokenizer: str) -> None:
        """Writes a .npz file; `tokenizer` is the digest of the one that the ids are of. Raises OSError."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file,
                format=np.int64(_FORMAT),
                name=np.array(self.name),
                tokenizer=np.array(tokenizer),
                lengths=np.array([len(window.tokens) for window in self.windows]),
                tokens=np.concatenate([window.tokens for window in self.windows]),
                log_probs=np.concatenate([window.log_probs for window in self.windows]),
                top_ids=np.concatenate([window.top_ids for window in self.windows]),
                top_log_probs=np.concatenate([window.top_log_probs for window in self.windows]),
            )

    @classmethod
    def load(cls, path: str | Path, tokenizer: str) -> Golden:
        """Reads what save wrote. Raises InvalidInput for another file or another tokenizer, OSError."""
        try:
            with Path(path).open("rb") as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
                found = {name: file[name] for name in _ARRAYS if name in file}
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidInput(
                f"{path}: found no stored reference ({error}), expected a file that `lily verify --save` wrote"
            ) from None
        for name, (kinds, dimensions) in _ARRAYS.items():
            if name not in found:
                raise _damaged(path, f"has no {name}")
            if found[name].dtype.kind not in kinds or found[name].ndim != dimensions:
                raise _damaged(path, f"{name} is {found[name].dtype} of {found[name].ndim} dimensions")
            if name == "format" and int(found[name]) != _FORMAT:
                raise _damaged(path, f"its format is {found[name]} and not {_FORMAT}")
        if str(found["tokenizer"]) != tokenizer:
            raise InvalidInput(
                f"{path}: its ids are of the tokenizer {str(found['tokenizer'])[:8]}, expected the model's, "
                f"{tokenizer[:8]}; compare with a reference of a model that has the same one"
            )
        lengths = found["lengths"].tolist()
        _check(path, lengths, found)
        tokens = np.split(found["tokens"], np.cumsum(lengths)[:-1])
        cuts = np.cumsum([length - 1 for length in lengths])[:-1]
        parts = (np.split(found[name], cuts) for name in ("log_probs", "top_ids", "top_log_probs"))
        return cls(str(found["name"]), tuple(Window(*arrays) for arrays in zip(tokens, *parts, strict=True)))


def _check(path: str | Path, lengths: list[int], found: dict[str, npt.NDArray[Any]]) -> None:
    """Raises InvalidInput for arrays that do not belong together, or hold what no reference says."""
    predictions = sum(lengths) - len(lengths)
    kept = found["top_ids"].shape[-1]
    if not lengths or min(lengths) < 2 or kept < 2:
        shortest = min(lengths, default=0)
        raise _damaged(path, f"{counted(len(lengths), 'window')}, the shortest of {shortest} tokens, {kept} kept")
    shapes: dict[str, tuple[int, ...]] = {
        "tokens": (sum(lengths),),
        "log_probs": (predictions,),
        "top_ids": (predictions, kept),
        "top_log_probs": (predictions, kept),
    }
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise _damaged(path, f"{name} has shape {list(found[name].shape)}, and its windows make {list(shape)}")
    if min(found["tokens"].min(), found["top_ids"].min()) < 0:
        raise _damaged(path, "a token id is negative")
    if not all(np.isfinite(found[name]).all() for name in ("log_probs", "top_log_probs")):
        raise _damaged(path, "a log-probability is not finite")


def _damaged(path: str | Path, what: str) -> InvalidInput:
    return InvalidInput(f"{path}: {what}, expected a file as `lily verify --save` wrote it; save the reference again")


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
            f"a text of {counted(len(tokens), 'token')} in windows of {window}: expected at least 2 of each, for one "
            "prediction"
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
