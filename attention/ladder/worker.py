"""The ladder on a card, in a process that is watched: steps are compared with float64, timed in turn, and read by their marks."""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ptxkit.gemm.tools.bench.run import device, library, reader
from ptxkit.measure.contest import contestants, prepared, sampled, times_of
from ptxkit.measure.figures import paired
from ptxkit.measure.files import write_json
from ptxkit.measure.regimes import REGIMES, Captured, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import Launch, TorchTimer
from ptxkit.measure.watch import Step, alive
from ptxkit.runtime import driver
from ptxkit.runtime.launch import view
from ptxkit.timeline.launched import Buffer

from ..config.forward import ForwardConfig
from ..heuristic import heuristic
from ..kernels.forward import forward
from ..launch.grid import Grid
from ..problem.forward import Arrays, Options, Problem
from ..tools.bench import BACKENDS, MOST_SETS, ours, share_of_bound, torchs
from .clocks import of_tiles
from .report import table
from .rung import HEAD, KEYS, Rung
from .rungs import BY_NAME, NAMES, OURS

SLOW_US = 20_000.0          # steps that take longer are timed separately and a few times
SLOW_ROUNDS = 3
Launched = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
"""A kernel with marks, its grid, and its arguments without and with names."""


class Wrong(Exception):
    """A result beyond its bound."""


