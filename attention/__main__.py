"""`python -m ptxkit.attention bench`, `bench-decode`, `verify`, `ladder` and `timeline`: beside other libraries, against float64, step by
step, and by the clocks of its marks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ptxkit.cli.guard import Parser, guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """0: right; 1: wrong or failed; 2: usage."""
    arguments = sys.argv[1:] if arguments is None else arguments

    def run() -> int:
        options = _parser().parse_args(arguments)
        return int(options.run(options))

    return guarded(run, arguments, "error: ")


def _parser() -> argparse.ArgumentParser:
    from .ladder import command as ladder
    from .tools import bench, bench_decode, timeline, verify

    parser = Parser(prog="python -m ptxkit.attention", description="Hopper attention kernels written with ptxkit.")
    commands = parser.add_subparsers(dest="command", required=True)
    bench.add_arguments(commands.add_parser("bench", help="12 shapes beside torch's backends, interleaved (needs torch and a GPU)"))
    verify.add_arguments(commands.add_parser("verify", help="random problems against float64, with guard bands (needs torch)"))
    ladder.add_arguments(commands.add_parser("ladder", help="from a loop to the final kernel, step by step, checked and measured"))
    bench_decode.add_arguments(commands.add_parser("bench-decode", help="decode beside a read of the same bytes (needs torch and a GPU)"))
    timeline.add_arguments(commands.add_parser("timeline", help="when each warp did what, and what the marks cost"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
