"""Shows how surprised the model is by each token of a text, in bits, and the perplexity of the whole.

Run: python examples/surprise.py MODEL "Lilies grow from bulbs."
"""

from __future__ import annotations

import argparse
import math

import lily


def main() -> None:
    """Prints a line for each token after the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a checkpoint's folder, or a repository of the hub")
    parser.add_argument("text")
    options = parser.parse_args()

    with lily.Engine.load(options.model) as engine:
        tokens = engine.tokenizer.encode(options.text)
        scores = engine.score(tokens, top=1)
        for position, log_prob in enumerate(scores.log_probs):
            met, expected = tokens[position + 1], int(scores.top_ids[position, 0])
            words = engine.tokenizer.decode([met]), engine.tokenizer.decode([expected])
            print(f"{-log_prob / math.log(2):7.2f} bits: {words[0]!r}, most likely was {words[1]!r}")
        print(f"perplexity {scores.perplexity:.2f}")


if __name__ == "__main__":
    main()