def worker(options: Mapping[str, Any], step: Step) -> int:
    """The masks, one after another. 0 when every step was right and measured."""
    torch = library()
    kept = Path(options["kept"])
    found: list[dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else []
    for mask in options["masks"]:
        if step.finished(mask):
            continue
        found.append(measured(torch, mask, options, step))
        kept.write_text(json.dumps(found), encoding="utf-8")
        step.finish(mask)
        torch.cuda.empty_cache()
        results = {"schema": 1, "date": time.strftime("%Y-%m-%d"), "command": options["command"], "device": device(torch), "masks": found}
        print(table({**results, "masks": found[-1:]}), flush=True)
        if options["json"]:
            write_json(Path(options["json"]), results)
    return int(not found or any(name in one["left_out"] for one in found for name in NAMES))


def measured(torch: Any, mask: str, options: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """All steps, the final kernel and torch's backends in interleaved rounds of the burst regime, and the clocks of a launch with marks."""
    causal, rows, heads = mask == "causal", options["length"], options["heads"]
    sets = _sets(torch, heads, rows)
    timer, burst, shares = TorchTimer(torch), REGIMES["burst"], dict[str, float]()

    def prepare(make: Callable[[], Entry]) -> Captured:
        entry = make()
        entry.launches[0]()
        alive(torch)
        shares[entry.name] = share_of_bound(torch, sets[0], entry.keeps[0](), causal, "bf16")
        step.touch()
        if not shares[entry.name] <= 1 and entry.name in NAMES:
            raise Wrong(f"an error is {shares[entry.name]:.3g} times its bound")
        return capture(timer, entry, burst)

    makers: dict[str, Callable[[], Entry]] = {name: partial(_rung, torch, rung, sets, causal) for name, rung in BY_NAME.items()}
    makers |= {OURS: partial(ours, torch, sets, causal), **{name: partial(torchs, torch, name, sets, causal) for name in BACKENDS}}
    graphs, left_out = prepared(makers, prepare, lambda: alive(torch), lambda name: step.begin(f"{mask} {name}"))
    step.begin(f"{mask} all in turn")
    fast, slow = ([one for one in graphs if (one.estimate_us >= SLOW_US) == late] for late in (False, True))
    timed, sampler = sampled(timer, fast, burst, options["rounds"], reader(torch))
    step.touch()
    timed += measure(timer, slow, replace(burst, pause=0.1), SLOW_ROUNDS)
    operations = 4 * heads * rows * rows * HEAD / (2 if causal else 1)
    results = contestants(timed, lambda one: {"tflops": 1e-6 * operations / one.median, "share_of_bound": shares[one.captured.entry.name]})
    compare(results, times_of(timed))
    for name in (name for name in NAMES if name in results):
        why = step.begin(f"{mask} marks of {name}")
        results[name]["clocks"] = {"left_out": why} if why else clocks(torch, name, sets[0], causal)
    return {"mask": mask, "length": rows, "heads": heads, "head": HEAD, "regime": burst.name, "rounds": options["rounds"],
            "sets": len(sets), **sampler.within(), "results": results, "left_out": left_out}


def compare(results: dict[str, dict[str, Any]], times: Mapping[str, Sequence[float]]) -> None:
    """Add the speed of each over the final kernel's and torch's backends', and of each step over the step before."""
    for name, us in times.items():
        results[name]["of"] = {other: ratio(us, times[other]) for other in (OURS, *BACKENDS) if other in times and other != name}
    for before, name in itertools.pairwise(name for name in NAMES if name in times):
        results[name]["gain"] = {**ratio(times[name], times[before]), "over": before}


def ratio(us: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """How many times faster the first is: by rounds if both were timed in the same ones, else by medians and without a spread."""
    return paired(us, other) if len(us) == len(other) else {"ratio": statistics.median(other) / statistics.median(us)}


def _sets(torch: Any, heads: int, rows: int) -> list[Any]:
    """Sets of (q, k, v) as [1, heads, rows, HEAD]: together more bytes than the L2 holds several times."""
    generator = torch.Generator("cuda").manual_seed(0)
    count = min(MOST_SETS, sets_that_are_cold(4 * heads * rows * HEAD * 2, driver.device(driver.current_device()).l2_bytes))
    return [tuple(torch.randn(1, heads, rows, HEAD, generator=generator, device="cuda").to(torch.bfloat16) for _ in range(3))
            for _ in range(count)]


def _rung(torch: Any, rung: Rung, sets: Sequence[Any], causal: bool) -> Entry:
    compiled = rung.kernel.compile(HEAD=HEAD, BN=KEYS, causal=causal)
    outs = [torch.full_like(q, math.nan) for q, _, _ in sets]
    launches: list[Launch] = []
    for three, out in zip(sets, outs, strict=True):
        arrays = [x[0] for x in (*three, out)]
        heads, rows, _ = arrays[0].shape
        launches.append(functools.partial(compiled, rung.grid(heads, rows), *rung.arguments(*arrays)))
    return Entry(rung.name, launches, keeps=(lambda: outs[0],))


def clocks(torch: Any, name: str, three: Any, causal: bool) -> dict[str, float]:
    """The mean clocks of each phase of a tile, from a launch with marks and a warm L2. The launch before it says how many marks."""
    out = torch.empty_like(three[0])
    arrays = (*three, out)
    compiled, grid, arguments, named = _marked_final(arrays, causal) if name == OURS else _marked(BY_NAME[name], arrays, causal)
    events = 1
    for _ in range(2):
        buffer = Buffer(compiled, grid, events)
        compiled(grid, *arguments, **named, **buffer.arguments)
        torch.cuda.synchronize()
        events = max(each.count for each in buffer.slices())
    return of_tiles((each.cta, buffer.named.roles[each.role], functools.partial(each.clocks_of, buffer.named)) for each in buffer.slices())


def _marked(rung: Rung, arrays: Sequence[Any], causal: bool) -> Launched:
    heads, rows = arrays[0].shape[1:3]
    compiled = rung.kernel.compile(marks=True, HEAD=HEAD, BN=KEYS, causal=causal)
    return compiled, rung.grid(heads, rows), rung.arguments(*(x[0] for x in arrays)), {}


def _marked_final(arrays: Sequence[Any], causal: bool) -> Launched:
    """The final kernel as `ptxkit.attention` launches it, with marks."""
    seen = Arrays(*(view(x, name) for x, name in zip(arrays, ("q", "k", "v", "out"), strict=True)))
    problem = Problem.of(seen, Options(causal))
    config: ForwardConfig = heuristic(problem)
    card = driver.device(driver.current_device())
    grid = Grid(problem, config, card.multiprocessors, card.l2_bytes)
    pointers = {"out": seen.out.pointer}                      # no log-sum-exp and no packed sequences: these are not read
    named = {**dict(zip("qkvo", arrays, strict=True)), **grid.arguments(lambda array: pointers.get(array, 0))}
    return forward.compile(marks=True, **config.parameters), grid.ctas, (), named


__all__ = ["clocks", "compare", "measured", "worker"]
