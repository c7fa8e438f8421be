"""The tokens of a preprocessed .metal text, and the view of them that the rewriting passes edit.

Lexical only: it knows brackets and template argument lists, not what a name means; `>>` is two tokens, because it may
close two lists. Text from system headers (the compat library) is carried through as whole lines and never edited. A
token keeps its file and line, so that every complaint and every line of the result points at the .metal file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+)
    | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<char>'(?:\\.|[^'\\\n])*')
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<operator><<=|>>=|->\*|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.VERBOSE,
)
_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"([^"]*)"(.*)')
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class MslError(Exception):
    """A .metal text that the toolchain cannot take; the message opens with file:line where there is one."""


@dataclass
class Token:
    """A piece of text. `kind` is space, string, char, number, name or operator in the author's text, and other for
    what is not edited: newlines, line markers, and the text of system headers."""

    kind: str
    text: str
    file: str
    line: int


def lex(text: str) -> list[Token]:
    """The tokens of the output of `clang -E`, whose line markers tell the author's files from system headers."""
    tokens: list[Token] = []
    file, line, editable = "", 1, True
    for row in text.split("\n"):
        if marker := _MARKER.match(row):
            file, line = marker[2], int(marker[1])
            editable = "3" not in marker[3].split() and not file.startswith("<")
            tokens.append(Token("other", row + "\n", file, line))
            continue
        if not editable or row.startswith("#"):
            tokens.append(Token("other", row + "\n", file, line))
        else:
            tokens.extend(Token(match.lastgroup or "", match[0], file, line) for match in _TOKEN.finditer(row))
            tokens.append(Token("other", "\n", file, line))
        line += 1
    return tokens


