"""What changes gave: products before and after one."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

from .records import MEANS, Figure, block, header, record

BEFORE_AFTER = "2026-11-24-h200-before-and-after"
SHIFTS = "2026-11-26-h100-shifts"

GAINS = {"block-scales": ("block scales", ""), "gate": ("gate", ""), "wide": ("wide", ":quantised"), "few-tokens": ("few tokens", ""),
         "own": ("own matrices", ""), "few-tokens-again": ("few tokens again", ""), "other": ("other results", "")}
"""By the name of a figure: the part of the record, and what the names of its cases have."""


def few_rows_table() -> str:
    """The time before over that after, products of few rows by operands: geometric mean, least and most."""
    lines = header("rows | bf16, nt | bf16, nn | e4m3, one scale | e4m3, blocks")
    cases = record(BEFORE_AFTER)["few rows"]["cases"]
    for rows in (1, 16, 64, 128):
        cells = []
        for operands in ("bf16:nt", "bf16:nn", "e4m3:nt", "e4m3-block:nt"):
            gains = [before / after for name, (before, after) in cases.items()
                     if name.startswith(f"{rows}x") and name.partition(":")[2] == operands]
            cells.append(f"{geometric_mean(gains):.3f} ({min(gains):.3f} - {max(gains):.3f})")
        lines.append(f"| {rows} | {' | '.join(cells)} |")
    return block(lines)


def pairs(cases: Any, name: str = "") -> Iterable[tuple[str, list[float]]]:
    """The cases of a part by name, which may be nested."""
    for key, found in cases.items():
        yield from pairs(found, name + key) if isinstance(found, dict) else [(name + key, found)]


def gain(figure: str, which: str) -> Figure:
    """How many times as fast the products of a part are after its change: the geometric mean, the least or the most."""
    def of() -> str:
        name, having = GAINS[figure]
        part = record(BEFORE_AFTER)[name]
        if "all" in part:
            return f"{part['all'][which]:.3f}"
        found = [before / after for case, (before, after, *_) in pairs(part["cases"]) if having in case]
        return f"{MEANS[which](found):.3f}"
    return of


def gain_count(figure: str) -> Figure:
    name, having = GAINS[figure]
    return lambda: str(record(BEFORE_AFTER)[name].get("all", {}).get("cases") or sum(
        having in case for case, _ in pairs(record(BEFORE_AFTER)[name]["cases"])))


def shifted() -> list[float]:
    """How much longer cuBLAS takes, products of at most 64 rows in 16 bits that are loaded by shifts."""
    return [row["cublas"] / row["ours"] for name, row in record(SHIFTS)["rows"].items()
            if int(name.partition("x")[0]) <= 64 and "by shifts" in row["configuration"] and "f16" in name]


FIGURES: dict[str, Figure] = {
    "few-rows.table": few_rows_table,
    **{f"gain.{figure}.{which}": gain(figure, which) for figure in GAINS for which in MEANS},
    **{f"gain.{figure}.count": gain_count(figure) for figure in GAINS},
    "shifts.span": lambda: f"{min(shifted()):.2f} to {max(shifted()):.1f}",
    "shifts.count": lambda: str(len(shifted())),
}
