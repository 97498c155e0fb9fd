"""The ladder's results as a text table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tools.bench import BACKENDS
from .clocks import PHASES
from .rungs import BY_NAME, NAMES, OURS_IDEA

COLUMNS = ("step", "name", "us", "TFLOP/s", "gain", "x ours", *(f"x {name}" for name in BACKENDS), *PHASES, "what it changes")
_LEFT = (0, 1)


def described(name: str) -> tuple[str, str]:
    """The number of a contestant and what it is."""
    if name in BY_NAME:
        return str(BY_NAME[name].step), BY_NAME[name].idea
    return "", f"torch's scaled_dot_product_attention, {BACKENDS[name]}" if name in BACKENDS else OURS_IDEA


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells of one mask: the steps, the final kernel, torch's backends."""
    made = []
    for name in (*NAMES, *BACKENDS):
        step, idea = described(name)
        seen = found["results"].get(name)
        if seen is None:
            reason = found["left_out"].get(name)
            if reason:
                made.append((step, name, *[""] * (len(COLUMNS) - 3), f"left out: {reason}"))
            continue
        times = f"{seen['us']:,.1f} ({seen['p10']:,.1f}-{seen['p90']:,.1f})"
        clocks = seen.get("clocks", {})
        made.append((step, name, times, f"{seen['tflops']:.1f}", _ratio(seen.get("gain")),
                     *(_ratio(seen.get("of", {}).get(other)) for other in ("ours", *BACKENDS)),
                     *(f"{clocks[phase]:,.0f}" if phase in clocks else "" for phase in PHASES), idea))
    return made


def _ratio(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['ratio']:.3f}" + (f" ({found['p10']:.3f}-{found['p90']:.3f})" if "p10" in found else "")


def heading(found: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """One line: what was measured, and where."""
    words = [f"{found['mask']}, {found['heads']} heads of {found['length']} x {found['head']}, bf16"]
    if device:
        words.append(f"{device['name']}, {device['multiprocessors']} SMs, driver {device['driver']}, torch {device['torch']}")
    words.append(f"{found['regime']} regime, {found['rounds']} rounds: medians (10th to 90th percentile)")
    if "mhz" in found:
        words.append(f"SM clock {found['mhz']:.0f} MHz (median), {found['watts']:.0f} W (mean)")
    return "; ".join(words)


def table(results: Mapping[str, Any]) -> str:
    """All masks as text."""
    parts = []
    for found in results["masks"]:
        cells = [COLUMNS, *rows(found)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS) - 1)]
        parts.append(heading(found, results.get("device", {})))
        for row in cells:
            padded = [row[i].ljust(width) if i in _LEFT else row[i].rjust(width) for i, width in enumerate(widths)]
            parts.append("  ".join([*padded, row[-1]]).rstrip())
        parts.append("")
    return "\n".join(parts)


__all__ = ["COLUMNS", "heading", "rows", "table"]
