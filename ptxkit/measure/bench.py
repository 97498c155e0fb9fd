"""`kernel.bench(...)`: a kernel timed beside other ways to do the same, as the products of the package are: docs/tune.md."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import chart
from .asked import Arguments, Contestant, Device, Given, Grid, Regime
from .benchmark import BenchError, Benchmark, Options, line
from .contest import NotImplementedHere, contestants, prepared, sampled, times_of
from .device import arguments_of, device_of, sets_of
from .figures import row_ratios
from .files import write_json
from .options import check_options
from .proved import Proof
from .regimes import Captured, Entry, capture

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

SCHEMA = 1
PATIENCE_S = 45.0
"""Longer than any launch that is worth timing takes."""


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


__all__ = ["BenchError", "Benchmark", "Contestant", "Options", "bench", "line"]
