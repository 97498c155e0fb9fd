"""`kernel.bench(...)`: a kernel timed beside other ways to do the same, as the products of the package are: docs/tune.md."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..errors import PtxkitError
from . import chart
from .contest import NotImplementedHere, contestants, prepared, sampled, times_of
from .device import Arguments, Device, Given, Grid, Where, arguments_of, device_of, sets_of
from .figures import row_ratios
from .files import write_json
from .options import check_options
from .proved import Check, Proof
from .regimes import Captured, Entry, Regime, capture

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

SCHEMA = 1
PATIENCE_S = 45.0
"""Longer than any launch that is worth timing takes."""
Contestant = Callable[..., Any] | Mapping[str, Any]
"""A function of the launch's arguments, which works on the current stream of torch (without torch it is given `stream=`); or compile-time
parameters of the same kernel."""


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


def bench(kernel: Kernel[...], grid: Grid, args: Given, options: Options, config: Mapping[str, Any]) -> Benchmark:
    """Times a configuration of a kernel on copies of the arguments. Raises what a launch raises, and BenchError where it is wrong."""
    check_options(options, Options, BenchError)
    _check_files(options)
    first = arguments_of(kernel, args)
    device = device_of(options.get("device", "gpu"), first)
    regimes = [_regime(device, name) for name in _names(options.get("regimes"), device)]
    sets = sets_of(device, args, first, any(regime.cold for regime in regimes))
    against = options.get("against", {})
    if "kernel" in against:
        raise BenchError("against= has a contestant called \"kernel\", which is the kernel itself: give it another name")
    proof = Proof(kernel, device, first, options.get("check"), options.get("tolerance"))
    bench = _Bench(kernel, device, grid, sets, proof, options)
    results: dict[str, Any] = {"schema": SCHEMA, "date": time.strftime("%Y-%m-%d"), "unit": device.unit, "device": device.about(),
                               "kernel": kernel.name, "rows": []}
    found = Benchmark(results, device.unit)
    for seed, regime in enumerate(regimes):
        results["rows"].append(bench.row(regime, {"kernel": config, **against}, seed + options.get("seed", 0)))
        if "json" in options:
            _write("json", options["json"], functools.partial(write_json, results=results))
    if "plot" in options:
        _write("plot", options["plot"], found.plot)
    return found


def _check_files(options: Options) -> None:
    """Raise BenchError or PlotError for files that cannot be written, before anything is measured."""
    for word, example in (("json", "bench.json"), ("plot", "bench.svg")):
        given: Any = options.get(word)
        if word not in options:
            continue
        if not isinstance(given, str | os.PathLike):
            raise BenchError(f"{word}= is the path of a file to write, as {word}={example!r}, not {given!r}")
        path = Path(given)
        if path.is_dir() or not path.parent.is_dir():
            why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise BenchError(f"{word}={str(path)!r} cannot be written, because {why}: give the path of a file in one that there is")
    if "plot" in options:
        chart.check_ending(Path(options["plot"]))


def _write(word: str, path: str | Path, write: Callable[[Path], None]) -> None:
    try:
        write(Path(path))
    except OSError as error:
        raise BenchError(f"{word}={str(path)!r} cannot be written: {error.strerror}; give another path") from None


def _names(wish: str | Sequence[str] | None, device: Device) -> Sequence[str]:
    if wish is None:
        return (next(iter(device.regimes)),)
    return (wish,) if isinstance(wish, str) else wish


def _regime(device: Device, name: str) -> Regime:
    if name not in device.regimes:
        raise BenchError(f"regimes= has {name!r}: there are {', '.join(device.regimes)}")
    return device.regimes[name]


@dataclass(frozen=True)
class _Bench:
    """One kernel on one device."""

    kernel: Kernel[...]
    device: Device
    grid: Grid
    sets: list[Arguments]
    proof: Proof
    options: Options

    def row(self, regime: Regime, who: Mapping[str, Contestant], seed: int) -> dict[str, Any]:
        """One measurement. The kernel itself must run; a contestant that cannot, or that is wrong, is left out with the reason."""
        begin = time.perf_counter()
        own = self._prepared(regime, "kernel", who["kernel"])
        others = {name: functools.partial(self._prepared, regime, name, one) for name, one in who.items() if name != "kernel"}
        graphs, left_out = prepared(others, lambda make: make(), lambda: self.device.finish(PATIENCE_S))
        rounds = self.options.get("rounds") or regime.rounds
        timed, sampler = sampled(self.device.timer, [own, *graphs], regime, rounds, self.device.sensors, seed)
        given = {"flops": self.options.get("flops"), "bytes": self.options.get("bytes")}
        work = {what: float(value) for what, value in given.items() if value is not None}
        found: dict[str, Any] = {"shape": self.options.get("label", self.kernel.name), "regime": regime.name, **work,
                                 "sets": len(self.sets) if regime.cold else 1, "rounds": rounds, "checked": self.proof.check is not None,
                                 "seconds": round(time.perf_counter() - begin, 3), **sampler.within()}
        found["contestants"] = contestants(timed, lambda one: {
            **({"tflops": 1e-6 * work["flops"] / one.median} if "flops" in work else {}),
            **({"gbs": 1e-3 * work["bytes"] / one.median} if "bytes" in work else {}),
            "launches": one.captured.launches, **one.captured.entry.detail, **(sampler.within(one.spans) if not regime.pause else {})})
        found["ratios"] = row_ratios(times_of(timed), "kernel", ())
        return {**found, "left_out": left_out} if left_out else found

    def _prepared(self, regime: Regime, name: str, who: Contestant) -> Captured:
        """A contestant's graph, its result checked."""
        if isinstance(who, Mapping):
            launches = [self.device.launch(self.kernel, who, self.grid, arguments) for arguments in self.sets]
            detail = {"config": {key: str(getattr(value, "__name__", value)) for key, value in self.kernel.config(who).items()}}
        else:
            launches = [self.device.foreign(who, arguments) for arguments in self.sets]
            detail = {}
        self.proof.prepare(self.sets[0])
        with self.device.timer.aside():
            launches[0]()
        self.device.finish(PATIENCE_S)
        if (sentence := self.proof.fault(self.sets[0])) is not None:
            raise (BenchError if name == "kernel" else NotImplementedHere)(f"wrong: {sentence}")
        return capture(self.device.timer, Entry(name, launches, detail=detail), regime)


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


__all__ = ["BenchError", "Benchmark", "Contestant", "Options", "bench", "line"]
