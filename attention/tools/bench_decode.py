"""`python -m ptxkit.attention bench-decode`: decode over a paged cache beside a streaming read of the same bytes, launches interleaved.

Pages lie in random order, every page of the cache belongs to a sequence, and all sequences have the same length. Operand sets are taken in
turn, more bytes than the L2 holds several times. The first sequence of the first set is compared with float64 first.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ptxkit import Ptr, Reg, ctaid, for_range, kernel, nctaid, tid
from ptxkit.cli.errors import UsageError
from ptxkit.measure.contest import prepared
from ptxkit.measure.regimes import REGIMES, Captured, Entry, capture, measure, sets_that_are_cold
from ptxkit.measure.timer import TorchTimer
from ptxkit.measure.watch import Step, alive
from ptxkit.ptx import ld, mov, st, xor
from ptxkit.runtime import driver
from ptxkit.types import b32, u32

from . import shapes
from .reference import EX2, F32, ROUNDOFF

HEADS, KV_HEADS, HEAD = 32, 8, 128
SHAPES = list(itertools.product((4096, 16384), (16, 64), (1, 64)))         # length, page size, batches
LEAST_BYTES = 256 << 20                                                    # of all operand sets together
THREADS, LOADS = 256, 4
PIECE = THREADS * LOADS * 16                                               # bytes of each cache that a CTA reads at a time
WORKSPACE = 1 << 22                                                        # f32 elements, more than any of the shapes needs
UNLIKELY = 0x5EEDBEEF


@kernel(target="sm_90a", block=THREADS)
def streaming_read(k: Ptr[b32], v: Ptr[b32], sink: Ptr[b32], pieces: Reg[u32]) -> None:
    """Read `pieces` pieces of both arrays. A thread stores the xor of its words if it is `UNLIKELY`, so that no load can be left out."""
    thread, total = mov.u32(tid.x), mov.b32(0)
    with for_range(pieces, start=mov.u32(ctaid.x), step=mov.u32(nctaid.x)) as piece:
        words = [ld.global_.nc.L1__no_allocate.v4.b32(array.at(piece * (PIECE // 4) + thread * 4) + THREADS * 4 * number)
                 for array in (k, v) for number in range(LOADS)]
        for four in words:
            for word in four:
                xor.b32(total, total, word)
    st.global_.b32(sink, total, pred=total == UNLIKELY)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    shapes.add_options(parser, len(SHAPES))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when all that was measured is right, and something was."""
    chosen = shapes.numbers(options, len(SHAPES))
    if chosen is None:
        raise UsageError(f"shapes are 0 to {len(SHAPES) - 1}")
    return shapes.watch("ptxkit.attention.tools.bench_decode:worker", options, chosen)


def worker(options: Mapping[str, Any], step: Step) -> int:
    """The shapes, one after another."""
    import torch

    def results(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
                "regime": options["regime"], "rounds": options["rounds"], "heads": HEADS, "kv_heads": KV_HEADS, "head": HEAD, "rows": rows}

    return shapes.status(shapes.measure_each(torch, options, step, lambda index: _row(torch, index, options, step), said, results))


