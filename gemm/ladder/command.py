"""The command `python -m ptxkit.gemm ladder` and its options."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ptxkit.cli.numbers import positive
from ptxkit.cli.paths import json_of, output_file, output_path
from ptxkit.errors import PtxkitError


class ResultsError(PtxkitError, ValueError):
    """Recorded results that cannot be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("--size", type=positive, nargs="+", metavar="N",
                        help="cubes to measure (default 4096; on the CPU device a small product that suits each step)")
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto",
                        help="auto: the GPU if there is one, else the CPU device")
    parser.add_argument("--rounds", type=positive, default=20, help="interleaved rounds (default 20)")
    parser.add_argument("--json", type=output_file, metavar="FILE",
                        help="write the results there after each size (- for stdout, at the end)")
    parser.add_argument("--results", type=Path, metavar="FILE", help="take these results of --json instead of measuring")
    parser.add_argument("--plot", type=output_path, metavar="FILE.png", help="draw the chart (needs matplotlib)")
    parser.add_argument("--docs", type=Path, metavar="PAGE.md", help="put the tables between the marks of this page")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: every step is right; 1: one is wrong, has findings, or could not be measured."""
    from ptxkit.runtime import driver

    out = sys.stderr if options.json == "-" else sys.stdout

    def say(line: str) -> None:
        print(line, file=out, flush=True)

    if options.results is not None:
        results = _read(options.results)
    elif options.device == "sim" or (options.device == "auto" and not driver.available("sm_90a")):
        if options.json or options.plot or options.docs:
            raise ResultsError("--json, --plot and --docs are for measurements, which need a GPU; the CPU device gives verdicts")
        from . import simulated

        sizes = options.size or [None]
        return max(simulated.ladder(size, say) for size in sizes)
    else:
        from . import supervise

        driver.probe()
        results = supervise.run(options.size or [4096], rounds=options.rounds, say=say,
                                keep=None if options.json in (None, "-") else Path(options.json))
    from . import report

    say(report.table(results))
    if options.json == "-":
        print(json.dumps(results, indent=1))
    if options.docs is not None:
        report.fill(options.docs, results)
    if options.plot is not None:
        report.plot(options.plot, results)
    return int(any(found["left_out"] for found in results["sizes"]))


def _read(path: Path) -> dict[str, Any]:
    results = json_of(path)
    if not isinstance(results, dict) or results.get("schema") != 1 or "sizes" not in results:
        raise ResultsError(f"--results {path}: this is not what `python -m ptxkit.gemm ladder --json` writes")
    return results