class Source:
    """The significant tokens of a text by position 0 .. len-1, with edits: replace, remove, insert around.

    A removed token stays in place with an empty text until `compact()`, so that positions hold during a pass. Reading
    outside the text gives "". Attributes ([[...]]) are taken out of the text by their own pass and kept beside the
    token that they follow.
    """

    def __init__(self, text: str) -> None:
        self._tokens = lex(text)
        self._at = [i for i, token in enumerate(self._tokens) if token.kind not in ("space", "other")]
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}
        self._attributes: dict[int, dict[str, str]] = {}
        self.complaints: list[str] = []

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, position: int) -> str:
        return self._tokens[self._at[position]].text if 0 <= position < len(self._at) else ""

    def __setitem__(self, position: int, text: str) -> None:
        self._tokens[self._at[position]].text = text

    def kind(self, position: int) -> str:
        """The kind of the token at a position; "" outside the text."""
        return self._tokens[self._at[position]].kind if 0 <= position < len(self._at) else ""

    def is_name(self, position: int) -> bool:
        """Whether a word stands there (a keyword is one too)."""
        return self.kind(position) == "name"

    def touching(self, position: int) -> bool:
        """Whether the token at a position follows the one before it without a space."""
        return self._at[position] == self._at[position - 1] + 1

    def words(self, first: int, end: int) -> list[str]:
        """The texts of [first, end)."""
        return [self[i] for i in range(first, end) if self[i]]

    def join(self, first: int, end: int) -> str:
        """The text of [first, end) with one space between tokens; a shift, which is two tokens, stays together."""
        pieces: list[str] = []
        for i in range(first, end):
            if not self[i]:
                continue
            if pieces and not (self[i] == self[i - 1] == ">" and self.touching(i)):
                pieces.append(" ")
            pieces.append(self[i])
        return "".join(pieces)

    def remove(self, first: int, end: int) -> None:
        """Empties [first, end)."""
        for i in range(first, end):
            self[i] = ""

    def insert_before(self, position: int, text: str) -> None:
        """Puts text before a token, after what was put there earlier."""
        index = self._at[position]
        self._before[index] = self._before.get(index, "") + text

    def insert_after(self, position: int, text: str) -> None:
        """Puts text after a token, before what was put there earlier."""
        index = self._at[position]
        self._after[index] = text + self._after.get(index, "")

    def compact(self) -> None:
        """Forgets removed tokens; the attributes that followed one now follow the token before it."""
        kept: list[int] = []
        moved: dict[int, dict[str, str]] = {}
        for index in self._at:
            if self._tokens[index].text:
                kept.append(index)
            if index in self._attributes and kept:
                moved.setdefault(kept[-1], {}).update(self._attributes[index])
        self._at, self._attributes = kept, moved

    def attributes(self, first: int, end: int) -> dict[str, str]:
        """The attributes that follow the tokens of [first, end), as name -> text of the argument ("" without one)."""
        found: dict[str, str] = {}
        for i in range(max(first, 0), min(end, len(self))):
            found.update(self._attributes.get(self._at[i], {}))
        return found

    def attach(self, position: int, attributes: dict[str, str]) -> None:
        """Keeps attributes beside a token."""
        self._attributes.setdefault(self._at[max(position, 0)], {}).update(attributes)

    def close(self, position: int) -> int:
        """The position of the bracket that closes the one at `position`."""
        opening, depth = self[position], 0
        closing = _CLOSING.get(opening)
        if closing is None:
            self.fail(position, f"expected a bracket, found {opening!r}")
        for i in range(position, len(self)):
            depth += (self[i] == opening) - (self[i] == closing)
            if depth == 0:
                return i
        return self.fail(position, f"no {closing!r} closes this {opening!r}")

    def close_angle(self, position: int) -> int:
        """The position of the text that ends the template argument list opened by '<' at `position`; -1 where it is
        a comparison."""
        depth, i = 0, position
        while i < len(self):
            text = self[i]
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in ("(", "["):
                i = self.close(i)
            elif text in (";", "{", "}", "&&", "||", ")", "]"):
                return -1
            i += 1
        return -1

    def statement_end(self, position: int) -> int:
        """The position of the ';' that ends the statement at `position`; -1 where a bracket closes first."""
        depth = 0
        for i in range(position, len(self)):
            depth += (self[i] in _CLOSING) - (self[i] in (")", "]", "}"))
            if depth < 0:
                return -1
            if self[i] == ";" and depth == 0:
                return i
        return -1

    def split(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of [first, end) between its commas, those inside brackets and template lists aside."""
        parts, start, depth, angles = [], first, 0, 0
        for i in range(first, end):
            text = self[i]
            depth += (text in _CLOSING) - (text in (")", "]", "}"))
            if depth == 0:
                angles += (text == "<") - (text == ">" and angles > 0)
            if text == "," and depth == 0 and angles == 0:
                parts.append((start, i))
                start = i + 1
        return [(a, b) for a, b in [*parts, (start, end)] if b > a]

    def head_of(self, name: int) -> int:
        """The first position of the qualified name (a::b::name) that ends at `name`."""
        while self[name - 1] == "::":
            name -= 2 if self.is_name(name - 2) else 1
        return name

    def place(self, position: int) -> str:
        """file:line of a token."""
        token = self._tokens[self._at[position]]
        return f"{token.file}:{token.line}"

    def line_marker(self, position: int) -> str:
        """A line that makes the compiler count on from this token's place."""
        token = self._tokens[self._at[position]]
        return f'#line {token.line} "{token.file}"\n'

    def complain(self, position: int, message: str) -> None:
        """Notes an error that does not stop the rewriting, in the compiler's form."""
        self.complaints.append(f"{self.place(position)}: error: {message}")

    def fail(self, position: int, message: str) -> NoReturn:
        """Stops with an error at a token."""
        raise MslError(f"{self.place(position)}: error: {message}")

    def text(self) -> str:
        """The whole text with its edits."""
        pieces = []
        for i, token in enumerate(self._tokens):
            pieces += [self._before.get(i, ""), token.text, self._after.get(i, "")]
        return "".join(pieces)
