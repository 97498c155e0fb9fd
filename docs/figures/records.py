"""What the figures of pages have in common: records, tables of a page, and means."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
Figure = Callable[[], str]
MEANS: dict[str, Callable[[list[float]], float]] = {"mean": geometric_mean, "least": min, "most": max}


@cache
def record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def percentile(values: Iterable[float], share: float) -> float:
    """Between the two nearest values, by their distances."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def header(titles: str) -> list[str]:
    """The first two lines of a table."""
    return [f"| {titles} |", "|---" * (titles.count("|") + 1) + "|"]


def block(lines: Iterable[str]) -> str:
    return "\n\n" + "\n".join(lines) + "\n\n"


def digits(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def extents(row: Any) -> str:
    return f"{row['m']} x {row['n']} x {row['k']}"


def shape_of(product: str) -> str:
    """`24x11008x8832:bf16:tt` as a page writes it."""
    lengths, *_, layout = product.split(":")
    return f"{lengths.replace('x', ' x ')} {layout}"


def ceilings(name: str, *limits: str) -> Figure:
    """What the card could do at most in a record's run."""
    return lambda: ", ".join(f"{limit} {found['value']:,.0f} {found['unit']}" for limit in limits
                             for found in (record(name)["ceilings"][limit],))


def count_of(name: str) -> Figure:
    """How many shapes a record has."""
    return lambda: str(len(record(name)["rows"]))


def summed(name: str, kind: str, against: str, which: str) -> Figure:
    """A figure of a record's own summary."""
    return lambda: f"{record(name)['summary'][kind][against][which]:.3f}"
