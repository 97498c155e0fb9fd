"""`python -m ptxkit.gemm timeline`: when each warp of a product did what, and what the marks cost."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ptxkit.cli.numbers import positive
from ptxkit.cli.output import write
from ptxkit.cli.paths import output_file
from ptxkit.errors import LaunchError
from ptxkit.runtime import driver
from ptxkit.timeline import Timeline

from ..launch.dense import Launch, Plan
from ..launch.grid import kernel_of
from ..launch.simulate import simulate
from ..problem.dense import PLAIN, Arrays, Problem
from . import options as shared
from . import run
from .bench.operands import TORCH_NAMES
from .bench.report import invocation
from .bench.run import device, library
from .run import Product

if TYPE_CHECKING:
    from ptxkit.dsl.marks import Selection

    from ..config.dense import DenseConfig

EACH = ("tile", "stage", "all")
"""What is measured unless --marks says otherwise: a span a tile, one a stage, and all marks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in "mnk":
        parser.add_argument(f"-{name}", type=positive, default=4096, help=f"{name.upper()} (default 4096)")
    parser.add_argument("--dtype", choices=("bf16", "f16", "f32", "e4m3", "e5m2"), default="bf16", help="type of A and B (default bf16)")
    parser.add_argument("--layout", choices=("nt", "nn", "tn", "tt"), default="nt", help="A then B: n row-major, t column-major")
    add_marks(parser, EACH)
    shared.add_card(parser, "on the CPU device, ")
    shared.add_set(parser)
    parser.set_defaults(run=command)


def add_marks(parser: argparse.ArgumentParser, each: Sequence[str], of: str = "") -> None:
    """The options of a command that measures marks, and each selection of them unless `--marks` says otherwise. `of` says which run the
    picture and the trace are of."""
    parser.add_argument("--marks", action="append", metavar="NAMES", help="names of marks with commas, or all; again to compare "
                        f"(default {', '.join(name.replace(',', ' with ') for name in each)}); pages and traces show the last")
    parser.add_argument("--rounds", type=positive, default=20, help="rounds of launches without marks and with each (default 20)")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="auto: the GPU, else the CPU device")
    parser.add_argument("--page", type=output_file, metavar="FILE.html", help=f"write a picture{of} there")
    parser.add_argument("--sms", type=positive, default=2, help="SMs that the picture and the trace show (default 2)")
    parser.add_argument("--trace", type=output_file, metavar="FILE.json", help=f"write a trace{of} for Perfetto there")
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write overheads and sums there (- for stdout)")


def wanted(options: argparse.Namespace, each: Sequence[str]) -> tuple[bool, Sequence[str]]:
    """Whether the GPU is measured, and the selections of marks. The CPU device has the last one."""
    gpu = options.device == "gpu" or (options.device == "auto" and driver.available("sm_90a"))
    return gpu, options.marks or (each if gpu else each[-1:])


def told(found: Mapping[str, Timeline], file: TextIO) -> Timeline:
    """Print what each selection costs, and the last timeline. Returns that."""
    for name, timeline in found.items():
        if timeline.overhead is not None:
            print(f"{name:<12}{timeline.overhead}", file=file)
    print(replace(timeline, overhead=None), file=file, flush=True)
    return timeline


def drawn(options: argparse.Namespace, timeline: Timeline) -> None:
    """Write the picture and the trace where the options name files."""
    if options.page:
        timeline.page(options.page, sms=options.sms)
    if options.trace:
        timeline.trace(options.trace, sms=options.sms)


def command(options: argparse.Namespace) -> int:
    product = Product(options.m, options.n, options.k, options.dtype, layout=options.layout)
    card = shared.card(options.card)
    config = product.config(card, dict(options.changes))
    gpu, names = wanted(options, EACH)
    found = on_gpu(product, config, names, options.rounds) if gpu else {names[-1]: simulated(product, config, names[-1], card)}
    said = sys.stderr if options.json == "-" else sys.stdout
    print(f"{product}: {config}", file=said)
    timeline = told(found, said)
    drawn(options, timeline)
    if options.json:
        text = json.dumps({"date": time.strftime("%Y-%m-%d"), "command": invocation(), "device": card_of_record(timeline, gpu),
                           "product": str(product), "config": str(config),
                           "marks": {name: row(each) for name, each in found.items()}}, indent=1)
        write(options.json, (text + "\n").encode())
    return 0


def card_of_record(timeline: Timeline, gpu: bool) -> dict[str, Any]:
    """The card and the libraries; only the name of the CPU device."""
    return device(library()) if gpu else {"name": timeline.device}


def row(timeline: Timeline) -> dict[str, Any]:
    """The figures of a timeline."""
    cost = timeline.overhead
    return {"overhead": None if cost is None else {"part": cost.part, "us": cost.without, "marked_us": cost.marked, "rounds": cost.rounds},
            "notes": timeline.notes(),
            "spans": [{"role": t.role, "name": t.name, "count": t.count, "clocks": t.mean, "p10": t.p10, "p90": t.p90, "part": t.part}
                      for t in timeline.totals()]}


def selection(names: str) -> Selection:
    """The marks that `--marks` names."""
    return True if names == "all" else tuple(names.split(","))


def simulated(product: Product, config: DenseConfig, names: str, card: Any) -> Timeline:
    """On the CPU device, with zeros as operands."""
    shared.say_how_long(product.multiplications)
    held = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "e4m3": np.uint8, "e5m2": np.uint8}
    made = []
    for shape, letter in zip(((product.m, product.k), (product.k, product.n)), product.layout, strict=True):
        made.append(np.zeros(shape if letter == "n" else shape[::-1], held[product.dtype]))
        made[-1] = made[-1] if letter == "n" else made[-1].T
    (a, b), d = made, np.zeros((product.m, product.n), held[product.out])
    report = simulate(a, b, d, dtype=product.dtype, out_dtype=product.out, config=config, card=card, marks=selection(names))
    if report.timeline is None:
        raise LaunchError(f"{product} is several launches, or none: {report}")
    return report.timeline


def on_gpu(product: Product, config: DenseConfig, names: Sequence[str], rounds: int) -> dict[str, Timeline]:
    """The timeline of each selection of marks, and what it costs: all are timed in the same rounds."""
    from ptxkit.runtime.arrays import view
    from ptxkit.timeline.launched import each_selection

    torch = library()
    a, b = run.operands(torch, product)
    d = torch.zeros((product.m, product.n), device="cuda", dtype=getattr(torch, TORCH_NAMES[product.out]))
    arrays = Arrays(view(a), view(b), view(d))
    ordinal, stream = arrays.a.device, torch.cuda.current_stream().cuda_stream
    plan = Plan(Problem(arrays, PLAIN), ordinal, config)
    launch = Launch(plan, arrays, PLAIN)
    launch.run(stream)                                                  # has a workspace from now on
    kernel = kernel_of(plan.config)
    return each_selection(lambda chosen: kernel.compile(marks=chosen, **plan.config.parameters), {name: selection(name) for name in names},
                          lambda: launch.run(stream), launch.grid, launch.placed[1] if launch.workspace_bytes else launch.scalars,
                          launch.maps, stream, rounds)


__all__ = ["add_arguments", "add_marks", "card_of_record", "drawn", "on_gpu", "row", "selection", "simulated", "told", "wanted"]
