"""What a benchmark is asked for by keyword, and what it has measured."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from ..errors import PtxkitError
from .asked import Check, Contestant, Where


class BenchError(PtxkitError, ValueError):
    """A measurement that cannot be made."""


class Options(TypedDict, total=False):
    """`against`: contestants by name. `regimes`: "burst" (the default), "warm", "sustained". `rounds`: instead of the regime's own.
    `flops` and `bytes`: of a launch, for rates. `check`: proves each contestant right before it is timed. `label`: of the rows. `json` and
    `plot`: files to write. `device`: "gpu" or "cpu", which counts instructions."""

    against: Mapping[str, Contestant]
    regimes: str | Sequence[str]
    rounds: int
    flops: float
    bytes: float
    check: Check
    tolerance: float
    label: str
    json: str | Path
    plot: str | Path
    device: Where
    seed: int


@dataclass(frozen=True)
class Benchmark:
    """What was measured: `results` is what the JSON file holds, `unit` what its times are counted in."""

    results: Mapping[str, Any]
    unit: str = "us"

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """One a regime."""
        found: Sequence[Mapping[str, Any]] = self.results["rows"]
        return found

    def time(self, name: str = "kernel", regime: str | None = None) -> float:
        """The median time of a launch of a contestant, in the first regime unless one is named."""
        for row in self.rows:
            if regime in (None, row["regime"]):
                if name not in row["contestants"]:
                    raise BenchError(f"{name!r} was not measured: {row.get('left_out', {}).get(name, 'there is no such contestant')}")
                return float(row["contestants"][name]["us"])
        raise BenchError(f"nothing was measured in the regime {regime!r}")

    def plot(self, path: str | Path) -> None:
        """Bars of TFLOP/s or GB/s where the work is known, else of times: SVG, or anything that matplotlib writes."""
        from . import chart

        rows = [row for row in self.rows if row["contestants"]]
        if not rows:
            raise BenchError(f"{path}: nothing was measured")
        for what, unit, factor in (("flops", "TFLOP/s", 1e-6), ("bytes", "GB/s", 1e-3)):
            if all(what in row for row in rows):
                chart.draw(Path(path), rows, functools.partial(_rate, what, factor), unit, str(self.results["device"]["name"]))
                return
        chart.draw(Path(path), rows, lambda row, seen, which: float(seen[which]), self.unit, str(self.results["device"]["name"]))

    def _repr_html_(self) -> str:
        from ..html.measures import benchmark

        return benchmark(self)

    def __str__(self) -> str:
        return "\n".join(line(row, self.unit) for row in self.rows)


def _rate(what: str, factor: float, row: Mapping[str, Any], seen: Mapping[str, Any], which: str) -> float:
    return factor * float(row[what]) / float(seen[which])


def line(row: Mapping[str, Any], unit: str) -> str:
    """A row as text."""
    parts = []
    for name, seen in row["contestants"].items():
        text = f"{name} {seen['us']:.2f} {unit}" if unit == "us" else f"{name} {seen['us']:,.0f} {unit}"
        text += "".join(f" {seen[rate]:.1f} {words}" for rate, words in (("tflops", "TFLOP/s"), ("gbs", "GB/s")) if rate in seen)
        parts.append(text + (f" ({row['ratios'][name]['ratio']:.3f} times as long)" if name in row["ratios"] else ""))
    text = f"{row['regime']:<9} {row['shape']}: {', '.join(parts)}"
    if "mhz" in row:
        text += f"  {row['mhz']:.0f} MHz {row['watts']:.0f} W"
    return text + "".join(f"\n{'':10}{name}: {why}" for name, why in row.get("left_out", {}).items())
