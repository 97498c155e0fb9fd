"""A run: each problem in each regime, one row a measurement, kept as soon as it is there."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxkit.errors import PtxkitError
from ptxkit.measure.contest import prepared, sampled, times_of
from ptxkit.measure.figures import row_ratios
from ptxkit.measure.files import write_json
from ptxkit.measure.power import Reader
from ptxkit.measure.regimes import REGIMES, Captured, Regime, best_of, measure
from ptxkit.measure.timer import TorchTimer
from ptxkit.measure.watch import Step, alive
from ptxkit.runtime import driver

from .. import models
from . import host, operands
from .baselines import NO_PEERS, Make, NotImplementedHere, baselines, reads, wgmma
from .figures import summary, worst
from .rows import contestants, each, header
from .shapes import Problem

SCHEMA = 2
READ_BYTES = 8 << 30
Job = tuple[str, Problem, tuple[str, ...]]
"""(regime, problem, baselines)."""


class BenchError(PtxkitError, RuntimeError):
    """A machine that nothing can be measured on."""


def device(torch: Any) -> dict[str, Any]:
    """The card and the libraries, for the record."""
    this = driver.device(driver.current_device())
    return {"name": this.name, "multiprocessors": this.multiprocessors, "l2_bytes": this.l2_bytes,
            "driver": ".".join(map(str, driver.driver_version())), "torch": torch.__version__, "cuda": torch.version.cuda}


def library() -> Any:
    """torch, which makes the data and captures the graphs."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise BenchError("the bench makes its data and its graphs with torch: `pip install 'ptxkit[torch]'`") from None
    return torch


