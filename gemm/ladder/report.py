"""The ladder's results as a text table, as a table of a page, and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.files import read_text, write_whole

from .parts import PHASES
from .rungs import NAMES
from .supervise import described

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLUMNS = ("step", "name", "TFLOP/s", "gain", "% cuBLAS", "% wgmma", "load", "mma", "store", "at rate", "what it changes")
_RIGHT = range(2, 10)
_PHASES = (*PHASES, "at_rate")


class ReportError(PtxkitError, ValueError):
    """A page or chart that cannot be made."""


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells of one size: one row per step, then the peers."""
    made = []
    for name in NAMES:
        what = described(name)
        seen = found["results"].get(name)
        if seen is None:
            reason = found["left_out"].get(name)
            if reason:
                made.append((what["step"], name, *[""] * (len(COLUMNS) - 3), f"left out: {reason}"))
            continue
        clocks = seen.get("clocks", {})
        phases = tuple(_clocks(clocks.get(phase)) for phase in _PHASES)
        made.append((what["step"], name, _tflops(seen), _gain(seen.get("gain")), _share(seen["of_cublas"]), _share(seen["of_ceiling"]),
                     *phases, what["idea"]))
    for name, idea in (("cublas", "torch.matmul"), ("wgmma", "wgmma alone, operands resident in shared memory")):
        if name in found["results"]:
            seen = found["results"][name]
            made.append(("", name, _tflops(seen), "", _share(seen["of_cublas"]), _share(seen["of_ceiling"]), *[""] * len(_PHASES), idea))
    return made


def _tflops(seen: Mapping[str, Any]) -> str:
    """The median of the rounds, with their 10th and 90th percentiles."""
    slow, fast = (seen["tflops"] * seen["us"] / seen[which] for which in ("p90", "p10"))
    digits = 2 if seen["tflops"] < 10 else 1 if seen["tflops"] < 100 else 0
    return f"{seen['tflops']:.{digits}f} ({slow:.{digits}f}-{fast:.{digits}f})"


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return ""
    return f"x{gain['ratio']:.3f}" + (f" ({gain['p10']:.3f}-{gain['p90']:.3f})" if "p10" in gain else "")


def _share(ratio: Mapping[str, float]) -> str:
    return f"{100 * ratio['ratio']:.1f}"


def _clocks(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def heading(found: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """One line: what was measured, and where."""
    words = [f"{found['size']}^3, bf16"]
    if device:
        words.append(f"{device['name']}, {device['multiprocessors']} SMs, driver {device['driver']}")
    if found.get("regime"):
        words.append(f"{found['regime']} regime")
    if "mhz" in found:
        words.append(f"SM clock {found['mhz']:.0f} MHz (median), {found['watts']:.0f} W (mean)")
    return "; ".join(words)


def table(results: Mapping[str, Any]) -> str:
    """All sizes as text."""
    parts = []
    for found in results["sizes"]:
        cells = [COLUMNS, *rows(found)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS) - 1)]
        parts.append(heading(found, results.get("device", {})))
        for row in cells:
            padded = [row[i].rjust(width) if i in _RIGHT else row[i].ljust(width) for i, width in enumerate(widths)]
            parts.append("  ".join([*padded, row[-1]]).rstrip())
        parts.append("")
    return "\n".join(parts)


def markdown(results: Mapping[str, Any]) -> str:
    """All sizes as the generated part of a page."""
    parts = [f"Measured {results['date']} by `{results['command']}`.", ""]
    for found in results["sizes"]:
        parts += [f"**{heading(found, results.get('device', {}))}**", "", "| " + " | ".join(COLUMNS) + " |",
                  "|" + "|".join("---:" if i in _RIGHT else "---" for i in range(len(COLUMNS))) + "|"]
        parts += ["| " + " | ".join(row) + " |" for row in rows(found)]
        parts.append("")
    return "\n".join(parts)


def fill(page: Path, results: Mapping[str, Any]) -> None:
    """Replace the text between the page's two marks by the measured tables."""
    try:
        text = read_text(page)
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"cannot read {page}: {getattr(error, 'strerror', None) or error}") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ReportError(f"{page}: the tables go between one line `{BEGIN}` and one line `{END}`: the page must have both, in this order")
    before, after = text[:text.index(BEGIN)], text[text.index(END):]
    write_whole(page, f"{before}{BEGIN}\n{markdown(results)}\n{after}".encode())


def plot(path: Path, results: Mapping[str, Any]) -> None:
    """Draw TFLOP/s by step: one panel per size, cuBLAS and wgmma alone as lines. The suffix of `path` sets the format."""
    try:
        import matplotlib as mpl  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ReportError(f"--plot {path}: drawing needs matplotlib (`pip install 'ptxkit[plot]'`)") from None
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # pyright: ignore[reportMissingImports]

    measured = [found for found in results["sizes"] if found["results"]]
    if not measured:
        raise ReportError(f"--plot {path}: nothing was measured")
    figure, axes = plt.subplots(1, len(measured), figsize=(7.5 * len(measured), 6), squeeze=False, constrained_layout=True)
    for found, axis in zip(measured, axes[0], strict=True):
        _panel(axis, found)
    device = results.get("device", {}).get("name", "")
    figure.suptitle(f"D = A B^T in bf16, from CUDA cores to the fastest kernel{f', {device}' if device else ''}")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _panel(axis: Any, found: Mapping[str, Any]) -> None:
    names: Sequence[str] = [name for name in NAMES if name in found["results"]]
    seen = [found["results"][name] for name in names]
    values = [one["tflops"] for one in seen]
    errors = [[max(0.0, value - value * one["us"] / one["p90"]) for value, one in zip(values, seen, strict=True)],
              [max(0.0, value * one["us"] / one["p10"] - value) for value, one in zip(values, seen, strict=True)]]
    places = list(range(len(names)))[::-1]
    axis.barh(places, values, xerr=errors, color=["#76b900" if name == "ours" else "#5b6b7b" for name in names], capsize=2)
    for place, value in zip(places, values, strict=True):
        axis.text(value, place + 0.42, f" {value:.3g}", va="top", fontsize=8)
    for name, colour in (("cublas", "#c98b2b"), ("wgmma", "#b04a5a")):
        if name in found["results"]:
            value = found["results"][name]["tflops"]
            axis.axvline(value, color=colour, linestyle="--", linewidth=1, label=f"{name} {value:.0f}")
    axis.set_yticks(places, [f"{described(name)['step']} {name}".strip() for name in names])
    axis.set_xlabel("TFLOP/s")
    axis.set_title(f"{found['size']}$^3$, {found['regime']}")
    axis.legend(loc="upper right")
