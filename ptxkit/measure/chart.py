"""A chart of contestants as bars with their spread: SVG by itself, any other ending of a path by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ..errors import PtxkitError
from ..files import write_whole

COLOURS = ("#76b900", "#5b6b7b", "#9fb3c8", "#c98b2b", "#b04a5a", "#7a5aa6", "#3f8f8f")
_BAR, _GAP, _LEFT, _WIDTH = 13, 12, 210, 620


Value = Callable[[Mapping[str, Any], Mapping[str, Any], str], float]
"""How long a bar is, from a row, a contestant of it, and which of its times ("us", "p10", "p90")."""


class PlotError(PtxkitError, ValueError):
    """A chart that cannot be drawn."""


def draw(path: Path, rows: Sequence[Mapping[str, Any]], value: Value, unit: str, title: str = "") -> None:
    """A group of bars a row."""
    check_ending(path)
    if path.suffix == ".svg":
        write_whole(path, svg(rows, value, unit, title).encode())
        return
    import matplotlib as mpl  # pyright: ignore[reportMissingImports]

    mpl.use("Agg")
    _drawn(path, rows, value, f"{unit}, median and 10th to 90th percentile. {title}")


def check_ending(path: Path) -> None:
    """Raise PlotError where no chart can be drawn as the path ends."""
    if path.suffix == ".svg":
        return
    try:
        from matplotlib.backend_bases import FigureCanvasBase  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise PlotError(f"{path}: only .svg can be drawn without matplotlib: end the path so, or `pip install 'ptxkit[plot]'`") from None
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in endings:
        raise PlotError(f"{path}: a chart is drawn as .{', .'.join(endings)}: end the path so")


def svg(rows: Sequence[Mapping[str, Any]], value: Value, unit: str, title: str = "") -> str:
    """Horizontal bars, a group a row, a line from the 10th to the 90th percentile."""
    names = _names(rows)
    most = max(value(row, seen, which) for which in ("p10", "p90") for row in rows for seen in row["contestants"].values())
    y = 40.0
    parts = []
    for row in rows:
        shape = f"{row['shape']} {row['regime']}"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + _BAR * len(row["contestants"]) / 2 + 4:.1f}" text-anchor="end">{escape(shape)}</text>')
        for name, seen in row["contestants"].items():
            length = value(row, seen, "us")
            width = _WIDTH * length / most
            low, high = sorted(_LEFT + _WIDTH * value(row, seen, which) / most for which in ("p90", "p10"))
            middle = y + _BAR / 2
            parts.append(f'<rect x="{_LEFT}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 2}" fill="{_colour(names, name)}"/>'
                         f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}" stroke="#222"/>'
                         f'<text x="{max(high, _LEFT + width) + 4:.1f}" y="{y + _BAR - 3:.1f}">{length:.4g}</text>')
            y += _BAR
        y += _GAP
    legend = "".join(f'<rect x="{_LEFT + 130 * i}" y="12" width="10" height="10" fill="{_colour(names, name)}"/>'
                     f'<text x="{_LEFT + 130 * i + 14}" y="21">{escape(name)}</text>' for i, name in enumerate(names))
    height = y + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 80}" height="{height:.0f}" font-family="sans-serif" '
            f'font-size="11"><rect width="100%" height="100%" fill="white"/>{legend}{"".join(parts)}'
            f'<text x="{_LEFT}" y="{height - 8:.1f}">{escape(unit)}, median and 10th to 90th percentile. {escape(title)}</text></svg>\n')


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["contestants"]))


def _colour(names: Sequence[str], name: str) -> str:
    return COLOURS[names.index(name) % len(COLOURS)]


def _drawn(path: Path, rows: Sequence[Mapping[str, Any]], value: Value, title: str) -> None:
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]
    from matplotlib.patches import Rectangle  # pyright: ignore[reportMissingImports]

    names = _names(rows)
    figure, axes = pyplot.subplots(figsize=(11, 1 + 0.22 * sum(1 + len(row["contestants"]) for row in rows)), layout="constrained")
    place, ticks, labels = 0.0, [], []
    for row in rows:
        ticks.append(place + (len(row["contestants"]) - 1) / 2)
        labels.append(f"{row['shape']} {row['regime']}")
        for name, seen in row["contestants"].items():
            length = value(row, seen, "us")
            low, high = sorted(value(row, seen, which) for which in ("p90", "p10"))
            around = [[length - low], [high - length]]
            axes.barh(place, length, color=_colour(names, name), height=0.9, xerr=around, ecolor="#222")
            axes.text(length, place, f" {length:.4g}", va="center", fontsize=7)
            place += 1
        place += 1
    axes.set_yticks(ticks, labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(title)
    axes.legend(handles=[Rectangle((0, 0), 1, 1, color=_colour(names, name), label=name) for name in names])
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


__all__ = ["COLOURS", "PlotError", "Value", "check_ending", "draw", "svg"]
