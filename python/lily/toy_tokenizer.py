"""A tokenizer and chat template for random checkpoints: any UTF-8 text round-trips, every id below vocab is a token.

Byte-level BPE whose merges are enumerated, not learned: pairs of characters, then pairs of pairs, common letters first.
It stands in for the real tokenizer of a checkpoint and is read by the same code (tokenizer.py); nothing here is meant
for text that matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from .errors import InvalidInput

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINKING = ("<think>", "</think>")
CONTROL = SPECIAL + THINKING
MINIMUM_VOCAB = 256 + len(CONTROL)

_LETTERS = "etaoinsrhldcumfpgwybvkxjqzTAISWHCBMPERNDLFGOUJKVYQXZ0123456789.,'-\"()?!:;/"
_SPACE = "\u0120"  # how byte-level BPE writes the space
_PAIRED = 512  # so many of the pairs are combined with each other

_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif -%}
{%- endif -%}
"""


def write_tokenizer(folder: Path, vocab: int) -> dict[str, int]:
    """Writes tokenizer.json and tokenizer_config.json with exactly `vocab` (at least MINIMUM_VOCAB) tokens.

    Returns the ids of the control tokens, which are the last ones.
    """
    tokenizer = build_tokenizer(vocab)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "add_prefix_space": False,
        "chat_template": _TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    return {token: vocab - len(CONTROL) + index for index, token in enumerate(CONTROL)}


def build_tokenizer(vocab: int) -> Tokenizer:
    """A tokenizer with exactly `vocab` tokens. Raises InvalidInput below MINIMUM_VOCAB and above about 320,000."""
    bytes_first = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = list(islice(_merges(bytes_first), max(0, vocab - MINIMUM_VOCAB)))
    if len(merges) != vocab - MINIMUM_VOCAB:
        raise InvalidInput(
            f"vocab is {vocab}, expected {MINIMUM_VOCAB} to {MINIMUM_VOCAB + len(merges)} for the toy tokenizer; give "
            "another, or write the checkpoint without a tokenizer"
        )
    tokens = [*bytes_first, *(first + second for first, second in merges), *CONTROL]
    model = models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in THINKING])
    return tokenizer


def _merges(alphabet: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs of characters in the order of their likelihood, then pairs of the first pairs. No token comes up twice."""
    rest = [symbol for symbol in alphabet if symbol not in _LETTERS and symbol != _SPACE]
    symbols = [_SPACE, *_LETTERS, *rest]
    pairs = list(_diagonals(symbols, len(symbols)))
    yield from pairs
    yield from _diagonals([first + second for first, second in pairs], _PAIRED)


def _diagonals(symbols: list[str], count: int) -> Iterator[tuple[str, str]]:
    # A space only opens a word, so nothing is merged in front of one.
    for total in range(2 * count - 1):
        for first in range(max(0, total - count + 1), min(total + 1, count)):
            second = symbols[total - first]
            if not second.startswith(_SPACE):
                yield symbols[first], second
