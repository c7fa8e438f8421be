"""The docs, run: the README's commands, every block of Python in the README and the quickstart, and the examples.

All of it runs in one empty folder, as a reader's would, on the embedded model.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ["README.md", "docs/quickstart.md"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(heading: str) -> str:
    """What stands under a heading of the README."""
    return text("README.md").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def blocks(source: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", source, re.DOTALL)


def run(folder: Path, *command: str, stdin: str = "") -> str:
    """Runs Python with these arguments in a folder; fails with what the command said, a warning included."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", "LILY_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


PYTHON_BLOCKS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in DOCS
    for number, block in enumerate(blocks(text(name), "python"))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the README's main command has run."""
    here = tmp_path_factory.mktemp("docs")
    command = shlex.split(blocks(section("Run"), "bash")[0])
    assert command[:2] == ["lily", "generate"]
    assert run(here, "-m", *command) == "A customer asked for a refund.\n"
    return here


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_python_of_the_docs(folder: Path, block: str) -> None:
    run(folder, "-c", block)


def test_example_chat(folder: Path) -> None:
    output = run(folder, str(ROOT / "examples/chat.py"), "nano", "--max-tokens", "4", stdin="Hello\nAnd then?\n")
    assert output.count("prompt tokens were held") == 2
    assert "read from the start" not in output


def test_example_choose(folder: Path) -> None:
    output = run(folder, str(ROOT / "examples/choose.py"), "nano", "This review is", " good", " bad")
    scores = [float(line.split()[0]) for line in output.splitlines()]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    assert scores[0] < 0


def test_example_surprise(folder: Path) -> None:
    assert "perplexity" in run(folder, str(ROOT / "examples/surprise.py"), "nano", "Lilies grow from bulbs.")


def test_set_up_names_extras_that_exist() -> None:
    named = re.search(r"pip install '\.\[([a-z,]+)\]'", section("Set up"))
    assert named
    try:
        extras = importlib.metadata.metadata("lily").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("lily is imported from its sources, not installed")
    assert set(named[1].split(",")) <= set(extras)


def test_test_command() -> None:
    assert shlex.split(blocks(section("Test"), "bash")[0]) == ["python", "-m", "pytest"]


@pytest.mark.parametrize("name", [*DOCS, "docs/internals.md", "docs/errors.md", "docs/gate.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", text(name))
    missing = [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()]
    assert missing == []


def test_every_error_is_documented() -> None:
    from lily import errors

    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    documented = set(re.findall(r"^\| `(\w+)` \|", text("docs/errors.md"), re.MULTILINE))
    assert documented == classes
