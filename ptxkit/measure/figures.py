"""Figures out of repeated measurements: medians, spread, ratios of the same round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


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
    """The root of the product of as many values as there are."""
    return math.exp(statistics.fmean(map(math.log, values)))


def ratios(times: Mapping[str, Sequence[float]], ours: str = "ours") -> dict[str, dict[str, float]]:
    """`ours` against each of the others."""
    return {name: paired(times[ours], seen) for name, seen in times.items() if name != ours} if ours in times else {}


def row_ratios(times: Mapping[str, Sequence[float]], ours: str, no_peers: Sequence[str]) -> dict[str, dict[str, float]]:
    """`ours` against each baseline, and against the one with the least median that is a peer, as "best"."""
    found = ratios(times, ours)
    peers = [name for name in found if name not in no_peers]
    if peers:
        found["best"] = found[min(peers, key=lambda name: statistics.median(times[name]))]
    return found


__all__ = ["geometric_mean", "paired", "quantile", "ratios", "row_ratios", "spread"]
