"""Prints documents of the mix with their spans marked, and checks tags against spans; for the eye, before a run.

python -m training.gate.preview --tokenizer tokenizer.json --data DIR --text text.txt.xz
"""

from __future__ import annotations

import argparse
import collections
import time
from pathlib import Path

from tokenizers import Tokenizer

from .batches import SEGMENTS, pack
from .decode import spans
from .labels import IGNORED
from .mix import Mix, read_prose
from .templates import count
from .tokens import encode


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Shows and checks the training documents.")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    mix = Mix.build(args.seed, args.data, read_prose(args.text))
    begun = time.perf_counter()
    documents = [mix.document() for _ in range(args.documents)]
    made = time.perf_counter()
    encoded = list(encode(tokenizer, documents))
    tagged = time.perf_counter()
    pieces = [(ids[:512], tags[:512], 0.0) for ids, tags in encoded if len(ids)]
    rows = pack(pieces)
    packed = time.perf_counter()
    labels: collections.Counter[str] = collections.Counter()
    exact = total = 0
    for document, (_, tags) in zip(documents, encoded, strict=True):
        offsets = tokenizer.encode(document.text).offsets
        back = set(spans(document.text, [0 if t == IGNORED else int(t) for t in tags], offsets))
        for s in document.spans:
            labels[f"{s.label}/{s.sub}" if s.sub else s.label] += 1
            total += 1
            exact += (s.start, s.end, s.label) in back
    for document in documents[: args.show]:
        out, at = [], 0
        for s in document.spans:
            out += [
                document.text[at : s.start],
                f"[[{s.label.removeprefix('private_')}|{document.text[s.start : s.end]}]]",
            ]
            at = s.end
        print("-", document.sensitive, repr("".join(out) + document.text[at:])[:700])
    n, tokens, length = len(documents), sum(len(ids) for ids, _ in encoded), sum(d.length for d in documents)
    each = f"{length / n:.0f} characters and {tokens / n:.0f} tokens each, {length / tokens:.2f} characters a token"
    print(f"{count()} templates; {n} documents, {each}")
    without, sensitive = sum(not d.spans for d in documents) / n, sum(d.sensitive == 1 for d in documents) / n
    print(f"{without:.3f} without spans, {sensitive:.3f} sensitive; spans that tags give back: {exact} of {total}")
    print(f"{len(rows[0])} rows of at most {SEGMENTS} texts, {(rows[2] > 0).mean():.3f} full")
    rates = ", ".join(
        f"{name} {n / s:.0f}"
        for name, s in (("made", made - begun), ("tagged", tagged - made), ("packed", packed - tagged))
    )
    print(f"documents a second: {rates}; together {tokens / (packed - begun):.0f} tokens a second")
    print(", ".join(f"{k} {v}" for k, v in labels.most_common(60)))


if __name__ == "__main__":
    main()
