"""What the tests share: one small random checkpoint, written by lily itself, and one engine on it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from kernels import left_out

from lily import Engine, synth

hypothesis.settings.register_profile("lily", deadline=None)  # the machine is shared; its speed is no property
hypothesis.settings.load_profile("lily")

CHUNK = 64

# A shell starts background commands with Ctrl-C ignored, and their children inherit that; the tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := left_out():
        terminalreporter.section("left out")
        terminalreporter.write_line(lines)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a checkpoint with tokenizer and template. Tests that change files make a copy."""
    return synth.write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", synth.TINY, seed=1)


@pytest.fixture(scope="session")
def engine(tiny: Path) -> Iterator[Engine]:
    """An engine of 256 tokens and short chunks (CHUNK), so that short prompts have several. Tests make their own
    sessions and close them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lily.engine.CHUNK", CHUNK)
        loaded = Engine.load(tiny, max_context=256)
    with loaded:
        yield loaded
