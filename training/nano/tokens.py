r"""The tokenizer and the chat format: trains the one, writes both as a checkpoint's files, encodes text and dialogues.

Byte-level BPE over gate-nano's pieces, the control tokens of the Qwen family at the end of the vocabulary.

    python -m training.nano.tokens --out tokenizer --text text.txt.xz --glossary words.txt.xz
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from training.gate import tokens as gate

VOCABULARY = 8192
END, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL = (END, TURN, TURN_END)
WORDS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SILENT = "<think>\n\n</think>\n\n"  # what a Qwen answers before an answer without thinking
TEMPLATE = """\
{%- for message in messages %}
    {%- if message.role not in ('system', 'user', 'assistant') %}
        {{- raise_exception('nano knows the roles system, user and assistant, not ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
Dialogue = list[tuple[str, str]]  # role and text of each turn; the last one is the answer


def documents(path: Path) -> list[str]:
    """The documents of a file of gather_text.py."""
    return lzma.decompress(path.read_bytes()).decode().split("\0")


def train(texts: Iterator[str]) -> Tokenizer:
    """A tokenizer of exactly VOCABULARY entries."""
    tokenizer = gate.train(texts, VOCABULARY - len(SPECIAL) - len(WORDS), first=())
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in WORDS])
    return tokenizer


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    settings = {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": TURN_END,
        "model_max_length": 262_144,
        "pad_token": END,
        "pad_token_id": tokenizer.token_to_id(END),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")


class Encoder:
    """Text and dialogues to ids; what a text spells out never becomes a control token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.end, self.turn, self.turn_end = (tokenizer.token_to_id(token) for token in SPECIAL)
        self.newline = self.plain("\n")
        self.silent = [
            tokenizer.token_to_id("<think>"),
            *self.plain("\n\n"),
            tokenizer.token_to_id("</think>"),
            *self.plain("\n\n"),
        ]

    def plain(self, text: str) -> list[int]:
        """Ids of a text without control tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def text(self, texts: list[str]) -> NDArray[np.int16]:
        """Ids of documents, one behind the other, each closed by the end of text."""
        ids: list[NDArray[np.int16]] = []
        for first in range(0, len(texts), 256):
            batch = self.tokenizer.encode_batch_fast(texts[first : first + 256], add_special_tokens=False)
            ids += [np.array([*one.ids, self.end], np.int16) for one in batch]
        return np.concatenate(ids)

    def dialogue(self, turns: Dialogue, silent: bool) -> tuple[list[int], int]:
        """Ids as the template writes them, and how many of them come before the answer."""
        ids: list[int] = []
        for role, text in turns[:-1]:
            ids += [self.turn, *self.plain(f"{role}\n"), *self.plain(text), self.turn_end, *self.newline]
        ids += [self.turn, *self.plain("assistant\n"), *(self.silent if silent else [])]
        return [*ids, *self.plain(turns[-1][1]), self.turn_end, *self.newline], len(ids)


def main() -> None:
    """Command line."""
    from .jobs import Jobs

    parser = argparse.ArgumentParser(description="Trains the tokenizer on the mix the model is trained on.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tokenizer's files")
    parser.add_argument("--text", type=Path, required=True, help="from gather_text.py")
    parser.add_argument("--glossary", type=Path, required=True, help="likewise")
    args = parser.parse_args()
    texts = documents(args.text)
    chosen = random.Random(5).sample(texts, len(texts) // 6)
    jobs = Jobs(5, texts, args.glossary)

    def everything() -> Iterator[str]:
        yield from chosen
        for _ in range(20_000):
            yield "\n".join(text for _, text in jobs.dialogue())

    tokenizer = train(everything())
    write(tokenizer, args.out)
    size = sum(map(len, chosen)) / len(Encoder(tokenizer).text(chosen))
    print(f"{args.out}: {tokenizer.get_vocab_size()} entries, {size:.2f} characters a token")


if __name__ == "__main__":
    main()
