"""The standard streams of a command, in whatever state the caller left them: closed, full, or with nobody at the end;
and the text that a command is given, there or in a file.

Results go to standard output, and what cannot be written there is an error. Progress, numbers and errors go to standard
error, and where that cannot be written they are left out, because there is no other place. Which words go where is
decided by the commands.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from .errors import InvalidInput

MAX_INPUT_BYTES = 64 << 20  # of a text: a pipe and a device may never end


def claim() -> None:
    """Fills the places of closed streams, so that no file that is opened later is taken for one of them."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it stays, as the stream would


@contextlib.contextmanager
def ctrl_c() -> Iterator[list[int]]:
    """Notes Ctrl-C in the list beside raising KeyboardInterrupt, which an import may turn into an ImportError."""
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield pressed
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def require_output() -> None:
    """Raises InvalidInput if standard output is closed."""
    if sys.stdout is None:
        raise InvalidInput("standard output is closed, expected a place for the result; redirect it to a file.")


def finish_output() -> None:
    """Writes what is still held back for standard output, or gives it up: the interpreter would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


def read_text(name: str) -> str:
    """The UTF-8 text in a file, or on standard input if the name is "-".

    Raises InvalidInput for more than MAX_INPUT_BYTES, for bytes that are not UTF-8, and for a closed standard input;
    OSError.
    """
    if name != "-":
        with Path(name).open("rb") as file:
            return _text(file, name)
    if sys.stdin is None:
        raise InvalidInput("standard input is closed, expected a text there; redirect it from a file.")
    return _text(sys.stdin.buffer, "standard input")


def _text(file: BinaryIO, place: str) -> str:
    data = file.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise InvalidInput(f"{place} holds more than {MAX_INPUT_BYTES:,} bytes, expected at most that; shorten it.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{place} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}; convert it first."
        ) from None


def fail(words: str, code: int) -> int:
    """Says in one line why the command ends, and returns its exit code."""
    erase = "\r\x1b[K" if sys.stderr.isatty() else ""  # a line of progress may stand there
    _say(f"{erase}lily: {' '.join(words.split())}\n")
    return code


class Line:
    """One line of progress on standard error, drawn over itself; nothing where that is no terminal."""

    def __init__(self, *, shown: bool = True) -> None:
        self._shown = shown
        self._drawn = False
        self._terminal = shown and sys.stderr.isatty()

    def progress(self, verb: str, unit: str) -> Callable[[int, int], None]:
        """A callback that draws how much is done."""

        def draw(done: int, total: int) -> None:
            if self._terminal:
                share = f" ({100 * done // total} %)" if total else ""
                _say(f"\r\x1b[K{verb} {done:,} of {total:,} {unit}{share}")
                self._drawn = True

        return draw

    def clear(self) -> None:
        """Takes the line away."""
        if self._drawn:
            _say("\r\x1b[K")
            self._drawn = False

    def say(self, words: str) -> None:
        """A line that stays."""
        self.clear()
        if self._shown:
            _say(words + "\n")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)
