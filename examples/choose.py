"""Picks one of several answers by how likely the model finds each: the question is read once, the answers from there.

Run: python examples/choose.py MODEL "The tea was cold and late. This review is" " positive" " negative"
"""

from __future__ import annotations

import argparse

import numpy as np

import lily


def log_probability(engine: lily.Engine, session: lily.Session, answer: str) -> float:
    """The log-probability of `answer` right after what the session has read; reads it into the session."""
    total = 0.0
    for token in engine.tokenizer.encode(answer):
        logits = session.logits().astype(np.float64)
        largest = logits.max()
        total += float(logits[token] - largest - np.log(np.exp(logits - largest).sum()))
        engine.prefill(session, [token])
    return total


def main() -> None:
    """Prints the answers, the most likely one first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a checkpoint's folder, or a repository of the hub")
    parser.add_argument("question")
    parser.add_argument("answers", nargs="+")
    options = parser.parse_args()

    with lily.Engine.load(options.model) as engine, engine.session() as session:
        engine.prefill(session, engine.tokenizer.encode(options.question))
        question = session.snapshot()
        scores = {}
        for answer in options.answers:
            session.restore(question)
            scores[answer] = log_probability(engine, session, answer)
        for answer, score in sorted(scores.items(), key=lambda item: -item[1]):
            print(f"{score:9.3f} {answer}")


if __name__ == "__main__":
    main()
