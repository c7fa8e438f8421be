"""Draws a report: tokens per second over the length of the context, reading and writing side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from .runner import Report, Row


def require(path: str | Path) -> None:
    """Raises InvalidInput where matplotlib is missing or does not know the ending: before the work, not after it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput("matplotlib is not installed, and it draws the picture; pip install matplotlib") from None
    formats = FigureCanvasAgg(Figure()).get_supported_filetypes()
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in formats:
        raise InvalidInput(f"{path}: ends in {ending!r}, expected one of {', '.join(sorted(formats))}")


def draw(report: Report, path: str | Path, title: str) -> None:
    """Writes a picture in the format of the path's ending (.png, .svg, .pdf). `require` says whether it can."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(title)
    lengths = sorted({row.length for row in report.rows})
    for work, axes in zip(("prefill", "decode"), figure.subplots(1, 2), strict=True):
        for engine in dict.fromkeys(row.engine for row in report.rows):
            _line(axes, [row for row in report.rows if row.engine == engine], work)
        axes.set_title(f"{work}, tokens per second")
        axes.set_xlabel("tokens of context")
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")  # names of engines can be long
    figure.savefig(path)


def _line(axes: Any, rows: list[Row], work: str) -> None:
    """One engine, with whiskers from its lowest to its highest round."""
    rows.sort(key=lambda row: row.length)
    spreads = [getattr(row, work) for row in rows]
    medians = [spread.median for spread in spreads]
    whiskers = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
    axes.errorbar([row.length for row in rows], medians, yerr=whiskers, marker="o", capsize=3, label=rows[0].device)