def reader(torch: Any) -> Reader:
    """The sensors of the current device."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(getattr(properties, "uuid", ""))
    return Reader(torch.cuda.current_device(), f"GPU-{uuid}" if uuid and not uuid.startswith("GPU-") else uuid)


def row(torch: Any, problem: Problem, regime: Regime, makers: Mapping[str, Make], rounds: int, sensors: Reader, seed: int,
        step: Step) -> dict[str, Any]:
    """One measurement. A baseline that cannot run, or whose D is wrong, is named under "left_out" with the reason."""
    left_out: dict[str, str] = {}
    count = operands.sets_for(problem.bytes, regime.cold)
    why = step.begin(f"{regime.name} {problem} data")
    if why is not None:
        left_out["data"], makers = why, {}
    sets = [] if why else operands.make(torch, problem, count)
    graphs, others = prepared(makers, lambda make: _prepared(torch, problem, regime, make, sets), lambda: alive(torch),
                              lambda name: step.begin(f"{regime.name} {problem} {name}"))
    left_out |= others
    begin = time.perf_counter()
    why = step.begin(f"{regime.name} {problem} all in turn")
    if why is not None:
        left_out["all"] = why
    timed, sampler = sampled(TorchTimer(torch), [] if why else graphs, regime, rounds, sensors, seed)
    found: dict[str, Any] = {"shape": str(problem), **asdict(problem), "out": problem.out,
                             "bytes": problem.bytes, "weight_bytes": problem.weight_bytes, "regime": regime.name,
                             "sets": len(sets), "rounds": rounds, "seconds": round(time.perf_counter() - begin, 3), **sampler.within()}
    if names := models.names_of(problem.n, problem.k):
        found["layers"] = list(names)
    found["contestants"] = contestants(problem, timed, lambda one: {
        "launches": one.captured.launches, **one.captured.entry.detail, **(sampler.within(one.spans) if not regime.pause else {})})
    found["ratios"] = row_ratios(times_of(timed), "ours", NO_PEERS)
    if left_out:
        found["left_out"] = left_out
    return found


def _prepared(torch: Any, problem: Problem, regime: Regime, make: Make, sets: Sequence[operands.Operands]) -> Captured:
    """The best entry of one baseline, its D checked."""
    sets[0].d.fill_(math.nan)
    best = best_of(TorchTimer(torch), make(torch, problem, sets), regime)
    if not best.entry.ceiling:
        sentence = operands.fault(torch, sets[0].d, best.entry.launches[0], lambda returned: operands.wrong(torch, problem, sets[0]))
        if sentence:
            raise NotImplementedHere(f"wrong: {sentence}")
    return best


def ceilings(torch: Any, sensors: Reader) -> dict[str, dict[str, Any]]:
    """What the card can do in this run: wgmma alone in a burst and under sustained load, and a streaming read of 8 GiB."""
    found: dict[str, dict[str, Any]] = {}
    timer = TorchTimer(torch)
    for dtype in ("bf16", "e4m3"):
        problem = Problem(8192, 8192, 8192, dtype)
        for regime in (REGIMES["burst"], REGIMES["sustained"]):
            (timed,), sampler = sampled(timer, [best_of(timer, wgmma(torch, problem, ()), regime)], regime, regime.rounds, sensors)
            found[f"wgmma {dtype} {regime.name}"] = {"value": 1e-6 * problem.flops / timed.median, "unit": "TFLOP/s",
                                                     **(sampler.within(timed.spans) if not regime.pause else {})}
    timed, = measure(timer, [best_of(timer, reads(torch, READ_BYTES, 1), REGIMES["burst"])], REGIMES["burst"], 10)
    found["read 8 GiB"] = {"value": 1e-3 * READ_BYTES / timed.median, "unit": "GB/s", **timed.captured.entry.detail}
    torch.cuda.empty_cache()
    return found


def told(ceilings: Mapping[str, Mapping[str, Any]]) -> str:
    """The ceilings as text."""
    return "ceilings: " + ", ".join(f"{name} {seen['value']:.0f} {seen['unit']}" for name, seen in ceilings.items())


def run(jobs: Sequence[Job], *, rounds: int | None = None, seconds: float | None = None,
        path: Path | None = None, with_host: bool = False, with_ceilings: bool = False, step: Step | None = None,
        command: str = "", again: int = 0, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Measures (regime, problem, baselines) one after another until all are done or `seconds` have passed.

    After each, the results so far are written to `path` and a line of text is given to `say`. Without a GPU only the host is measured.
    A run that has been restarted goes on with what is in `path`. The `again` worst rows are measured once more at the end; the later
    measurement counts.
    """
    step = step or Step()
    begin = time.perf_counter()
    if step.restarted and path is not None and path.is_file():
        results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    else:
        results = {"schema": SCHEMA, **header(command=command, python=platform.python_version())}
        if with_host:
            step.begin("host")
            results["host"] = host.imports()
            step.finish("host")
            say("host: " + ", ".join(f"{what} {value:.1f}" for what, value in results["host"].items()))
    if not driver.available():
        if with_host and "stubbed" not in results:
            results["stubbed"] = host.stubbed()
            say("calls with a driver that does nothing: " + ", ".join(f"{what} {value:.2f}" for what, value in results["stubbed"].items()))
        return results
    earlier = float(results.get("seconds", 0.0))
    torch = library()
    results["device"] = device(torch)
    sensors = reader(torch)
    if with_host and "launch" not in results and step.begin("launches on the host") is None:
        results["launch"] = host.calls(torch)
        say("launch: " + ", ".join(f"{what} {value:.1f}" for what, value in results["launch"].items()))
    if with_ceilings and "ceilings" not in results and step.begin("ceilings") is None:
        results["ceilings"] = ceilings(torch, sensors)
        say(told(results["ceilings"]))

    def cut(done: int, job: Job) -> dict[str, Any] | None:
        results["seconds"] = earlier + time.perf_counter() - begin
        late = seconds is not None and results["seconds"] > seconds
        return {"after": done, "of": len(jobs), "seconds": seconds} if late else None

    def measured(done: int, job: Job) -> dict[str, Any]:
        regime_name, problem, names = job
        regime = REGIMES[regime_name]
        return row(torch, problem, regime, baselines(names), rounds or regime.rounds, sensors, done, step)

    each(torch, results, jobs, measured, line, path=path, say=say, cut=cut, summary=summary)
    for place in worst(results["rows"], again):
        if not step.finished(f"again {place}"):
            before = results["rows"][place]
            results["rows"][place] = {**measured(place, jobs[place]), "before": before["ratios"]}
            say(f"again: {line(results['rows'][place])}")
            step.finish(f"again {place}")
            torch.cuda.empty_cache()
    results["summary"] = summary(results["rows"])
    if path is not None:
        write_json(path, results)
    return results


def line(found: Mapping[str, Any]) -> str:
    """A row as text."""
    text = f"{found['regime']:<9} {found['shape']:<26}"
    for name, seen in found["contestants"].items():
        text += f" {name} {seen['us']:.2f} us {seen['tflops']:.1f} TF {seen['gbs']:.0f} GB/s"
        text += f" ({found['ratios'][name]['ratio']:.3f})," if name in found["ratios"] else ","
    text = text.rstrip(",")
    if "mhz" in found:
        text += f"  {found['mhz']:.0f} MHz {found['watts']:.0f} W"
    if "layers" in found:
        text += f"  [{'; '.join(found['layers'])}]"
    for name, why in found.get("left_out", {}).items():
        text += f"\n{'':10}{name}: {why}"
    return text


def closing(results: Mapping[str, Any]) -> str:
    """The geometric means as text."""
    lines = []
    for group, entries in results.get("summary", {}).items():
        for name, seen in entries.items():
            lines.append(f"{group}: {seen['geometric_mean']:.3f} x {name} over {seen['shapes']} shapes, 5th percentile "
                         f"{seen['percentile_5']:.3f}, least {seen['least']:.3f} at {seen['least_shape']}, "
                         f"{seen['below_0.95']} below 0.95")
    if "cut" in results:
        lines.append(f"cut after {results['cut']['after']} of {results['cut']['of']} measurements: --seconds {results['cut']['seconds']:g}")
    return "\n".join(lines)


__all__ = ["BenchError", "ceilings", "closing", "device", "library", "line", "reader", "row", "run", "told"]