def _row(torch: Any, index: int, options: Mapping[str, Any], step: Step) -> dict[str, Any]:
    length, page, batches = SHAPES[index]
    regime, bytes_ = REGIMES[options["regime"]], 2 * 2 * batches * length * KV_HEADS * HEAD
    generator = torch.Generator("cuda").manual_seed(index)
    count = max(sets_that_are_cold(bytes_, driver.device(driver.current_device()).l2_bytes), -(-LEAST_BYTES // bytes_))
    sets = [_operands(torch, generator, length, page, batches) for _ in range(count)]
    share = math.nan
    timer = TorchTimer(torch)

    def prepare(make: Callable[[], Entry]) -> Captured:
        nonlocal share
        entry = make()
        entry.launches[0]()
        alive(torch)
        if entry.name == "ours":
            share = _share(torch, sets[0], entry.keeps[0]())
        step.touch()
        return capture(timer, entry, regime)

    makers: dict[str, Callable[[], Entry]] = {"ours": partial(_ours, torch, sets), "read": partial(_read, torch, sets, bytes_)}
    graphs, left_out = prepared(makers, prepare, lambda: alive(torch))
    timed = {one.captured.entry.name: one for one in measure(timer, graphs, regime, options["rounds"], seed=index)}
    found: dict[str, Any] = {"shape": index, "length": length, "page": page, "batches": batches, "bytes": bytes_, "sets": count,
                             "us": {name: one.median for name, one in timed.items()}, "left_out_contestants": left_out,
                             "share_of_bound": share, "wrong": not share <= 1}
    if len(timed) == len(makers):
        found["of_read"] = statistics.median(read / own for own, read in zip(timed["ours"].us, timed["read"].us, strict=True))
    return found


def _operands(torch: Any, generator: Any, length: int, page: int, batches: int) -> tuple[Any, ...]:
    """q, both caches, the page table and the lengths."""
    pages = length // page

    def tensor(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    table = torch.randperm(batches * pages, generator=generator, device="cuda").to(torch.int32).view(batches, pages)
    cache = batches * pages, page, KV_HEADS, HEAD
    lengths = torch.full((batches,), length, dtype=torch.int32, device="cuda")
    return tensor(batches, HEADS, HEAD), tensor(*cache), tensor(*cache), table, lengths


def _ours(torch: Any, sets: list[Any]) -> Entry:
    from ..launch.decode import attention_decode

    outs = [torch.full_like(given[0], math.nan) for given in sets]
    workspace = torch.empty(WORKSPACE, device="cuda")

    def launch(given: tuple[Any, ...], out: Any) -> None:
        attention_decode(*given, out=out, workspace=workspace)

    return Entry("ours", [partial(launch, given, out) for given, out in zip(sets, outs, strict=True)], keeps=(lambda: outs[0],))


def _read(torch: Any, sets: list[Any], bytes_: int) -> Entry:
    sink = torch.zeros(4, dtype=torch.int32, device="cuda")
    pieces = bytes_ // 2 // PIECE
    grid = min(pieces, 8 * driver.device(driver.current_device()).multiprocessors)

    def launch(given: tuple[Any, ...]) -> None:
        streaming_read.launch(grid, *(given[1 + i].view(torch.int32).view(-1) for i in range(2)), sink, pieces)

    return Entry("read", [partial(launch, given) for given in sets], keeps=(lambda: sink,))


def _share(torch: Any, given: tuple[Any, ...], out: Any) -> float:
    """The largest error of the first sequence, as a share of its bound: see `reference.expected`."""
    q, k, v, table, _ = given
    keys, values = (x[table[0].long()].flatten(0, 1).transpose(0, 1).double().repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v))
    query, scale, count = q[0].double()[:, None], 1 / math.sqrt(HEAD), keys.shape[1]
    weights = (scale * query @ keys.transpose(1, 2)).softmax(-1)
    right, magnitude = weights @ values, weights @ values.abs()
    size = float(scale * query.norm(dim=-1).max() * keys.norm(dim=-1).max())
    relative = 2 * ROUNDOFF["bf16"] + 2 * (HEAD + 4) * F32 * size + 2 * count * F32 + 8 * EX2
    return float(((out[0].double()[:, None] - right).abs() / (relative * magnitude)).max())


def said(row: Mapping[str, Any]) -> str:
    """A line for people."""
    length, page, batches = SHAPES[row["shape"]]
    what = f"{batches} x {length} keys in pages of {page}: "
    if row.get("left_out") or row.get("wrong") or "of_read" not in row:
        return f"{what}{row.get('left_out') or 'WRONG'} {row.get('share_of_bound', '')} {row.get('left_out_contestants', '')}"
    rates = ", ".join(f"{name} {us:.1f} us" for name, us in row["us"].items())
    return f"{what}{rates}, {1e-3 * row['bytes'] / row['us']['ours']:.0f} GB/s; {row['of_read']:.3f} of a streaming read"


__all__ = ["SHAPES", "add_arguments", "run", "said", "streaming_read", "worker"]
