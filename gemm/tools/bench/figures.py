"""Figures out of repeated measurements: medians, spread, ratios of the same round, and means over shapes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def spread(us: Sequence[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile of times."""
    return {"us": statistics.median(us), "p10": quantile(us, 0.1), "p90": quantile(us, 0.9)}


def paired(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """How many times faster `ours` is: the median of the rounds' ratios, and their spread."""
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    return {"ratio": statistics.median(ratios), "p10": quantile(ratios, 0.1), "p90": quantile(ratios, 0.9)}


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def ratios(times: Mapping[str, Sequence[float]], ours: str = "ours") -> dict[str, dict[str, float]]:
    """`ours` against each of the others."""
    return {name: paired(times[ours], seen) for name, seen in times.items() if name != ours} if ours in times else {}


def row_ratios(times: Mapping[str, Sequence[float]], ours: str, ceilings: Sequence[str]) -> dict[str, dict[str, float]]:
    """`ours` against each baseline, and against the one with the least median that is no ceiling, as "best"."""
    found = ratios(times, ours)
    peers = [name for name in found if name not in ceilings]
    if peers:
        found["best"] = found[min(peers, key=lambda name: statistics.median(times[name]))]
    return found


WEIGHTS = (100e6, 25e6)
"""Bytes of weights above which a share of the streaming read is summed up by itself."""


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each regime and type: against each baseline the geometric mean over the shapes, and the least with its shape.

    Of the streaming read also those with large weights; other layouts also against "nt" of the same extents.
    """
    found: dict[str, dict[str, Any]] = {}
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
            entry = found.setdefault(f"{row['regime']} {row['dtype']}", {}).setdefault(name, {"ratios": [], "shapes": []})
            entry["ratios"].append(ratio)
            entry["shapes"].append(row["shape"])
    return {group: {name: _whole(entry) for name, entry in entries.items()} for group, entries in found.items()}


def _without_layout(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("regime", "m", "n", "k", "dtype", "block"))


def _ours(row: Mapping[str, Any]) -> float | None:
    ours = row.get("contestants", {}).get("ours")
    return float(ours["us"]) if ours else None


def _whole(entry: Mapping[str, Any]) -> dict[str, Any]:
    ratios = entry["ratios"]
    least = min(ratios)
    return {"shapes": len(ratios), "geometric_mean": geometric_mean(ratios), "least": least,
            "least_shape": entry["shapes"][ratios.index(least)]}


__all__ = ["geometric_mean", "paired", "quantile", "ratios", "row_ratios", "spread", "summary"]
