"""Means over shapes: what a run's rows say together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ptxkit.measure.figures import geometric_mean, quantile

BEHIND = 0.95
WEIGHTS = (100e6, 25e6)
"""Bytes of weights above which a share of the streaming read is summed up by itself."""


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each regime and type (and card and kind of shape, in rows that say theirs), and for each layout where there are several: against
    each baseline the geometric mean over the shapes, the 5th percentile, the least with its shape, and how many are below 0.95.

    Of the streaming read also those with large weights; other layouts also against "nt" of the same extents.
    """
    found: dict[str, dict[str, Any]] = {}
    mixed = len({row.get("layout") for row in rows}) > 1
    straight = {_without_layout(row): _ours(row) for row in rows if row.get("layout") == "nt"}
    for row in rows:
        ratios = {name: seen["ratio"] for name, seen in row.get("ratios", {}).items()}
        for least in WEIGHTS:
            if "read" in ratios and row["weight_bytes"] > least:
                ratios[f"read, weights over {least / 1e6:.0f} MB"] = ratios["read"]
        nt, own = straight.get(_without_layout(row)), _ours(row)
        if nt and own and row["layout"] != "nt":
            ratios["nt"] = nt / own
        for name, ratio in ratios.items():
            words = row.get("card"), row["regime"], row["dtype"], row.get("kind"), "batched" if row.get("batch") else None
            groups = [" ".join(word for word in words if word)]
            if mixed:
                groups.append(f"{groups[0]} {row['layout']}")
            for group in groups:
                entry = found.setdefault(group, {}).setdefault(name, {"ratios": [], "shapes": []})
                entry["ratios"].append(ratio)
                entry["shapes"].append(row["shape"])
    return {group: {name: whole(entry["ratios"], entry["shapes"]) for name, entry in entries.items()} for group, entries in found.items()}


def worst(rows: Sequence[Mapping[str, Any]], count: int, of: str = "best") -> list[int]:
    """The places of the rows with the least ratios."""
    ranked = sorted((row["ratios"][of]["ratio"], place) for place, row in enumerate(rows) if of in row.get("ratios", {}))
    return [place for _, place in ranked[:count]]


def _without_layout(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("card", "regime", "batch", "m", "n", "k", "dtype", "block", "rowcol"))


def _ours(row: Mapping[str, Any]) -> float | None:
    ours = row.get("contestants", {}).get("ours")
    return float(ours["us"]) if ours else None


def whole(ratios: Sequence[float], shapes: Sequence[str]) -> dict[str, Any]:
    """The geometric mean of ratios, their 5th percentile, the least with its shape, and how many are below 0.95."""
    least = min(ratios)
    return {"shapes": len(ratios), "geometric_mean": geometric_mean(ratios), "percentile_5": quantile(ratios, 0.05), "least": least,
            "least_shape": shapes[ratios.index(least)], "below_0.95": sum(ratio < BEHIND for ratio in ratios)}


__all__ = ["summary", "whole", "worst"]
