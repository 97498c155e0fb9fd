"""The command `python -m ptxkit.attention ladder` and its options."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import positive
from ptxkit.cli.paths import output_path
from ptxkit.gemm.tools.bench.report import invocation
from ptxkit.measure.watch import watched
from ptxkit.runtime import driver

from ..tools.bench import HEADS, TOKENS
from . import simulated
from .rung import KEYS
from .rungs import RUNGS

MASKS = ("full", "causal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("--device", choices=("auto", "gpu", "sim"), default="auto",
                        help="auto: the GPU if there is one, else the CPU device")
    parser.add_argument("--length", type=positive, default=4096, metavar="S", help="queries and keys of a head (default 4096)")
    parser.add_argument("--heads", type=positive, metavar="H", help=f"heads in all (default {TOKENS * HEADS} divided by the length)")
    parser.add_argument("--mask", choices=(*MASKS, "both"), default="both")
    parser.add_argument("--rounds", type=positive, default=12, help="interleaved rounds (default 12)")
    parser.add_argument("-o", "--json", type=output_path, metavar="FILE", help="write the results there, after each mask")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: every step is right, and on a GPU was measured; 1: one is wrong, is not certified, or could not be measured."""
    if options.device == "sim" or (options.device == "auto" and not driver.available("sm_90a")):
        if options.json is not None:
            raise UsageError("-o is for measurements, which need a Hopper GPU; the CPU device gives verdicts")
        if options.device == "auto":
            print("there is no Hopper GPU here: the steps run on the CPU device, and no time is measured", file=sys.stderr)
        return simulated.ladder(print, RUNGS)
    driver.probe()
    for rung in RUNGS:
        rung.require(options.length, KEYS)
    masks = MASKS if options.mask == "both" else (options.mask,)
    command = invocation("ptxkit.attention")
    with tempfile.TemporaryDirectory() as folder:
        given = {"masks": masks, "length": options.length, "heads": options.heads or max(1, TOKENS * HEADS // options.length),
                 "rounds": options.rounds, "json": str(options.json.absolute()) if options.json else "", "command": command,
                 "kept": str(Path(folder) / "found.json")}
        return watched("ptxkit.attention.ladder.worker:worker", given, Path(folder) / "step.json",
                       say=lambda line: print(line, file=sys.stderr))


__all__ = ["add_arguments", "run"]
