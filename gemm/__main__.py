"""`python -m ptxkit.gemm run -m 512 -n 512 -k 512`: run one product, check it and time it. Further commands verify, measure and tune."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence

from ptxkit.cli.errors import UsageError
from ptxkit.cli.guard import Parser, guarded
from ptxkit.cli.numbers import count, positive, seconds
from ptxkit.cli.output import write
from ptxkit.cli.paths import output_file
from ptxkit.dsl.values import FieldError
from ptxkit.errors import LaunchError

LAYOUTS = ("nt", "nn", "tn", "tt")


def main(arguments: Sequence[str] | None = None, prog: str = "python -m ptxkit.gemm") -> int:
    """0: right; 1: wrong, an error or incomplete verdict, or failed; 2: usage, or a configuration that cannot be."""
    arguments = sys.argv[1:] if arguments is None else arguments

    def run() -> int:
        options = _parser(prog).parse_args(arguments)
        return int(options.run(options))

    return guarded(run, arguments, "error: ")


def _parser(prog: str) -> argparse.ArgumentParser:
    from .export import command as export
    from .ladder import command as ladder
    from .tools import explain, fit, invariance, options, probe, sample, timeline, tune
    from .tools import grouped as group
    from .tools.bench import command as bench
    from .tools.fingerprint import command as fingerprint

    parser = Parser(prog=prog, description="Hopper GEMM kernels written with ptxkit.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", aliases=["hgemm"], help="D = A B of 16-bit, 8-bit or tf32 operands: run, check, time")
    for name in "mnk":
        run.add_argument(f"-{name}", type=positive, default=4096, help=f"{name.upper()} (default 4096)")
    types = ("bf16", "f16", "f32", "e4m3", "e5m2")
    run.add_argument("--dtype", choices=types, default="bf16", help="type of A and B (default bf16; f32 is multiplied as tf32)")
    run.add_argument("--b-dtype", choices=types, help="type of B, where 8-bit types differ")
    run.add_argument("--out-dtype", choices=types, help="type of D (default: that of A; bf16 for 8-bit types)")
    run.add_argument("--batch", type=positive, metavar="L", help="so many products in one launch")
    run.add_argument("--layout", choices=LAYOUTS, default="nt",
                     help="A then B: n row-major, t column-major; nt (default) has K contiguous in both")
    run.add_argument("--check", action=argparse.BooleanOptionalAction, default=True,
                     help="compare with a reference; on the CPU device also run the checker")
    run.add_argument("--repeat", type=positive, default=20, help="timed launches (default 20)")
    run.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto", help="auto: the GPU if there is one, else the CPU device")
    run.add_argument("--schedule", default="fifo", help="of the CPU device: fifo, random, adversarial or a named adversary")
    run.add_argument("--seed", type=count, default=0, help="of --schedule random")
    options.add_card(run, "on the CPU device, ")
    options.add_set(run)
    run.add_argument("--json", action="store_true", help="one JSON object on stdout")
    run.set_defaults(run=_run)
    bench.add_arguments(commands.add_parser("bench", help="products against other libraries and the card's ceilings, interleaved"))
    group.add_arguments(commands.add_parser("grouped", help="products of groups of rows, each with weights of its own, in one launch"))
    explain.add_arguments(commands.add_parser("explain", help="which configuration a product gets, and what the model says of the others"))
    tune.add_arguments(commands.add_parser("tune", help="find the fastest configuration of shapes and keep it in a table"))
    invariance.add_arguments(commands.add_parser("invariance", help="which configurations give a row the same bits, on a GPU"))
    sample.add_arguments(commands.add_parser("sample", help="times of many configurations on random products, for fit"))
    fit.add_arguments(commands.add_parser("fit", help="the constants of a card's cost model, from what sample measured"))
    probe.add_arguments(commands.add_parser("probe", help="measure in a second what a card does that is not known, and keep it"))
    timeline.add_arguments(commands.add_parser("timeline", help="when each warp of a product did what, and what it costs to see it"))
    export.add_arguments(commands.add_parser("export", help=export.HELP))
    ladder.add_arguments(commands.add_parser("ladder", help="from CUDA cores to the fastest kernel, step by step, checked and measured"))
    fingerprint.add_arguments(commands.add_parser("fingerprint", help=fingerprint.HELP))
    verify = commands.add_parser("verify", help="products of every kind against float64, with guard bands, on the GPU or the CPU device")
    verify.add_argument("--cases", type=positive, default=400, help="of fixed and random shapes; on the CPU device of small random ones "
                        "(default 400)")
    verify.add_argument("--device", choices=("gpu", "sim"), default="gpu",
                        help="sim: the CPU device with its checker, for cards and schedules drawn at random")
    verify.add_argument("--seconds", type=seconds, default=math.inf, metavar="S", help="with sim: begin no product after so long")
    verify.add_argument("--configs", action=argparse.BooleanOptionalAction, default=True,
                        help="also every structure of the shipped tables, and every pair of choices of a configuration")
    verify.add_argument("--seed", type=count, default=0)
    verify.add_argument("--json", type=output_file, metavar="FILE", help="write the results there (- for stdout)")
    verify.set_defaults(run=_verify)
    return parser


def _run(options: argparse.Namespace) -> int:
    from ptxkit.runtime import driver

    from .tools import options as shared
    from .tools import run

    product = run.Product(options.m, options.n, options.k, options.dtype, options.out_dtype or "", options.layout, options.batch,
                          options.b_dtype or "")
    on_gpu = options.device == "gpu" or (options.device == "auto" and driver.available("sm_90a"))
    if on_gpu:
        driver.probe()
    card = shared.card(options.card)
    try:
        config = product.config(card, dict(options.changes)) if options.changes else None
    except (FieldError, LaunchError) as error:
        raise UsageError(str(error)) from None
    if on_gpu:
        report = run.on_gpu(product, config, check=options.check, repeat=options.repeat)
    else:
        shared.say_how_long(product.multiplications)
        report = run.simulated(product, config, card=card, schedule=options.schedule, seed=options.seed, check=options.check)
    print(json.dumps(report) if options.json else "\n".join(report["lines"]))
    return int(report["wrong"])


def _verify(options: argparse.Namespace) -> int:
    if options.device == "sim":
        from .tools.verify import simulated

        results = simulated.run(options.cases, options.seed, options.seconds)
    else:
        from .tools.verify import dense

        results = dense.run(options.cases, options.seed, configs=options.configs)
    if options.json:
        write(options.json, (json.dumps(results, indent=1) + "\n").encode())
    for failure in results["failures"]:
        print(f"wrong: {failure}", file=sys.stderr)
    kernels = f" by {results['kernels']} kernels" if "kernels" in results else ""
    said = f"{results['cases']} products{kernels} on {results['device']}, {len(results['failures'])} wrong"
    print(said, file=sys.stderr)
    return int(bool(results["failures"]))


if __name__ == "__main__":
    sys.exit(main())
