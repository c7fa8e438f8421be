"""The tokenizer: trains it, and turns documents into token ids and tags.

Byte-level BPE: a piece is up to twelve letters with the space before them, one digit, one mark, or white space. No
normalizer, no special tokens but the padding, so offsets are exact.

    python -m training.gate.tokens --out tokenizer.json --text text.txt.xz --data DIR
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpora import complete
from .document import Document
from .labels import IGNORED, tag

VOCABULARY = 12_288
PIECES = r"[^\S\r\n]?[\p{L}\p{M}]{1,12}|\p{N}|[^\S\r\n]?[^\s\p{L}\p{M}\p{N}]|\s+(?!\S)|\s"
PAD = 0


def train(texts: Iterator[str], vocabulary: int = VOCABULARY, first: tuple[str, ...] = ("<pad>",)) -> Tokenizer:
    """A tokenizer of exactly `vocabulary` entries, `first` at the beginning."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(first),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(
            f"the tokenizer has {tokenizer.get_vocab_size()} entries instead of {vocabulary}: more text is needed"
        )
    return tokenizer


def tags(document: Document, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """BIOES tags of tokens with these offsets [T, 2]; IGNORED where the loss must not judge."""
    text = document.text
    starts, ends = offsets[:, 0], offsets[:, 1]
    found = np.zeros(len(offsets), np.int64)
    if not complete(document):
        for i, (a, b) in enumerate(offsets):
            if any(c.isdigit() or c in "@/:" for c in text[a:b]):
                found[i] = IGNORED
    for a, b in document.skip:
        found[(starts < b) & (ends > a)] = IGNORED
    for span in document.spans:
        touched = np.flatnonzero((starts < span.end) & (ends > span.start))
        while len(touched) and not text[starts[touched[0]] : ends[touched[0]]].strip():
            touched = touched[1:]
        if not len(touched):
            continue
        if len(touched) == 1:
            found[touched[0]] = tag("S", span.label)
        else:
            found[touched[0] : touched[-1] + 1] = tag("I", span.label)
            found[touched[0]], found[touched[-1]] = tag("B", span.label), tag("E", span.label)
    return found


def encode(tokenizer: Tokenizer, documents: list[Document]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ids and tags of each document."""
    for document, e in zip(documents, tokenizer.encode_batch([d.text for d in documents]), strict=True):
        offsets = np.array(e.offsets, np.int64).reshape(-1, 2)
        yield np.array(e.ids, np.int64), tags(document, offsets)


def main() -> None:
    """Command line."""
    from .mix import Mix, read_prose

    parser = argparse.ArgumentParser(description="Trains the tokenizer on the mix the model is trained on.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="from gather_text.py")
    parser.add_argument("--data", type=Path, help="the data directory")
    parser.add_argument("--documents", type=int, default=90_000)
    args = parser.parse_args()
    prose = read_prose(args.text)
    mix = Mix.build(seed=5, data=args.data, prose=prose)
    chosen = random.Random(5).sample(prose, min(len(prose), 40_000))

    def texts() -> Iterator[str]:
        yield from chosen
        for _ in range(args.documents):
            yield mix.document().text

    tokenizer = train(texts())
    tokenizer.save(str(args.out))
    sample = [mix.document().text for _ in range(2000)]
    count = sum(len(e.ids) for e in tokenizer.encode_batch_fast(sample))
    print(f"{args.out}: {tokenizer.get_vocab_size()} entries, {sum(map(len, sample)) / count:.2f} characters a token")


if __name__ == "__main__":
    main()
