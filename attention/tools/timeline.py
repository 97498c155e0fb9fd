"""`python -m ptxkit.attention timeline`: when each warp did what, and what the marks cost."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence

import numpy as np

from ptxkit.cards import H200
from ptxkit.cli.numbers import positive
from ptxkit.cli.output import write
from ptxkit.errors import LaunchError
from ptxkit.gemm.tools.bench.report import invocation
from ptxkit.gemm.tools.bench.run import library
from ptxkit.gemm.tools.timeline import add_marks, card_of_record, drawn, row, selection, told, wanted
from ptxkit.timeline import Timeline

from ..config.decode import HEADS
from ..kernels.forward import forward
from ..launch.simulate import simulate

EACH = ("tile", "block", "wait,load", "all")
"""The marks that are measured unless --marks says otherwise: a span for each tile of queries; a span for each block of keys; waits and
loads; all of them."""
MASKS = ("full", "causal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--length", type=positive, default=8192, metavar="S", help="queries and keys of a head (default 8192)")
    parser.add_argument("--heads", type=positive, default=32, metavar="H", help="heads in all (default 32)")
    parser.add_argument("--head", type=int, choices=HEADS, default=128, help="elements of a head (default 128)")
    parser.add_argument("--mask", choices=(*MASKS, "both"), default="both")
    add_marks(parser, EACH, " of the last mask")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when there is a timeline."""
    gpu, names = wanted(options, EACH)
    said = sys.stderr if options.json == "-" else sys.stdout
    found: dict[str, dict[str, Timeline]] = {}
    for mask in MASKS if options.mask == "both" else (options.mask,):
        shape = options.heads, options.length, options.head
        found[mask] = on_gpu(shape, mask == "causal", names, options.rounds) if gpu else simulated(shape, mask == "causal", names[-1])
        print(f"{mask} attention, {options.heads} heads of {options.length} x {options.head}", file=said)
        timeline = told(found[mask], said)
    drawn(options, timeline)
    if options.json:
        text = json.dumps({"date": time.strftime("%Y-%m-%d"), "command": invocation("ptxkit.attention"),
                           "device": card_of_record(timeline, gpu), "heads": options.heads, "rows": options.length, "head": options.head,
                           "masks": {mask: {name: row(each) for name, each in timelines.items()} for mask, timelines in found.items()}},
                          indent=1)
        write(options.json, (text + "\n").encode())
    return 0


def simulated(shape: tuple[int, int, int], causal: bool, names: str) -> dict[str, Timeline]:
    """On the CPU device, with zeros as operands and two SMs."""
    q, k, v, out = (np.zeros((1, *shape), np.float16) for _ in range(4))
    report = simulate(q, k, v, out, is_causal=causal, card=H200.with_sms(2), marks=selection(names))
    if report.timeline is None:
        raise LaunchError(f"nothing ran: {report}")
    return {names: report.timeline}


def on_gpu(shape: tuple[int, int, int], causal: bool, names: Sequence[str], rounds: int) -> dict[str, Timeline]:
    """The timeline of each selection of marks, and what it costs: all are timed in the same rounds."""
    from ptxkit.runtime.arrays import view
    from ptxkit.timeline.launched import each_selection

    from ..launch.forward import Launch, Plan
    from ..problem.forward import Arrays, Options, Problem

    torch = library()
    tensors = [torch.randn((1, *shape), device="cuda").bfloat16() for _ in range(3)]
    out = torch.full_like(tensors[0], math.nan)
    arrays = Arrays(*(view(tensor) for tensor in (*tensors, out)))
    ordinal, stream = arrays.q.device, torch.cuda.current_stream().cuda_stream
    plan = Plan(Problem.of(arrays, Options(causal)), ordinal)
    launch = Launch(plan, arrays)
    return each_selection(lambda chosen: forward.compile(marks=chosen, **plan.config.parameters), {name: selection(name) for name in names},
                          lambda: launch.run(stream), launch.grid, launch.scalars, launch.maps, stream, rounds)


__all__ = ["add_arguments", "on_gpu", "run", "simulated"]
