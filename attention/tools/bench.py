"""`python -m ptxkit.attention bench`: attention beside torch's scaled_dot_product_attention in one run, launches interleaved.

Operand sets are taken in turn, more bytes than the L2 holds several times. Each result of the first set is compared with float64 for one
head first. TFLOP/s count 4 B H S S D operations, half of that with a causal mask.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ptxkit.cli.errors import UsageError
from ptxkit.measure.contest import prepared
from ptxkit.measure.regimes import REGIMES, Captured, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import Launch, TorchTimer
from ptxkit.measure.watch import Step, alive
from ptxkit.runtime import driver

from . import shapes
from .reference import EX2, F32, ROUNDOFF

TOKENS, HEADS = 16384, 16
SHAPES = [(head, causal, length) for head in (64, 128, 256) for causal in (False, True) for length in (4096, 16384)]
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
MOST_SETS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    shapes.add_options(parser, len(SHAPES))
    parser.add_argument("--against", default="cudnn,flash", help="backends of torch, of cudnn and flash (default both)")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when all that was measured is right, and something was."""
    unknown = [name for name in options.against.split(",") if name and name not in BACKENDS]
    chosen = shapes.numbers(options, len(SHAPES))
    if unknown or chosen is None:
        raise UsageError(f"backends are {', '.join(BACKENDS)} and shapes 0 to {len(SHAPES) - 1}")
    return shapes.watch("ptxkit.attention.tools.bench:worker", options, chosen, against=options.against, dtype=options.dtype)


def worker(options: Mapping[str, Any], step: Step) -> int:
    """The shapes, one after another."""
    import torch

    rows = shapes.measure_each(torch, options, step, lambda index: _row(torch, index, options, step), said,
                               lambda rows: _results(torch, rows, options))
    print(json.dumps(_summary(rows)))
    return shapes.status(rows)


def _row(torch: Any, index: int, options: Mapping[str, Any], step: Step) -> dict[str, Any]:
    head, causal, length = SHAPES[index]
    batches, regime = TOKENS // length, REGIMES[options["regime"]]
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[options["dtype"]]
    generator = torch.Generator("cuda").manual_seed(index)

    def tensor() -> Any:
        return torch.randn(batches, HEADS, length, head, generator=generator, device="cuda", dtype=torch.float32).to(dtype)

    set_bytes = 4 * batches * HEADS * length * head * 2
    count = min(MOST_SETS, sets_that_are_cold(set_bytes, driver.device(driver.current_device()).l2_bytes))
    sets = [tuple(tensor() for _ in range(3)) for _ in range(count)]
    found: dict[str, Any] = {"shape": index, "head": head, "causal": causal, "length": length, "batches": batches, "heads": HEADS,
                             "sets": count}
    shares: dict[str, float] = {}

    def prepare(make: Callable[[], Entry]) -> Captured:
        entry = make()
        entry.launches[0]()
        alive(torch)
        shares[entry.name] = share_of_bound(torch, sets[0], entry.keeps[0](), causal, options["dtype"])
        step.touch()
        return capture(timer, entry, regime)

    timer = TorchTimer(torch)
    makers: dict[str, Callable[[], Entry]] = {"ours": partial(ours, torch, sets, causal)}
    makers |= {name: partial(torchs, torch, name, sets, causal) for name in options["against"].split(",") if name}
    graphs, left_out = prepared(makers, prepare, lambda: alive(torch))
    timed = {one.captured.entry.name: one for one in measure(timer, graphs, regime, options["rounds"], seed=index)}
    operations = 4 * batches * HEADS * length * length * head / (2 if causal else 1)
    found |= {"us": {name: one.median for name, one in timed.items()}, "left_out_contestants": left_out, "share_of_bound": shares,
              "tflops": {name: 1e-6 * operations / one.median for name, one in timed.items()},
              "wrong": not shares.get("ours", math.nan) <= 1}
    if "ours" in timed:
        own_us = timed["ours"].us
        found["of"] = {name: statistics.median(theirs / own for own, theirs in zip(own_us, one.us, strict=True))
                       for name, one in timed.items() if name != "ours"}
    return found


