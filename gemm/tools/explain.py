"""`python -m ptxkit.gemm explain -m -n -k`: which configuration a product gets, why, and what the model says of the others."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Container, Iterator
from typing import Any

from ptxkit.cards import Card
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, positive

from ..config.dense import DenseConfig
from ..config.parts import Loads
from ..heuristic import copied, promoted, waves
from ..heuristic.costs import of_card
from ..heuristic.dense import by_causes, by_waves, clocks, heuristic, judged, timed
from ..heuristic.overlaps import at_the_start
from ..heuristic.tuned import tuned
from ..heuristic.waves import DRAINED, WORTH_SPLITTING
from ..problem.dense import Problem
from . import options as shared
from .problems import asked

LAYOUTS = ("nt", "nn", "tn", "tt")
TYPES = ("bf16", "f16", "f32", "e4m3", "e5m2")
PARTS = ("waves", "steps", "copy", "multiply", "stage", "store", "tiles", "reduction", "cluster", "memory", "factor")
"""Of `costs.Parts`, in this order."""
TIMES = ("tiles", "reduction", "cluster", "memory")
"""The parts that are told in microseconds."""
SHOWN = (*PARTS, "learned", "further")
HEADER = """\
us        the model's time of a launch                  waves   work tiles of a CTA, a partial last wave as its share
steps     stages of a work tile                         copy    clocks of a stage's copies: lines of the L2, shared by multicast
multiply  clocks of a stage's products                  stage   clocks of a stage: both, latency, barriers
store     clocks of a tile's epilogue                   tiles   us of all stages and epilogues of a CTA
reduction us of adding up the sums of a split K         cluster us until the CTAs of a cluster have begun
memory    us of reading operands and writing D          factor  how many times as long such kernels take as the causes say
learned   what measurements of such products say beyond the model: a factor, with that of the next kernel's begin;
          nothing where they were not asked, behind the model's first
further   us of threads that copy operands, before the product or in it, and that store elements"""


def explained(problem: Problem, card: Card, most: int) -> dict[str, Any]:
    """The choice and its reason, and the first `most` candidates and the chosen one with the parts of their estimates."""
    table = tuned(problem, card)
    chosen = table or heuristic(problem, card)
    first = _asked_of_trees(problem, card)
    found = list(timed(problem, card))
    rows = [_row(problem, config, clocks, card, place in first) for place, (clocks, config) in enumerate(found[:most])]
    place = next((place for place, (_, config) in enumerate(found) if config == chosen), None)
    alike = None if place is not None else next((at for at, (_, config) in enumerate(found)
                                                  if at_the_start(config) == at_the_start(chosen)), None)
    if place is None:
        own = _row(problem, chosen, clocks(problem, chosen, card), card, True)
    else:
        own = rows[place] if place < most else _row(problem, chosen, found[place][0], card, place in first)
    shown = rows if place is not None and place < most else [*rows, own]
    by = "operands that threads copy" if problem.by_threads else own["model"]
    return {"card": card.name, "problem": [problem.m, problem.n, problem.k, problem.batches],
            "by": "the tuned table of the card" if table else f"the model of {by}", "chosen": chosen, "place": place,
            "but_for_overlap": alike, "of": len(found), "us": own["us"], "models": models(card), "candidates": shown}


def models(card: Card) -> dict[str, dict[str, Any]]:
    """How each model makes a time of its parts, and `launch`, the us until the first stage arrives."""
    costs, work = of_card(card), "tiles + reduction + cluster"
    power = f"{costs.overlap:g}"
    return {"costs": {"launch": costs.launch / card.clock_mhz,
                      "formula": f"(launch + (({work})^{power} + memory^{power})^(1/{power})) x factor x learned + further"},
            "waves": {"launch": card.fit.prologue / card.clock_mhz,
                      "formula": f"launch + max({work}, memory + {DRAINED:g} x (launch + {work})) + further"}}


def _asked_of_trees(problem: Problem, card: Card) -> Container[int]:
    """The ranks, the fastest first, of the candidates that the trees corrected."""
    if problem.by_threads or problem.promote or by_waves(problem, card):
        return range(sys.maxsize)
    found = judged(problem, card)
    return {rank for rank, (place, _) in enumerate(found.fastest_first()) if place in found.corrected}


def _row(problem: Problem, config: DenseConfig, total: float, card: Card, learned: bool) -> dict[str, Any]:
    """A candidate with its time and the parts of that."""
    further, asked, model = 0.0, problem, "costs"
    if problem.by_threads and isinstance(config.loads, Loads):
        further, asked = copied.copying(problem, config.loads.align, card), problem.aligned(config.loads.align)
    if asked.by_threads:
        parts, further = copied.parts(asked, config, card)
    elif asked.promote:
        parts = promoted.parts(asked, config, card)
    elif by_waves(asked, card):
        parts, model = waves.parts(asked, config, card), "waves"
    else:
        parts = by_causes(asked, config, card)[0]
    named: dict[str, float | None] = {name: float(getattr(parts, name)[0]) / (card.clock_mhz if name in TIMES else 1) for name in PARTS}
    named["learned"] = (total - further) / float(parts.total[0]) if model == "costs" and learned and not problem.promote else None
    named["further"] = further / card.clock_mhz
    return {"config": config, "model": model, "us": total / card.clock_mhz, "parts": named}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The explanation as text."""
    m, n, k, batches = found["problem"]
    yield f"{'' if batches is None else f'{batches:,} products of '}{m:,} x {n:,} x {k:,}"
    yield f"{found['card']}: {found['chosen']}"
    place, alike = found["place"], found["but_for_overlap"]
    rank = _rank(alike if place is None else place, found["of"]) + (alike is not None) * ", where the next kernel begins at another time"
    if place and found["by"] == "the model of waves":
        rank += f", of those that take about as long one that comes before: K is split further only for {1 - WORTH_SPLITTING:.0%} less"
    yield f"chosen by {found['by']}; {rank}, {found['us']:.2f} us"
    yield from ("", HEADER, "")
    for name in dict.fromkeys(row["model"] for row in found["candidates"]):
        yield f"by {name}: us = {found['models'][name]['formula']}; launch is {found['models'][name]['launch']:.2f} us"
    yield ""
    yield f"{'us':>9} " + " ".join(f"{name:>9}" for name in SHOWN) + "  configuration"
    for row in found["candidates"]:
        mark = " <- chosen" if row["config"] == found["chosen"] else ""
        yield f"{row['us']:9.2f} " + " ".join(_cell(row["parts"][name]) for name in SHOWN) + f"  {row['config']}{mark}"


