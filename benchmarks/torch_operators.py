"""What the operators of torch cost: `python benchmarks/torch_operators.py [--shapes models] [-o F.json]`, on a Hopper GPU.

`host`: microseconds of the processor for a call on 128 x 128 x 64, the least mean of several turns in which all entries take turns; the
queue of the GPU is emptied between turns and never full. "over gemm.gemm" is what an entry takes more than `gemm.gemm(a, b, out)`.

`linear`: GPU time of `ptxkit.torch.Linear` beside `torch.nn.Linear`, forward and backward in one CUDA graph, over the bf16 shapes of a
preset. A graph goes through operand sets that exceed the L2 together. Both graphs are replayed in turn, and the median of the rounds'
ratios counts: more than 1 is in our favour. Their host times are in microseconds of an eager pass of one set.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ptxkit import gemm
from ptxkit.gemm.tools.bench.shapes import PRESETS
from ptxkit.runtime import driver
from ptxkit.torch import Linear

ops = torch.ops.ptxkit
CALLS, TURNS, ROUNDS = 200, 30, 15
SETS_BYTES = 256 << 20


def turns(entries: dict[str, Callable[[], Any]], calls: int = CALLS) -> dict[str, float]:
    """Microseconds of a call of each, on the host."""
    least = dict.fromkeys(entries, math.inf)
    for _ in range(TURNS):
        for name, call in entries.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            least[name] = min(least[name], (time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return least


def host() -> dict[str, float]:
    """The host's time of a call, in every way to call it."""
    made = {"dtype": torch.bfloat16, "device": "cuda"}
    a, w, out, bias = torch.randn(128, 64, **made), torch.randn(128, 64, **made), torch.empty(128, 128, **made), torch.randn(128, **made)
    b, ours, theirs = w.T, Linear(64, 128, **made), torch.nn.Linear(64, 128, **made)
    plain, into, new = ops.gemm.plain_out, ops.gemm.out, ops.gemm.default
    with torch.no_grad():
        found = turns({"gemm.gemm(a, b, out)": lambda: gemm.gemm(a, b, out), "ops.gemm.out(a, b, out=out)": lambda: into(a, b, out=out),
                       "ops.gemm.plain_out(a, b, out=out)": lambda: plain(a, b, out=out),
                       "ops.gemm(a, b, out=out)": lambda: ops.gemm(a, b, out=out),
                       "torch.mm(a, b, out=out)": lambda: torch.mm(a, b, out=out),
                       "gemm.gemm(a, b, out, bias=bias)": lambda: gemm.gemm(a, b, out, bias=bias),
                       "ops.gemm.out(a, b, bias, out=out)": lambda: into(a, b, bias, out=out), "gemm.gemm(a, b)": lambda: gemm.gemm(a, b),
                       "ops.gemm.default(a, b)": lambda: new(a, b), "torch.mm(a, b)": lambda: torch.mm(a, b),
                       "ptxkit.torch.Linear": lambda: ours(a), "torch.nn.Linear": lambda: theirs(a)})
    x, gradient = a.clone().requires_grad_(), torch.randn(128, 128, **made)
    bare, barely = Linear(64, 128, bias=False, **made), torch.nn.Linear(64, 128, bias=False, **made)
    found |= turns({"ptxkit.torch.Linear, forward and backward": lambda: step(ours, x, gradient),
                    "torch.nn.Linear, forward and backward": lambda: step(theirs, x, gradient),
                    "ptxkit.torch.Linear without bias, forward and backward": lambda: step(bare, x, gradient),
                    "torch.nn.Linear without bias, forward and backward": lambda: step(barely, x, gradient)}, CALLS // 2)
    over = {f"{name} over gemm.gemm": found[f"{name}(a, b, out=out)"] - found["gemm.gemm(a, b, out)"]
            for name in ("ops.gemm.plain_out", "ops.gemm.out")}
    return {**found, **over}


def step(layer: Any, x: Any, gradient: Any) -> Any:
    """A forward and a backward pass; the gradients are new memory."""
    return torch.autograd.grad(layer(x), (x, *layer.parameters()), gradient)


def replayed(layers: list[Any], xs: list[Any], gradients: list[Any]) -> Any:
    """A graph of a pass of each set."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for each in zip(layers, xs, gradients, strict=True):
            step(*each)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in zip(layers, xs, gradients, strict=True):
            step(*each)
    return graph


def linear(m: int, n: int, k: int) -> dict[str, float]:
    """One shape: medians in microseconds of a pass, and the median ratio."""
    made = {"dtype": torch.bfloat16, "device": "cuda"}
    sets = max(1, min(32, math.ceil(SETS_BYTES / (2 * (2 * m * k + 2 * n * k + 2 * m * n)))))
    theirs = [torch.nn.Linear(k, n, bias=False, **made) for _ in range(sets)]
    ours = [Linear(k, n, bias=False, **made) for _ in range(sets)]
    for one, other in zip(ours, theirs, strict=True):
        one.weight = other.weight
    xs = [torch.randn(m, k, **made).requires_grad_() for _ in range(sets)]
    gradients = [torch.randn(m, n, **made) for _ in range(sets)]
    for one, other in zip(step(ours[0], xs[0], gradients[0]), step(theirs[0], xs[0], gradients[0]), strict=True):
        off = (one.float() - other.float()).norm() / other.float().norm()
        assert off < 0.01, (m, n, k, float(off))
    entries = {"ours": replayed(ours, xs, gradients), "theirs": replayed(theirs, xs, gradients)}
    replays = max(1, min(50, round(2e3 / max(1.0, sets * 6 * m * n * k / 6e8))))     # about 2 ms an entry
    times: dict[str, list[float]] = {name: [] for name in entries}
    for turn in range(ROUNDS + 2):
        for name, graph in entries.items() if turn % 2 else reversed(entries.items()):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            if turn > 1:
                times[name].append(1e3 * begin.elapsed_time(end) / replays / sets)
    eager = turns({"ours": lambda: step(ours[0], xs[0], gradients[0]), "theirs": lambda: step(theirs[0], xs[0], gradients[0])}, 5)
    return {"m": m, "n": n, "k": k, "ours_us": statistics.median(times["ours"]), "theirs_us": statistics.median(times["theirs"]),
            "ratio": statistics.median([b / a for a, b in zip(*times.values(), strict=True)]),
            "ours_host_us": eager["ours"], "theirs_host_us": eager["theirs"]}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="", help="a preset whose bf16 shapes Linear is timed over, as `models`")
    parser.add_argument("--seconds", type=float, default=480.0, help="begin no other shape after so long")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if not driver.available():
        print("no operator was measured: there is no GPU", file=sys.stderr)
        return 1
    begin, results = time.monotonic(), {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "host_us": host()}
    print(json.dumps(results, indent=1))
    if options.shapes:
        shapes = {(p.m, p.n, p.k): None for p in PRESETS[options.shapes].problems if p.dtype == "bf16" and p.batch is None}
        rows: list[dict[str, float]] = []
        for shape in shapes:
            if time.monotonic() - begin < options.seconds:
                rows.append(linear(*shape))
                print(json.dumps(rows[-1]))
        ratios = [row["ratio"] for row in rows]
        results |= {"shapes": len(shapes), "linear": rows, "least": min(ratios), "geometric_mean": statistics.geometric_mean(ratios)}
        print(f"Linear, forward and backward: {results['geometric_mean']:.3f} times nn.Linear's speed over {len(rows)} of {len(shapes)} "
              f"shapes, least {results['least']:.3f}")
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
