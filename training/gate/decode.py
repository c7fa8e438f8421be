"""From a text to spans: overlapping windows, logits averaged by triangles, one Viterbi path over the whole text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .labels import TAGS, follows
from .model import Classifier

FORBIDDEN = -1e4
_TRANSITION = np.array(
    [[0.0 if follows(a, b) else FORBIDDEN for b in range(len(TAGS))] for a in range(len(TAGS))], np.float32
)
_FIRST = np.array([0.0 if t[0] in "OBS" else FORBIDDEN for t in TAGS], np.float32)
_LAST = np.array([0.0 if t[0] in "OES" else FORBIDDEN for t in TAGS], np.float32)


def viterbi(logits: NDArray[np.float32]) -> list[int]:
    """The best allowed path through logits [T, 37]; ties go to the lowest index."""
    score = logits[0] + _FIRST
    back = np.zeros(logits.shape, np.int64)
    for t in range(1, len(logits)):
        options = score[:, None] + _TRANSITION
        back[t] = options.argmax(0)
        score = options.max(0) + logits[t]
    path = [int((score + _LAST).argmax())]
    for t in range(len(logits) - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return path[::-1]


def spans(text: str, path: list[int], offsets: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Spans (start, end, label) of a path, outer white space trimmed."""
    found, begin = [], 0
    for i, index in enumerate(path):
        part = TAGS[index][0]
        if part in "BS":
            begin = i
        if part in "ES":
            a, b = offsets[begin][0], offsets[i][1]
            while a < b and text[a].isspace():
                a += 1
            while b > a and text[b - 1].isspace():
                b -= 1
            if a < b:
                found.append((a, b, TAGS[index][2:]))
    return found


@dataclass
class Reader:
    """Finds spans with a model, many texts at a time."""

    model: Classifier
    tokenizer: Tokenizer
    window: int
    stride: int
    tokens: int = 16_384  # of one pass

    def read(self, texts: list[str]) -> list[list[tuple[int, int, str]]]:
        """Spans of each text."""
        encoded = self.tokenizer.encode_batch(texts)
        windows = []  # (text, first token, ids)
        for i, e in enumerate(encoded):
            at = 0
            while e.ids:
                windows.append((i, at, e.ids[at : at + self.window]))
                if at + self.window >= len(e.ids):
                    break
                at += self.stride
        sums = [np.zeros((len(e.ids), len(TAGS)), np.float32) for e in encoded]
        weights = [np.zeros((len(e.ids), 1), np.float32) for e in encoded]
        windows.sort(key=lambda w: len(w[2]))
        at = 0
        while at < len(windows):
            count = max(1, self.tokens // max(64, len(windows[at][2])))
            for (i, first, ids), logits in zip(
                windows[at : at + count], self.logits([w[2] for w in windows[at : at + count]]), strict=True
            ):
                n = len(ids)
                triangle = np.minimum(np.arange(n), np.arange(n)[::-1]).astype(np.float32)[:, None] + 1
                sums[i][first : first + n] += logits * triangle
                weights[i][first : first + n] += triangle
            at += count
        return [
            spans(t, viterbi(s / w), e.offsets) if len(s) else []
            for t, s, w, e in zip(texts, sums, weights, encoded, strict=True)
        ]

    @torch.inference_mode()
    def logits(self, windows: list[list[int]]) -> list[NDArray[np.float32]]:
        """Logits [n, 37] of each window."""
        longest = max(map(len, windows))
        ids = torch.zeros(len(windows), longest, dtype=torch.long)
        bias = torch.full((len(windows), 1, longest, longest), float("-inf"))
        for k, w in enumerate(windows):
            ids[k, : len(w)] = torch.tensor(w)
            bias[k, :, :, : len(w)] = 0.0
        out = self.model.token_cls_head(self.model.backbone(ids, bias)).numpy()
        return [out[k, : len(w)] for k, w in enumerate(windows)]
