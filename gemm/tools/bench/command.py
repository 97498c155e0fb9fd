"""`python -m ptxkit.gemm bench`: its options, and what a run is made of."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptxkit.runtime import driver

from . import report, run, watch
from .baselines import BUILT_IN, BaselineError, baselines
from .regimes import REGIMES
from .shapes import LAYOUTS, OPERAND_TYPES, PRESETS, Problem, ShapeError, parse

_PEERS = ("cublas", "cublaslt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    presets = "; ".join(f"{name}: {preset.what}" for name, preset in PRESETS.items())
    parser.epilog = f"Presets. {presets}."
    parser.add_argument("--shapes", default="burst", metavar="SPEC",
                        help="a preset, a file, or 4096,4096x4096x1024:f16:nn with commas (default burst)")
    parser.add_argument("--regime", choices=(*REGIMES, "both"), help="both: burst, then sustained (default: the preset's)")
    parser.add_argument("--against", type=_words, metavar="NAMES",
                        help=f"baselines with commas: {', '.join(BUILT_IN)}, or module:function (default: the preset's)")
    parser.add_argument("--dtype", type=_words, default=[], metavar="TYPES", help=f"instead of the shapes' own: {', '.join(OPERAND_TYPES)}")
    parser.add_argument("--layout", choices=LAYOUTS, help="instead of the shapes' own: A then B, n row-major and t column-major")
    parser.add_argument("--rounds", type=int, metavar="N", help="interleaved rounds (default 20, sustained 12)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no further measurement after that long")
    parser.add_argument("--host", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure what import and calls cost the host")
    parser.add_argument("--ceilings", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure wgmma alone and a streaming read of 8 GiB (about 6 s)")
    parser.add_argument("--grouped", action="store_true",
                        help="group products instead: what `python -m ptxkit.gemm grouped --compare` measures, --against its baselines")
    parser.add_argument("--json", metavar="FILE", help="write the results there after each measurement (- for stdout, at the end)")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw them: .svg, or .png with matplotlib")
    parser.set_defaults(run=command)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def jobs(options: argparse.Namespace) -> list[tuple[str, Problem, tuple[str, ...]]]:
    """(regime, problem, baselines) in the order in which they are measured."""
    preset = PRESETS.get(options.shapes)
    names = options.against if options.against is not None else list(preset.against) if preset else list(_PEERS)
    baselines(names)                                       # a name that is not there is an error before anything runs
    wish = options.regime or (preset.regime if preset else "burst")
    problems = parse(options.shapes, options.dtype, options.layout)
    found = []
    for regime in ("burst", "sustained") if wish == "both" else (wish,):
        for problem in problems:
            ceilings = ["read"] if regime != "sustained" and problem.memory_bound and options.against is None else []
            found.append((regime, problem, tuple(dict.fromkeys(["ours", *names, *ceilings]))))
    return found


def command(options: argparse.Namespace) -> int:
    """0: measured (without a GPU, only the host); 1: a product was wrong or could not run; 2: options that say nothing."""
    if options.grouped:
        return _grouped(options)
    try:
        jobs(options)
    except (ShapeError, BaselineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    out = sys.stderr if options.json == "-" else sys.stdout
    with TemporaryDirectory() as folder:
        path = Path(options.json) if options.json and options.json != "-" else Path(folder, "results.json")
        wishes = {name: getattr(options, name) for name in WISHES} | {"path": str(path), "to_stderr": options.json == "-",
                                                                     "command": report.invocation()}
        if driver.available():
            status = watch.watched("bench", wishes, Path(folder, "note"), say=lambda text: print(text, file=out, flush=True))
            if not path.is_file():
                return status or 1
        else:
            work(wishes, watch.Step())
            print("no product was measured: there is no GPU", file=sys.stderr)
        results = json.loads(path.read_text(encoding="utf-8"))
    if options.json == "-":
        print(json.dumps(results, indent=1))
    elif options.json:
        report.write_json(path, results)
    if results["rows"]:
        print(run.closing(results), file=out)
    if options.plot:
        report.plot(options.plot, results)
    return int(any("ours" in row.get("left_out", {}) for row in results["rows"]))


def _grouped(options: argparse.Namespace) -> int:
    """Group products, each case balanced and skewed."""
    from .grouped import compare
    from .grouped_cases import cases

    out = sys.stderr if options.json == "-" else sys.stdout
    regimes = ("burst", "sustained") if options.regime == "both" else (options.regime or "burst",)
    path = Path(options.json) if options.json and options.json != "-" else None
    results = compare(cases(), regimes=regimes, rounds=options.rounds, with_ceilings=options.ceilings, path=path,
                      **({} if options.against is None else {"against": tuple(options.against)}),
                      say=lambda text: print(text, file=out, flush=True))
    print(json.dumps(results, indent=1) if options.json == "-" else json.dumps(results["summary"], indent=1))
    return int(any("wrong" in row for row in results["rows"]))


WISHES = ("shapes", "regime", "against", "dtype", "layout", "rounds", "seconds", "host", "ceilings")


def work(wishes: Mapping[str, Any], step: watch.Step) -> int:
    """What the worker does: measures, and keeps the results at the path that it is told."""
    options = argparse.Namespace(**wishes)
    out = sys.stderr if options.to_stderr else sys.stdout
    path = Path(options.path)
    results = run.run(jobs(options), rounds=options.rounds, seconds=options.seconds, path=path, with_host=options.host,
                      with_ceilings=options.ceilings, step=step, command=options.command,
                      say=lambda text: print(text, file=out, flush=True))
    report.write_json(path, results)
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="python -m ptxkit.gemm bench")
    add_arguments(parser)
    return command(parser.parse_args(arguments))


__all__ = ["add_arguments", "command", "jobs", "main", "work"]