def ours(torch: Any, sets: list[Any], causal: bool) -> Entry:
    """`ptxkit.attention` on sets of (q, k, v), each [batches, heads, rows, head dim]. Keeps the first result."""
    from ..launch.forward import attention

    outs = [torch.full_like(q, math.nan) for q, _, _ in sets]

    def launch(q: Any, k: Any, v: Any, out: Any) -> None:
        attention(q, k, v, is_causal=causal, out=out)

    launches: list[Launch] = [partial(launch, q, k, v, out) for (q, k, v), out in zip(sets, outs, strict=True)]
    return Entry("ours", launches, keeps=(lambda: outs[0],))


def torchs(torch: Any, name: str, sets: list[Any], causal: bool) -> Entry:
    """torch's scaled_dot_product_attention with one of `BACKENDS`. Keeps the last result."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    last: list[Any] = []

    def launch(q: Any, k: Any, v: Any) -> None:
        with sdpa_kernel(getattr(SDPBackend, BACKENDS[name])):
            last[:] = [torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)]

    return Entry(name, [partial(launch, *three) for three in sets], keeps=(lambda: last[0],))


def share_of_bound(torch: Any, three: Any, out: Any, causal: bool, type: str) -> float:
    """The largest error in the first head, as a share of its bound: see `reference.expected`, with the errors of scores in f32 as the
    largest |q| |k| has them."""
    q, k, v = (x[0, 0].double() for x in three)
    scale, keys = 1 / math.sqrt(q.shape[-1]), k.shape[0]
    worst = 0.0
    for first in range(0, q.shape[0], 2048):
        rows = q[first:first + 2048]
        scores = scale * rows @ k.T
        if causal:
            positions = torch.arange(keys, device=q.device)
            scores.masked_fill_(positions > (positions[first:first + 2048])[:, None], -math.inf)
        weights = scores.softmax(-1)
        right, magnitude = weights @ v, weights @ v.abs()
        size = float(scale * rows.norm(dim=-1).max() * k.norm(dim=-1).max())
        relative = 2 * ROUNDOFF[type] + 2 * (q.shape[-1] + 4) * F32 * size + 2 * keys * F32 + 8 * EX2
        share = float(((out[0, 0, first:first + 2048].double() - right).abs() / (relative * magnitude)).max())
        worst = share if not share <= worst else worst
    return worst


def said(row: Mapping[str, Any]) -> str:
    """A line for people."""
    head, causal, length = SHAPES[row["shape"]]
    what = f"head {head}, {'causal' if causal else 'full'}, {length}: "
    if row.get("left_out") or row.get("wrong"):
        return f"{what}{row.get('left_out') or 'WRONG'} {row.get('share_of_bound', '')} {row.get('left_out_contestants', '')}"
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in row["tflops"].items())
    return f"{what}{rates} TFLOP/s; " + ", ".join(f"{ratio:.3f} x {name}" for name, ratio in row.get("of", {}).items())


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The geometric mean and the least of the ratios to each contestant."""
    found = {}
    for name in BACKENDS:
        ratios = [row["of"][name] for row in rows if name in row.get("of", {})]
        if ratios:
            found[name] = {"shapes": len(ratios), "geometric_mean": statistics.geometric_mean(ratios), "least": min(ratios)}
    return found


def _results(torch: Any, rows: list[dict[str, Any]], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "dtype": options["dtype"], "regime": options["regime"], "rounds": options["rounds"], "rows": rows, "summary": _summary(rows)}


__all__ = ["BACKENDS", "HEADS", "SHAPES", "TOKENS", "add_arguments", "ours", "run", "said", "share_of_bound", "torchs", "worker"]
