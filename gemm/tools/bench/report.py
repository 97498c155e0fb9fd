"""The chart of a run, and the command that made it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxkit.files import write_whole
from ptxkit.measure import chart
from ptxkit.measure.chart import PlotError

from . import scatter


def invocation(package: str = "ptxkit.gemm") -> str:
    """The command of a package that runs, without the folders that it names: results travel."""
    return " ".join((f"python -m {package}", *(Path(word).name for word in sys.argv[1:])))


def plot(path: Path, results: Mapping[str, Any]) -> None:
    """The rows as bars of TFLOP/s with their spread: SVG by itself, any other ending of `path` by matplotlib. Many rows are points in an
    SVG: their ratios against their operations."""
    rows = [row for row in results["rows"] if row["contestants"]]
    if not rows:
        raise PlotError(f"--plot {path}: nothing was measured")
    if path.suffix == ".svg" and (len(rows) >= scatter.MANY or "runs" in results):
        write_whole(path, scatter.svg(scatter.points(rows), str(results.get("device", {}).get("name", ""))).encode())
        return
    chart.draw(path, rows, _tflops, "TFLOP/s", str(results.get("device", {}).get("name", "")))


def _tflops(row: Mapping[str, Any], seen: Mapping[str, Any], which: str) -> float:
    return 2e-6 * float(row.get("batch") or 1) * float(row["m"]) * float(row["n"]) * float(row["k"]) / float(seen[which])


__all__ = ["PlotError", "invocation", "plot"]
