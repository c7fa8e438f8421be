"""The small tables that notebooks show for an engine and a session. Plain HTML, no style sheet, everything escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping


def table(title: str, rows: Mapping[str, object]) -> str:
    """An HTML table of names and values under a title."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption style='text-align:left'>{html.escape(title)}</caption>{cells}</table>"


def counted(count: int, noun: str) -> str:
    """A number and its noun: "1 file", "2 files"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes in words, in decimal units: 19509000000 is "19.5 GB"."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
