"""The process that uses the GPU: `python -m ptxkit.gemm.ladder.worker TASK ...`. It writes a line of JSON for each task and each result.

A step that hangs or crashes affects only this process: `supervise` kills it and continues without that step.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptxkit.measure import regimes
from ptxkit.measure.figures import paired, spread
from ptxkit.measure.power import Sampler
from ptxkit.measure.regimes import Entry, sets_that_are_cold
from ptxkit.measure.timer import TorchTimer
from ptxkit.timeline.launched import Buffer

from ..tools.bench import operands
from ..tools.bench.baselines import baselines
from ..tools.bench.run import device, reader
from ..tools.bench.shapes import Problem
from ..tools.reference import tolerance
from .parts import of_tiles
from .rung import Rung
from .rungs import BY_NAME, OURS

PEERS = ("cublas", "wgmma")
SLOW_US = 20_000.0      # steps that take longer are timed only a few times
SLOW_ROUNDS = 3
FLOPS_PER_CLOCK = 4096
"""bf16 operations per clock of an sm_90 SM: m64n256k16 takes 128 clocks."""
CHECKED = (512, 768, 320)
"""A product of a few tiles that every step can compute. It is checked in addition to the measured one."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ptxkit.gemm.ladder.worker")
    parser.add_argument("task", choices=("verify", "measure", "profile"))
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--names", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    import torch  # pyright: ignore[reportMissingImports]

    names = options.names.split(",")
    if options.task == "verify":
        verify(torch, names, options.size)
    elif options.task == "measure":
        measure(torch, names, options.size, options.rounds)
    else:
        profile(torch, names, options.size)
    return 0


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def launches(torch: Any, name: str, sets: Sequence[operands.Operands]) -> list[Any]:
    """A launch of the step for each operand set."""
    if name == OURS:
        from ptxkit import gemm

        return [functools.partial(gemm.hgemm, data.a, data.b, data.d) for data in sets]
    rung = BY_NAME[name]
    (m, k), n = sets[0].a.shape, sets[0].b.shape[1]
    rung.require(m, n, k)
    compiled = rung.kernel.compile()
    return [functools.partial(compiled, *_launch(torch, rung, compiled, data, m, n, k)) for data in sets]


def _launch(torch: Any, rung: Rung, compiled: Any, data: operands.Operands, m: int, n: int, k: int) -> tuple[Any, ...]:
    """The grid and the arguments of a launch."""
    order = None if rung.order is None else torch.tensor(rung.order(m, n), dtype=torch.int32, device="cuda")
    return rung.grid(m, n, compiled.max_clusters() if rung.persistent else 0), *rung.arguments(data.a, data.b.T, data.d, m, n, k, order)


def verify(torch: Any, names: Sequence[str], size: int) -> None:
    """Compare every element of D with a float64 product, for the checked and the measured shape."""
    for shape in (CHECKED, (size, size, size)):
        (data,) = operands.make(torch, Problem(*shape), 1)
        for name in names:
            say(begin=name, shape=shape)
            data.d.fill_(float("nan"))
            (launch,) = launches(torch, name, [data])
            launch()
            torch.cuda.synchronize()
            say(name=name, shape=shape, wrong=wrong(torch, data))
        del data


def wrong(torch: Any, data: operands.Operands, rows: int = 1024) -> str | None:
    """The reason if the error of D exceeds the bound of accumulation in float32 and one rounding, else None."""
    b = data.b.double()
    worst = 0.0
    for first in range(0, data.a.shape[0], rows):
        a, actual = data.a[first:first + rows].double(), data.d[first:first + rows].double()
        if not bool(torch.isfinite(actual).all()):
            return f"{int((~torch.isfinite(actual)).sum())} elements of rows {first} to {first + rows} are not finite or were not written"
        exact = a @ b
        allowed = tolerance(exact, a.abs() @ b.abs(), a.shape[1], "bf16")
        worst = max(worst, float(((actual - exact).abs() / allowed).max()))
    return None if worst <= 1 else f"an error is {worst:.3g} times what float32 accumulation and rounding allow"


def measure(torch: Any, names: Sequence[str], size: int, rounds: int) -> None:
    """Measure all steps and the peers, captured in graphs, in interleaved rounds of the burst regime. Slow steps run separately and fewer
    times."""
    problem = Problem(size, size, size)
    burst = regimes.REGIMES["burst"]
    description, timer = device(torch), TorchTimer(torch)
    sets = operands.make(torch, problem, sets_that_are_cold(problem.bytes, description["l2_bytes"]))
    captured = []
    for name in names:
        say(begin=name)
        captured.append(regimes.capture(timer, Entry(name, launches(torch, name, sets)), burst))
    for name, make in baselines(PEERS).items():
        say(begin=name)
        captured += [regimes.capture(timer, entry, burst) for entry in make(torch, problem, sets)]
    fast = [one for one in captured if one.estimate_us < SLOW_US]
    slow = [one for one in captured if one.estimate_us >= SLOW_US]
    say(begin="rounds")
    with Sampler(reader(torch)) as sampler:
        timed = regimes.measure(timer, fast, burst, rounds)
    power = sampler.within()
    say(begin="slow rounds")
    timed += regimes.measure(timer, slow, replace(burst, pause=0.1), SLOW_ROUNDS)
    times = {one.captured.entry.name: one.us for one in timed}
    found = {name: {**spread(us), "rounds": len(us), "tflops": 1e-6 * problem.flops / spread(us)["us"],
                    "of_cublas": _ratio(us, times["cublas"]), "of_ceiling": _ratio(us, times["wgmma"])} for name, us in times.items()}
    for previous, name in itertools.pairwise(names):
        found[name]["gain"] = {**_ratio(times[name], times[previous]), "over": previous}
    say(measured={"size": size, "regime": burst.name, "sets": len(sets), **power, "results": found}, device=description)


def _ratio(us: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """The ratio of two times: per round if both were timed in the same rounds, else of the medians and without a spread."""
    if len(us) == len(other):
        return paired(us, other)
    return {"ratio": spread(other)["us"] / spread(us)["us"]}


def profile(torch: Any, names: Sequence[str], size: int) -> None:
    """Clocks of load, mma and store per tile, from a launch with marks and a warm L2. The launch before it says how many marks."""
    (data,) = operands.make(torch, Problem(size, size, size), 1)
    for name in names:
        if name == OURS:
            continue
        say(begin=name)
        rung = BY_NAME[name]
        compiled = rung.kernel.compile(marks=True)
        grid, *arguments = _launch(torch, rung, compiled, data, size, size, size)
        events = 1
        for _ in range(2):
            buffer = Buffer(compiled, grid, events)
            compiled(grid, *arguments, *buffer.arguments.values())
            torch.cuda.synchronize()
            events = max(each.count for each in buffer.slices())
        say(name=name, clocks=clocks(rung, buffer, size))


def clocks(rung: Rung, buffer: Buffer, k: int) -> dict[str, float]:
    """The mean clocks of each phase of a tile, and the clocks of its products at the full rate of the tensor cores."""
    rows, columns, _ = rung.tile
    warps = ((each.cta, buffer.named.roles[each.role], functools.partial(each.clocks_of, buffer.named)) for each in buffer.slices())
    return {**of_tiles(warps), "at_rate": 2 * rows * columns * k / FLOPS_PER_CLOCK}


if __name__ == "__main__":
    sys.exit(main())
