"""`python -m ptxkit.gemm bench`: its options, and what a run is made of."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, positive, seconds
from ptxkit.cli.paths import output_file, output_path
from ptxkit.measure import files, watch
from ptxkit.measure.regimes import REGIMES
from ptxkit.runtime import driver

from . import report, run
from .baselines import BUILT_IN, BaselineError, baselines
from .merged import merged
from .shapes import BYTES, LAYOUTS, OPERAND_TYPES, PRESETS, SCALES, Problem, ShapeError, parse

_PEERS = ("cublas", "cublaslt")
_PEERS_OF_FP8 = ("scaled_mm", "cublaslt")
AGAIN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    presets = "; ".join(f"{name}: {preset.what}" for name, preset in PRESETS.items())
    parser.epilog = f"Presets. {presets}."
    parser.add_argument("--shapes", default="burst", metavar="SPEC",
                        help="a preset, a file, or 4096,4096x4096x1024:f16:nn with commas (default burst)")
    parser.add_argument("--sustained", action="store_true",
                        help="under sustained load, where the card is limited by its power; the preset sustained unless shapes are given")
    parser.add_argument("--regime", choices=(*REGIMES, "both"), help="both: burst, then sustained (default: the preset's)")
    parser.add_argument("--against", type=_words, metavar="NAMES",
                        help=f"baselines with commas: {', '.join(BUILT_IN)}, or module:function (default: the preset's)")
    parser.add_argument("--dtype", type=_words, default=[], metavar="TYPES", help=f"instead of the shapes' own: {', '.join(OPERAND_TYPES)}")
    parser.add_argument("--layout", choices=LAYOUTS, help="instead of the shapes' own: A then B, n row-major and t column-major")
    parser.add_argument("--scales", choices=SCALES, help="of fp8, instead of the shapes' own: one of each operand, of blocks, or of each "
                        "row and column")
    parser.add_argument("--rounds", type=positive, metavar="N", help="interleaved rounds (default 20, sustained 12)")
    parser.add_argument("--again", type=count, metavar="N",
                        help="measure the N worst once more before the least is told (default 10 of random shapes, else 0)")
    parser.add_argument("--seconds", type=seconds, metavar="S", help="begin no further measurement after that long")
    parser.add_argument("--host", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure what import and calls cost the host")
    parser.add_argument("--ceilings", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure wgmma alone and a streaming read of 8 GiB (about 6 s)")
    parser.add_argument("--batch-invariant", action="store_true", help="also measure each product with batch_invariant=True")
    parser.add_argument("--grouped", action="store_true",
                        help="group products instead: what `python -m ptxkit.gemm grouped --compare` measures, --against its baselines; "
                        "--shapes models, random:SEED:COUNT[:aligned|any8] or its cases, --dtype bf16,fp8,fp8-block of them")
    parser.add_argument("--of", nargs="+", type=Path, metavar="FILE",
                        help="measure nothing: sum up and draw the results in these files together, by card, type, kind and layout")
    parser.add_argument("--json", type=output_file, metavar="FILE",
                        help="write the results there after each measurement (- for stdout, at the end)")
    parser.add_argument("--plot", metavar="FILE", type=output_path, help="draw them: .svg, or .png with matplotlib")
    parser.set_defaults(run=command)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def jobs(options: argparse.Namespace) -> list[tuple[str, Problem, tuple[str, ...]]]:
    """(regime, problem, baselines) in the order in which they are measured."""
    if options.sustained:
        options.shapes = "sustained" if options.shapes == "burst" else options.shapes
        options.regime = "sustained"
    preset = PRESETS.get(options.shapes)
    baselines(options.against or ())                       # a name that is not there is an error before anything runs
    wish = options.regime or (preset.regime if preset else "burst")
    problems = parse(options.shapes, options.dtype, options.layout, options.scales)
    found = []
    for regime in ("burst", "sustained") if wish == "both" else (wish,):
        for problem in problems:
            ceilings = ["read"] if regime != "sustained" and problem.memory_bound and options.against is None else []
            same_bits = ["invariant"] if options.batch_invariant else []
            names = options.against if options.against is not None else preset.against if preset else \
                _PEERS_OF_FP8 if BYTES[problem.dtype] == 1 else _PEERS
            found.append((regime, problem, tuple(dict.fromkeys(["ours", *same_bits, *names, *ceilings]))))
    return found


def command(options: argparse.Namespace) -> int:
    """0: measured (without a GPU, only the host); 1: a product was wrong or could not run, or nothing was measured; 2: options that say
    nothing."""
    if options.of:
        return _merged(options)
    if options.grouped:
        return _grouped(options)
    try:
        jobs(options)
    except (ShapeError, BaselineError) as error:
        raise UsageError(str(error)) from None
    out = sys.stderr if options.json == "-" else sys.stdout
    with TemporaryDirectory() as folder:
        path = Path(options.json) if options.json and options.json != "-" else Path(folder, "results.json")
        wishes = {name: getattr(options, name) for name in WISHES} | {"path": str(path), "to_stderr": options.json == "-",
                                                                     "command": report.invocation()}
        if driver.available():
            status = watch.watched("ptxkit.gemm.tools.bench.command:work", wishes, Path(folder, "note"),
                                   say=lambda text: print(text, file=out, flush=True))
            if not path.is_file():
                return status or 1
        else:
            work(wishes, watch.Step())
            print("no product was measured: there is no GPU", file=sys.stderr)
        results = json.loads(path.read_text(encoding="utf-8"))
    if options.json == "-":
        print(json.dumps(results, indent=1))
    elif options.json:
        files.write_json(path, results)
    if results["rows"]:
        print(run.closing(results), file=out)
    if options.plot:
        report.plot(options.plot, results)
    nothing = not results["rows"] and "host" not in results
    return int(nothing or any("ours" in row.get("left_out", {}) for row in results["rows"]))


def _merged(options: argparse.Namespace) -> int:
    """0: summed up; 1: a file without results."""
    results = merged(options.of)
    if options.json == "-":
        print(json.dumps(files.rounded(results), indent=1))
    elif options.json:
        files.write_json(Path(options.json), results)
    print(run.closing(results), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.plot:
        report.plot(options.plot, results)
    return 0


def _grouped(options: argparse.Namespace) -> int:
    """Group products: each case balanced and skewed, those of models, or random ones."""
    from .grouped import compare
    from .grouped_cases import KINDS, parse

    try:
        chosen = parse(options.shapes, options.dtype or KINDS)
    except ShapeError as error:
        raise UsageError(str(error)) from None
    again = options.again if options.again is not None else AGAIN if "random:" in options.shapes else 0
    out = sys.stderr if options.json == "-" else sys.stdout
    regimes = ("burst", "sustained") if options.regime == "both" else ("sustained" if options.sustained else options.regime or "burst",)
    path = Path(options.json) if options.json and options.json != "-" else None
    results = compare(chosen, regimes=regimes, rounds=options.rounds, with_ceilings=options.ceilings, path=path, again=again,
                      seconds=options.seconds,
                      **({} if options.against is None else {"against": tuple(options.against)}),
                      say=lambda text: print(text, file=out, flush=True))
    print(json.dumps(results, indent=1) if options.json == "-" else json.dumps(results["summary"], indent=1))
    return int(any("wrong" in row for row in results["rows"]))


WISHES = ("shapes", "sustained", "regime", "against", "dtype", "layout", "scales", "rounds", "seconds", "host", "ceilings", "again",
          "batch_invariant")


def work(wishes: Mapping[str, Any], step: watch.Step) -> int:
    """What the worker does: measures, and keeps the results at the path that it is told."""
    options = argparse.Namespace(**wishes)
    out = sys.stderr if options.to_stderr else sys.stdout
    path = Path(options.path)
    again = options.again if options.again is not None else AGAIN if "random:" in options.shapes else 0
    results = run.run(jobs(options), rounds=options.rounds, seconds=options.seconds, path=path, with_host=options.host,
                      with_ceilings=options.ceilings, step=step, command=options.command, again=again,
                      say=lambda text: print(text, file=out, flush=True))
    files.write_json(path, results)
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="python -m ptxkit.gemm bench")
    add_arguments(parser)
    return command(parser.parse_args(arguments))


__all__ = ["add_arguments", "command", "jobs", "main", "work"]
