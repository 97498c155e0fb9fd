"""A chart of many products: the ratio of each to the best baseline, against its operations. Every product is a point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

COLOURS = ("#76b900", "#5b6b7b", "#c98b2b", "#b04a5a", "#7a5aa6", "#3f8f8f")
MANY = 60                       # rows, from which bars would fill pages
_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 40, 720, 360


def points(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float, str]]:
    """(type and layout, operations, ratio, shape) of the rows that have a ratio to the best baseline."""
    cards = {row.get("card", "") for row in rows}
    return [(f"{row['dtype']} {row['layout']}{' batched' if row.get('batch') else ''}{' ' + row['card'] if len(cards) > 1 else ''}",
             2.0 * (row.get("batch") or 1) * row["m"] * row["n"] * row["k"], float(row["ratios"]["best"]["ratio"]), row["shape"])
            for row in rows if "best" in row.get("ratios", {})]


def svg(found: Sequence[tuple[str, float, float, str]], title: str = "") -> str:
    """Both axes are logarithmic. A line marks 1."""
    low, high = (math.log10(bound([flops for _, flops, _, _ in found])) for bound in (min, max))
    least, most = (math.log2(bound([0.5, 2.0, *(ratio for _, _, ratio, _ in found)])) for bound in (min, max))

    def x(flops: float) -> float:
        return _LEFT + _WIDTH * (math.log10(flops) - low) / max(1e-9, high - low)

    def y(ratio: float) -> float:
        return _TOP + _HEIGHT * (most - math.log2(ratio)) / (most - least)

    kinds = sorted({kind for kind, _, _, _ in found})
    step = max(40.0, min(_WIDTH / max(1, len(kinds)), max([90.0, *(7.0 * len(kind) for kind in kinds)])))
    parts = [f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="{"#222" if tick == 1 else "#ddd"}"/>'
             f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
             for tick in (0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4) if least <= math.log2(tick) <= most]
    parts += [f'<text x="{x(10.0 ** power):.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">1e{power}</text>'
              for power in range(math.ceil(low), math.floor(high) + 1)]
    parts += [f'<circle cx="{x(flops):.1f}" cy="{y(ratio):.1f}" r="3" fill="{_colour(kinds, kind)}" fill-opacity="0.7">'
              f'<title>{escape(shape)} {ratio:.3f}</title></circle>' for kind, flops, ratio, shape in found]
    parts += [f'<circle cx="{_LEFT + step * i}" cy="16" r="4" fill="{_colour(kinds, kind)}"/><text x="{_LEFT + step * i + 8}" y="20">'
              f'{escape(kind)}</text>' for i, kind in enumerate(kinds)]
    bottom = _TOP + _HEIGHT + 36
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{bottom + 12}" font-family="sans-serif" '
            f'font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}<text x="{_LEFT}" y="{bottom}">'
            f"Time of the best baseline over ours, against operations. {escape(title)}</text></svg>\n")


def _colour(kinds: Sequence[str], kind: str) -> str:
    return COLOURS[kinds.index(kind) % len(COLOURS)]


__all__ = ["MANY", "points", "svg"]
