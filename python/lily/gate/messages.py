"""What the Gate reads of a text or of chat messages, as one text, and the way back into the same structure.

Every string of a message is a leaf: contents, names, tool-call arguments, results. Strings that hold JSON (arguments,
results of tools, and strings inside those) are read value by value, so that an escape hides nothing, and written again
if something in them changed. The leaves stand one below the other in `text`, a value of JSON behind its key; what
stands between leaves is never masked. Pictures, sound and files are counted, not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InvalidInput
from ..tokenizer import check_text
from .spans import Span

Path = tuple[str | int, ...]
Content = str | Sequence[Mapping[str, Any]]

_STRUCTURE = frozenset({"role", "type", "id", "tool_call_id", "call_id"})  # names of the protocol, not of people
_NOT_TEXT = frozenset(
    "image image_url input_image audio input_audio file input_file video input_video document image_file".split()
)
_CALLS = frozenset({"arguments", "input", "args", "output", "response"})  # what tools are given, and give
_DEPTH = 16  # of JSON in strings of JSON
_LEVELS = 100  # of lists and objects, all together


@dataclass(frozen=True, slots=True)
class Leaf:
    """One string: where it stands in the joined text, and its path (message, key, index, key inside JSON...)."""

    start: int
    end: int
    path: Path
    role: str


class Document:
    """A text, or chat messages, as one text with leaves. Raises InvalidInput for what is neither."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.unread = 0
        self.leaves: list[Leaf] = []
        if isinstance(content, str):
            self.text = check_text(content)
            self.leaves.append(Leaf(0, len(content), (), ""))
            return
        self._check(content)
        self._parts: list[str] = []
        self._size = 0
        self._rebuild(self._collect)
        self.text = "".join(self._parts)

    @staticmethod
    def _check(content: object) -> None:
        if not isinstance(content, Sequence) or isinstance(content, (bytes, bytearray)):
            raise InvalidInput(f"the text is a {type(content).__name__}; expected a str or a list of chat messages.")
        for number, message in enumerate(content):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise InvalidInput(
                    f"message {number} is a {type(message).__name__} without a role; expected "
                    "{'role': 'user', 'content': ...}."
                )

    def clipped(self, spans: Sequence[Span]) -> list[Span]:
        """The spans cut at the edges of the leaves, without blanks at their ends. `spans` are sorted and apart."""
        if isinstance(self.content, str):
            return list(spans)
        out = []
        at = 0
        for span in spans:
            while at < len(self.leaves) and self.leaves[at].end <= span.start:
                at += 1
            place = at
            while place < len(self.leaves) and self.leaves[place].start < span.end:
                leaf = self.leaves[place]
                start, end = max(span.start, leaf.start), min(span.end, leaf.end)
                piece = self.text[start:end]
                start += len(piece) - len(piece.lstrip())
                end -= len(piece) - len(piece.rstrip())
                if start < end:
                    out.append(replace(span, start=start, end=end))
                place += 1
        return out

    def within(self, spans: Sequence[Span]) -> list[list[Span]]:
        """For each leaf its spans, counted from the leaf's own start. `spans` are clipped."""
        out: list[list[Span]] = [[] for _ in self.leaves]
        at = 0
        for span in spans:
            while self.leaves[at].end < span.end:
                at += 1
            start = self.leaves[at].start
            out[at].append(replace(span, start=span.start - start, end=span.end - start))
        return out

    def leaf_texts(self) -> list[str]:
        """The strings, in the order of the leaves."""
        return [self.text[leaf.start : leaf.end] for leaf in self.leaves]

    def rebuilt(self, texts: Sequence[str]) -> Any:
        """The content with these strings in place of its own: a str, or new messages."""
        if isinstance(self.content, str):
            return texts[0]
        left = iter(texts)
        return self._rebuild(lambda *_: next(left))

    # The structure is walked twice in the same order: once to collect the strings, once to put others in their places.

    def _rebuild(self, visit: Callable[[str, Path, bool, str], str]) -> list[dict[str, Any]]:
        self.unread = 0
        return [
            {
                key: value if key in _STRUCTURE else self._value(value, (number, key), visit, message["role"])
                for key, value in message.items()
            }
            for number, message in enumerate(self.content)
            if isinstance(message, Mapping)
        ]

    def _collect(self, text: str, path: Path, key: bool, role: str) -> str:
        check_text(text, f"the text at {'.'.join(map(str, path))}")
        self.leaves.append(Leaf(self._size, self._size + len(text), path, role))
        self._parts += (text, ": " if key else "\n")
        self._size += len(text) + (2 if key else 1)
        return text

    def _value(self, value: Any, path: Path, visit: Callable[[str, Path, bool, str], str], role: str) -> Any:
        """A value of the protocol's own structure: its keys are known names."""
        _check_levels(path)
        if isinstance(value, str):
            if value.startswith("data:") and ";base64," in value[:80]:
                self.unread += 1
                return value
            if path[-1] in _CALLS or role in ("tool", "function"):
                return self._json(value, path, visit, role, 0)
            return visit(value, path, False, role)
        if isinstance(value, Mapping):
            if value.get("type") in _NOT_TEXT:
                self.unread += 1
                return dict(value)
            named = {"name"} if path[-1] in ("function", "function_call") or value.get("type") == "tool_use" else set()
            if path[-1] in _CALLS:
                return self._tree(value, path, visit, role, 0)
            if value.get("type") == "tool_result":
                role = "tool"
            return {
                key: inner if key in _STRUCTURE | named else self._value(inner, (*path, key), visit, role)
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._value(inner, (*path, at), visit, role) for at, inner in enumerate(value)]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        self.unread += 1
        return value

    def _json(self, text: str, path: Path, visit: Callable[[str, Path, bool, str], str], role: str, depth: int) -> str:
        try:
            tree = _parsed(text) if depth < _DEPTH else None
        except RecursionError:
            raise _too_deep(path) from None
        except OverflowError:
            raise _too_long(path) from None
        if tree is None:
            return visit(text, path, False, role)
        changed = self._tree(tree, path, visit, role, depth)
        return text if changed == tree else json.dumps(changed, ensure_ascii=False)

    def _tree(self, value: Any, path: Path, visit: Callable[[str, Path, bool, str], str], role: str, depth: int) -> Any:
        """A value of parsed JSON: keys and numbers may be personal, too."""
        _check_levels(path)
        if isinstance(value, str):
            return self._json(value, path, visit, role, depth + 1)
        if isinstance(value, Mapping):
            out: dict[str, Any] = {}
            for key, inner in value.items():
                name = visit(key, (*path, key), True, role)
                while name in out:  # two keys that an operator made equal
                    name += "'"
                out[name] = self._tree(inner, (*path, key), visit, role, depth)
            return out
        if isinstance(value, list):
            return [self._tree(inner, (*path, at), visit, role, depth) for at, inner in enumerate(value)]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                shown = str(value)
            except ValueError:
                raise _too_long(path) from None
            seen = visit(shown, path, False, role)
            return value if seen == shown else seen
        return value


