"""`python -m gemm bench`: its options, and what a run is made of."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxkit import driver

from .contestants import BUILT_IN, ContestantError, contestants
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
                        help=f"contestants with commas: {', '.join(BUILT_IN)}, or module:function (default: the preset's)")
    parser.add_argument("--dtype", type=_words, default=[], metavar="TYPES", help=f"instead of the shapes' own: {', '.join(OPERAND_TYPES)}")
    parser.add_argument("--layout", choices=LAYOUTS, help="instead of the shapes' own: A then B, n row-major and t column-major")
    parser.add_argument("--rounds", type=int, metavar="N", help="interleaved rounds (default 20, sustained 12)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no further measurement after that long")
    parser.add_argument("--host", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure what import and calls cost the host")
    parser.add_argument("--ceilings", action=argparse.BooleanOptionalAction, default=True,
                        help="also measure wgmma alone and a streaming read of 8 GiB (about 6 s)")
    parser.add_argument("--json", metavar="FILE", help="write the results there after each measurement (- for stdout, at the end)")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw them: .svg, or .png with matplotlib")
    parser.set_defaults(run=command)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def jobs(options: argparse.Namespace) -> list[tuple[str, Problem, tuple[str, ...]]]:
    """(regime, problem, contestants) in the order in which they are measured."""
    preset = PRESETS.get(options.shapes)
    names = options.against if options.against is not None else list(preset.against) if preset else list(_PEERS)
    contestants(names)                                     # a name that is not there is an error before anything runs
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
    from . import host, report, run

    try:
        work = jobs(options)
    except (ShapeError, ContestantError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    on_stdout = options.json == "-"
    out = sys.stderr if on_stdout else sys.stdout
    costs: dict[str, Any] = {}
    if options.host:
        costs["host"] = host.imports()
        if driver.available():
            torch = run.library()
            costs["launch"] = host.calls(torch)
        for name, figures in costs.items():
            print(f"{name}: " + ", ".join(f"{what} {value:.1f}" for what, value in figures.items()), file=out, flush=True)
    path = Path(options.json) if options.json and not on_stdout else None
    results = run.run(work, rounds=options.rounds, seconds=options.seconds, path=path, host=costs, with_ceilings=options.ceilings,
                      say=lambda text: print(text, file=out, flush=True))
    if "device" not in results:
        print("no product was measured: there is no GPU", file=sys.stderr)
    if path is not None:
        report.write_json(path, results)
    elif on_stdout:
        print(json.dumps(report.rounded(results), indent=1))
    if results["rows"]:
        print(run.closing(results), file=out)
    if options.plot:
        report.plot(options.plot, results)
    return int(any("ours" in row.get("left_out", {}) for row in results["rows"]))


def main(arguments: Sequence[str]) -> int:
    """The command by itself."""
    parser = argparse.ArgumentParser(prog="python -m gemm bench")
    add_arguments(parser)
    return command(parser.parse_args(arguments))


__all__ = ["add_arguments", "command", "jobs", "main"]
