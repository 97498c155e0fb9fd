"""`python -m ptxkit.gemm fingerprint`: what machine code the library loads for random problems, and what differs from another tree's."""

from __future__ import annotations

import argparse
import gzip
import itertools
import sys
import time
from pathlib import Path

from ptxkit.cli.numbers import count, positive
from ptxkit.cli.output import write
from ptxkit.cli.paths import named, output_file
from ptxkit.errors import PtxkitError

from .record import Fingerprints, Record, take

SHOWN = 20
HELP = "hashes of the machine code of the kernels that random problems get, to compare two versions of the library"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=count, help="of the problems (default 0, or that of the other file)")
    parser.add_argument("--dense", type=count, default=500, metavar="N", help="distinct kernels of dense products (default 500)")
    parser.add_argument("--grouped", type=count, default=500, metavar="N", help="distinct kernels of group products (default 500)")
    parser.add_argument("--jobs", type=positive, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("-o", "--output", type=output_file, metavar="FILE", help="where to write the fingerprints (- for stdout)")
    parser.add_argument("--compare", type=named, metavar="OTHER.json", help="draw the problems of that file and say what differs; 1 if any")
    parser.add_argument("--keep", type=named, metavar="DIR", help="keep normalised machine code there, and find that of the other file")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0; 1: something differs."""
    begin = time.perf_counter()
    other = Fingerprints.read(Path(options.compare)) if options.compare else None
    if other is not None and options.seed not in (None, other.seed):
        raise PtxkitError(f"{options.compare} has the problems of seed {other.seed}: leave --seed out")
    keep = Path(options.keep) if options.keep else None
    wanted = {"dense": options.dense, "grouped": options.grouped}
    made = take(other.seed if other else options.seed or 0, wanted, other=other, jobs=options.jobs, keep=keep)
    if options.output:
        write(options.output, made.text().encode())
    for kind, distinct in made.distinct.items():
        print(f"{kind}: {distinct} kernels of {made.drawn[kind]} problems, {made.refused[kind]} of them refused", file=sys.stderr)
    print(f"{len(made.problems)} problems in {time.perf_counter() - begin:.0f} s, ptxas {made.ptxas}", file=sys.stderr)
    return 0 if other is None else report(other, made, keep)


def report(old: Fingerprints, new: Fingerprints, keep: Path | None = None) -> int:
    """Prints how many problems have the same kernels in both, and the first that have not; 1 if there are any."""
    both = sorted(old.problems.keys() & new.problems.keys())
    different = [key for key in both if old.problems[key] != new.problems[key]]
    alone = [(name, sorted(one.problems.keys() - two.problems.keys())) for name, one, two in (("old", old, new), ("new", new, old))]
    for key in different[:SHOWN]:
        print(f"different: {key}")
        for one, two in itertools.zip_longest(old.problems[key], new.problems[key]):
            if one != two:
                print("\n".join(f"    {line}" for line in _difference(one, two, keep)))
    for name, keys in alone:
        print("".join(f"only in the {name} one: {key}\n" for key in keys[:SHOWN]), end="")
    if old.ptxas != new.ptxas:
        print(f"ptxas {old.ptxas} there, {new.ptxas} here: other machine code is to be expected")
    if new.again:
        print(f"{new.again} problems are the same at another try of ptxas, which is not deterministic")
    said = f"{len(both) - len(different)} problems the same, {len(different)} different"
    print(said + "".join(f", {len(keys)} only in the {name} one" for name, keys in alone))
    return int(bool(different or any(keys for _, keys in alone)))


def _difference(old: Record | None, new: Record | None, keep: Path | None) -> list[str]:
    """The numbers that differ, and the first line of machine code that does, where both texts were kept."""
    if old is None or new is None:
        return [f"{'no' if old is None else old.role} kernel there, {'no' if new is None else new.role} kernel here"]
    found = [f"{name} {one} there, {two} here" for name, one, two in zip(Record._fields, old, new, strict=True) if one != two]
    texts = [_text(keep, each) for each in (old, new)]
    if texts[0] and texts[1]:
        for number, (one, two) in enumerate(itertools.zip_longest(*texts, fillvalue="")):
            if one != two:
                return [*found, f"line {number}: {one}", f"{' ' * len(f'line {number}')}  {two}"]
    return found


def _text(keep: Path | None, record: Record) -> list[str]:
    path = None if keep is None else keep / f"{record.sass}.gz"
    return gzip.decompress(path.read_bytes()).decode().splitlines() if path is not None and path.is_file() else []


__all__ = ["HELP", "add_arguments", "report", "run"]
