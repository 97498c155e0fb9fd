"""What was measured: spaces of configurations, tuned kernels, benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .parts import code, folded, framed, said, table, title

if TYPE_CHECKING:
    from ..measure.benchmark import Benchmark
    from ..tuning.space import Space
    from ..tuning.tuned import Tuned

SHOWN = 40
"""Points of a space, and times, that are shown."""


def space(made: Space, words: Sequence[str]) -> str:
    """The values of each parameter, the conditions, and the points that remain (`words`)."""
    asked, others = made.points()
    rows = [(name, ", ".join(getattr(value, "__name__", None) or repr(value) for value in given)) for name, given in made.values.items()]
    conditions = "".join(f"<p>only {code(sentence)}</p>" for _, _, sentence in made.conditions)
    more = f", and {len(words) - SHOWN:,} more" if len(words) > SHOWN else ""
    left_out = f", {len(others)} left out" if others else ""
    return framed(title(f"{len(asked)} points{left_out}"), table(("parameter", "values"), rows) if rows else "", conditions,
                  folded("the points", table(("",), [(each,) for each in words[:SHOWN]], mono=True) + (said(more) if more else "")))


def tuned(made: Tuned, amounts: Sequence[tuple[str, str, float]], reasons: Sequence[str]) -> str:
    """The fastest point, the others in their order (`amounts`: point, time, part of the longest), and why some were not measured."""
    head, *rest = str(made).splitlines()
    name, _, found = head.partition(": ")
    best = " ".join(f"{key}={getattr(value, '__name__', None) or repr(value)}" for key, value in made.config.items()) or "the only point"
    rows = [(point, time, "<- chosen" if point == best else "") for point, time, _ in amounts[:SHOWN]]
    more = [said(f"and {len(amounts) - SHOWN:,} more")] if len(amounts) > SHOWN else []
    return framed(title(name), f"<p>{code(found)}</p>", *(said(line) for line in rest[:1]),
                  *([table(("point", "time", ""), rows, numbers=(1,)), *more] if rows else []),
                  *([folded("not measured", "".join(said(line.strip()) for line in reasons), open=True)] if reasons else []))


def benchmark(made: Benchmark) -> str:
    """A row for each contestant in each regime."""
    device: Mapping[str, Any] = made.results["device"]
    return framed(title(f"{made.results['kernel']} on {device['name']}"), *(part for row in made.rows for part in _row(row, made.unit)))


def _row(row: Mapping[str, Any], unit: str) -> Iterator[str]:
    sensors = f", {row['mhz']:.0f} MHz, {row['watts']:.0f} W" if "mhz" in row else ""
    yield said(f"{row['shape']}, {row['regime']}, {row['rounds']} round{'s' * (row['rounds'] != 1)}{sensors}")
    rates = [(rate, words) for rate, words in (("tflops", "TFLOP/s"), ("gbs", "GB/s"))
             if any(rate in seen for seen in row["contestants"].values())]
    rows = []
    for name, seen in row["contestants"].items():
        time = f"{seen['us']:.2f}" if unit == "us" else f"{seen['us']:,.0f}"
        ratio = f"{row['ratios'][name]['ratio']:.3f}" if name in row["ratios"] else "1"
        rows.append((name, time, *(f"{seen[rate]:.1f}" if rate in seen else "" for rate, _ in rates), ratio))
    heads = ("contestant", unit, *(words for _, words in rates), "times as long")
    yield table(heads, rows, numbers=range(1, len(heads)))
    for name, why in row.get("left_out", {}).items():
        yield f'<div class="f review"><p><b>left out</b> {code(name)}: {code(why)}</p></div>'
