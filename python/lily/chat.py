"""Messages to a prompt: the checkpoint's own chat template, run in jinja2's sandbox.

A template joins control tokens and message texts into one string, in which a message could pose as a control token.
Here it cannot: control tokens written inside a message are marked before rendering and encoded as ordinary characters
after it. Tools and the reading of answers (thinking, calls) are not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.sandbox

from .arguments import switch
from .errors import CheckpointError, InvalidInput
from .local_files import read_small_file
from .strict_json import read_object
from .tokenizer import Tokenizer, check_text

Message = Mapping[str, Any]
"""A role ("system", "developer", "user", "assistant", "tool") and a content, which is a str or a list of
{"type": "text", "text": str}; an assistant message may have a reasoning_content, a str."""

_ROLES = ("system", "developer", "user", "assistant", "tool")
_KEYS = {"role", "content", "reasoning_content"}
_TOKEN_VARIABLES = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplate:
    """The chat template of one checkpoint together with the tokenizer that reads what it renders."""

    def __init__(self, source: str, tokenizer: Tokenizer, *, variables: Mapping[str, Any] | None = None) -> None:
        """Raises CheckpointError where the template is not valid jinja."""
        self._source = source
        self._tokenizer = tokenizer
        self._variables = dict(variables or {})
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the chat template of the checkpoint is not valid jinja: {error}.") from None
        self._any_control = _starts_of(tokenizer.control_tokens)
        self._special = _starts_of(tokenizer.special_tokens)

    @classmethod
    def open(cls, folder: Path, tokenizer: Tokenizer) -> ChatTemplate:
        """Reads `folder`/chat_template.jinja, or the template inside tokenizer_config.json. Raises CheckpointError
        where there is none."""
        config_path, path = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        config = read_object(config_path) if config_path.exists() else {}
        source = _read_text(path) if path.exists() else _template_in(config.get("chat_template"))
        if source is None:
            raise CheckpointError(
                f"{folder} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so "
                "messages cannot be turned into a prompt; pass a text instead, or add the template."
            )
        variables = {name: _token_text(config.get(name)) for name in _TOKEN_VARIABLES}
        return cls(source, tokenizer, variables={name: text for name, text in variables.items() if text is not None})

    def render(self, messages: Sequence[Message], *, thinking: bool | None = None) -> str:
        """The prompt as text, to look at. Encoding it again would let messages pose as control tokens: see `encode`."""
        text, mark = self._render(messages, thinking)
        return text.replace(mark, "")

    def encode(
        self, messages: Sequence[Message], *, thinking: bool | None = None, most: int | None = None
    ) -> list[int]:
        """The prompt as token ids, with the header of the answer at its end. `thinking` passes enable_thinking to the
        template; None leaves it to the template's default.

        Control tokens that a message spells out are encoded as ordinary characters; of an assistant message only those
        marked special are, because <think> and the like are part of what a model answered.
        Raises InvalidInput for messages of the wrong form and, in the template's words, for messages it refuses, and
        ContextOverflow before the encoding of a text that cannot have as few tokens as `most`."""
        text, mark = self._render(messages, thinking)
        if most is not None:
            self._tokenizer.require_room(text.replace(mark, ""), most)
        ids: list[int] = []
        for piece, control in self._tokenizer.split(text):
            ids.extend(self._tokenizer.encode(piece.replace(mark, "")) if control is None else (control,))
        return ids

    def _render(self, messages: Sequence[Message], thinking: bool | None) -> tuple[str, str]:
        checked = normalized(messages)
        mark = _absent_character(self._source + "".join(text for message in checked for text in message.values()))
        marked = [self._marked(message, mark) for message in checked]
        variables = dict(self._variables)
        if thinking is not None:
            variables["enable_thinking"] = switch(thinking, "thinking")
        try:
            text = self._template.render(
                messages=marked, tools=None, documents=None, add_generation_prompt=True, **variables
            )
        except Exception as error:  # a template can fail in any way; what it said is what the caller needs
            words = str(error).replace(mark, "") or type(error).__name__
            raise InvalidInput(f"the chat template refuses these messages: {words}") from None
        return text, mark

    def _marked(self, message: dict[str, str], mark: str) -> dict[str, str]:
        pattern = self._special if message["role"] == "assistant" else self._any_control
        return {
            key: text if key == "role" else pattern.sub(lambda match: match.group() + mark, text)
            for key, text in message.items()
        }


def normalized(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The messages as templates expect them: content is one str, developer is system, and system messages that
    open the list are one message, joined by an empty line. Raises InvalidInput naming the message that is wrong."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput(
            f"messages is a {type(messages).__name__}; expected a list of {{'role': ..., 'content': ...}}."
        )
    if not messages:
        raise InvalidInput("messages is empty; expected at least one message, the last one from the user.")
    checked = [_checked(message, f"messages[{index}]") for index, message in enumerate(messages)]
    leading = 0
    while leading < len(checked) and checked[leading]["role"] == "system":
        leading += 1
    if leading > 1:
        joined = "\n\n".join(message["content"] for message in checked[:leading])
        checked[:leading] = [{"role": "system", "content": joined}]
    return checked


def _checked(message: object, where: str) -> dict[str, str]:
    if not isinstance(message, Mapping):
        raise InvalidInput(f"{where} is a {type(message).__name__}; expected {{'role': ..., 'content': ...}}.")
    role = message.get("role")
    if role not in _ROLES:
        raise InvalidInput(f"{where} has the role {role!r}; expected one of {', '.join(_ROLES)}.")
    allowed = _KEYS if role == "assistant" else _KEYS - {"reasoning_content"}
    if unknown := sorted(map(str, set(message) - allowed)):
        raise InvalidInput(
            f"{where} has {', '.join(unknown)}; a message with the role {role} has {', '.join(sorted(allowed))}."
        )
    checked = {"role": "system" if role == "developer" else role, "content": _content(message.get("content"), where)}
    if (reasoning := message.get("reasoning_content")) is not None:
        checked["reasoning_content"] = check_text(reasoning, f"reasoning_content of {where}")
    return checked


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return check_text(content, f"content of {where}")
    if not isinstance(content, (list, tuple)):
        raise InvalidInput(
            f"{where} has content of type {type(content).__name__}; expected a str or a list of text parts."
        )
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") != "text" or set(part) - {"type", "text"}:
            raise InvalidInput(f"content[{index}] of {where} is {part!r}; expected {{'type': 'text', 'text': ...}}.")
        texts.append(check_text(part.get("text"), f"content[{index}] of {where}"))
    return "".join(texts)


def _starts_of(tokens: Mapping[str, int] | frozenset[str]) -> re.Pattern[str]:
    """Matches the first character of every control token in a text, overlapping ones too."""
    longer = [re.escape(token) for token in tokens if len(token) > 1]
    return re.compile(f"(?=(?:{'|'.join(longer)})).", re.DOTALL) if longer else re.compile(r"(?!)")


def _absent_character(text: str) -> str:
    """A character that `text` does not have: one of the private use plane, which nothing gives a meaning."""
    present = set(text)
    return next(character for character in map(chr, range(0xF0000, 0xFFFFE)) if character not in present)


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """What chat templates are written for: block lines leave no blank lines, loops may break, JSON is not escaped."""

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def to_json(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda layout: datetime.now().strftime(layout)
    return environment


def _read_text(path: Path) -> str:
    try:
        return read_small_file(path, "a chat template", "fetch it again").decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} cannot be read as UTF-8 text: {error}; fetch it again.") from None


def _template_in(entry: object) -> str | None:
    """The template of tokenizer_config.json: a str, or the one named default in a list of named ones."""
    if isinstance(entry, list):
        named = {item.get("name"): item.get("template") for item in entry if isinstance(item, dict)}
        entry = named.get("default")
    return entry if isinstance(entry, str) else None


def _token_text(entry: object) -> str | None:
    """A token of tokenizer_config.json, given as a str or as an object with its content."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None
