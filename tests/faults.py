"""A table of faults: what is done to a sound checkpoint, and the error it must get, which says what was found, what was
expected and what to do. Whether the table is complete is for the tests that fill it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError

Harm = Callable[[Path], Path | None]


@dataclass(frozen=True)
class Fault:
    """What to do to a sound folder (it may return what to open instead), and what the error must be and say."""

    name: str
    harm: Harm
    error: type[CheckpointError]
    says: tuple[str, ...]

    def check(self, sound: Path, scratch: Path) -> None:
        folder = Path(shutil.copytree(sound, scratch / "model"))
        other = self.harm(folder)
        before = _open_descriptors()
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(folder if other is None else other)
        message = str(caught.value)
        assert type(caught.value) is self.error, message
        for words in self.says:
            assert words in message
        assert str(scratch) in message or "language_model." in message, "it names the file or the tensor"
        assert len(message) < 700
        del caught
        assert _open_descriptors() == before


def _open_descriptors() -> int:
    folder = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
    return len(os.listdir(folder))  # noqa: PTH208


@dataclass
class Table:
    """Faults under unique names."""

    faults: dict[str, Fault] = field(default_factory=dict)

    def case(self, name: str, harm: Callable[[Path], Any], error: type[CheckpointError], *says: str) -> None:
        """Adds a fault whose `harm` changes the folder that is opened; `says` is found, expected, what to do."""

        def changed(folder: Path) -> None:
            harm(folder)

        self._add(Fault(name, changed, error, says))

    def fault(self, error: type[CheckpointError], *says: str) -> Callable[[Harm], Harm]:
        """Adds the decorated function as a fault, under its own name."""

        def add(harm: Harm) -> Harm:
            self._add(Fault(harm.__name__, harm, error, says))
            return harm

        return add

    def _add(self, fault: Fault) -> None:
        assert fault.name not in self.faults, fault.name
        assert len(fault.says) == 3, f"{fault.name}: found, expected, what to do"
        self.faults[fault.name] = fault

    def parametrize(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize("fault", self.faults.values(), ids=list(self.faults))