def _parsed(text: str) -> Any:
    """The object or array of a JSON text; None for another text, and where a key repeats (a parse would lose one).

    Raises RecursionError, and OverflowError for a number with more digits than Python converts."""
    if text.lstrip()[:1] not in ("{", "["):
        return None

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key repeats")
        return dict(pairs)

    def whole(digits: str) -> int:
        try:
            return int(digits)
        except ValueError:
            raise OverflowError from None

    try:
        return json.loads(text, object_pairs_hook=once, parse_int=whole)
    except ValueError:
        return None


def _check_levels(path: Path) -> None:
    if len(path) > _LEVELS:
        raise _too_deep(path)


# JSON that cannot be parsed for these reasons could, read as plain text, hide a value behind an escape.


def _too_deep(path: Path) -> InvalidInput:
    return InvalidInput(
        f"message {path[0]} is nested more than {_LEVELS} levels deep at {'.'.join(map(str, path[1:3]))}; expected at "
        "most that many lists and objects inside each other. Flatten it, or leave it out."
    )


def _too_long(path: Path) -> InvalidInput:
    return InvalidInput(
        f"message {path[0]} has a whole number of thousands of digits at {'.'.join(map(str, path[1:3]))}; expected at "
        "most as many as Python converts (sys.set_int_max_str_digits). Write it as a string, or leave it out."
    )