def _rank(place: int | None, of: int) -> str:
    if place is None:
        return "it is none of the model's candidates"
    return f"the model puts it first of {of}" if place == 0 else f"the model puts it in place {place + 1} of {of}"


def _cell(value: float | None) -> str:
    return f"{'' if value is None else f'{value:.2f}':>9}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    for name in "mnk":
        parser.add_argument(f"-{name}", type=positive, required=True, help=name.upper())
    parser.add_argument("--dtype", choices=TYPES, default="bf16", help="type of A and B (default bf16)")
    parser.add_argument("--out-dtype", choices=TYPES, help="type of D (default: that of A; bf16 for 8-bit types)")
    parser.add_argument("--layout", choices=LAYOUTS, default="nt", help="A then B: n row-major, t column-major (default nt)")
    parser.add_argument("--batch", type=positive, metavar="L", help="so many products in one launch")
    parser.add_argument("--shared", choices=("a", "b"), help="with --batch: the operand that is the same for all products")
    parser.add_argument("--batch-invariant", action="store_true", help="the order of sums depends on K and the layout alone")
    parser.add_argument("--most", type=count, default=12, metavar="N", help="show N candidates (default 12)")
    shared.add_card(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: explained."""
    if options.shared and options.batch is None:
        raise UsageError("--shared is of a batch: give --batch too")
    eight = options.dtype in ("e4m3", "e5m2")
    problem = asked(options.m, options.n, options.k, options.dtype, out=options.out_dtype or ("bf16" if eight else None),
                    layout=options.layout, batches=options.batch, shared=options.shared or "", scaled=eight,
                    batch_invariant=options.batch_invariant)
    found = explained(problem, shared.card(options.card), options.most)
    if options.json:
        print(json.dumps(_plain(found)))
    else:
        print("\n".join(lines(found)))
    return 0


def _plain(value: Any) -> Any:
    """With configurations in words."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, DenseConfig) else value


__all__ = ["add_arguments", "command", "explained", "lines", "models"]
