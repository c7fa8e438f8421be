"""Lists of words in data/words.txt, one a line: `name = a | b | c`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data"


@cache
def _all() -> dict[str, tuple[str, ...]]:
    lines = (DATA / "words.txt").read_text("utf-8").splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): tuple(v.strip() for v in value.split("|")) for key, value in pairs}


def words(name: str) -> tuple[str, ...]:
    """One list: `public`, `fiction`, `thing`, `placeholder`, `diagnosis`, `host`, ..."""
    return _all()[name]
