"""`python -m ptxkit.gemm explain -m -n -k`: which configuration a product gets, why, and what the model says of the others."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from ptxkit.cards import Card
from ptxkit.cli.errors import UsageError
from ptxkit.cli.numbers import count, positive

from ..config.dense import DenseConfig
from ..heuristic import corrections
from ..heuristic.costs import Columns, Parts, Sizes, estimate, of_card
from ..heuristic.dense import by_waves, candidates, clocks, heuristic, judged
from ..heuristic.tuned import tuned
from ..problem.dense import Problem
from . import options as shared
from .problems import asked

LAYOUTS = ("nt", "nn", "tn", "tt")
TYPES = ("bf16", "f16", "f32", "e4m3", "e5m2")
PARTS = ("waves", "steps", "copy", "multiply", "stage", "store", "tiles", "reduction", "memory")
SHOWN = (*PARTS, "learned")
HEADER = """\
us        the model's time of a launch                  waves   work tiles of a CTA, a partial last wave as its share
steps     stages of a work tile                         copy    clocks of a stage's copies: lines of the L2, shared by multicast
multiply  clocks of a stage's products                  stage   clocks of a stage: both, latency, barriers
store     clocks of a tile's epilogue                   tiles   us of all stages and epilogues of a CTA
reduction us of adding up the sums of a split K         memory  us of reading operands and writing D
learned   what measurements of such products say beyond the model: a factor; nothing where they were not asked, behind the model's first"""


def explained(problem: Problem, card: Card, most: int) -> dict[str, Any]:
    """The choice and its reason, and the first `most` candidates with the parts of their estimates (`parts` is empty where a model chooses
    that has no others than the time)."""
    table = tuned(problem, card)
    chosen = table or heuristic(problem, card)
    model = "operands that threads copy" if problem.by_threads else "waves" if by_waves(problem, card) else "costs"
    by = "the tuned table of the card" if table else f"the model of {model}"
    rows = list(_by_costs(problem, card) if model == "costs" else _by_time(problem, card))
    place = next((place for place, row in enumerate(rows) if row["config"] == chosen), None)
    shown = rows[:most]
    if place is None and model == "costs":
        costs = of_card(card)
        parts = estimate(costs, Sizes.of(problem), Columns.of([chosen], card, costs))
        shown.append(_row(chosen, parts, clocks(problem, chosen, card), 0, card))
    elif place is not None and place >= most:
        shown.append(rows[place])
    return {"card": card.name, "problem": [problem.m, problem.n, problem.k, problem.batches], "by": by, "chosen": chosen, "place": place,
            "of": len(rows), "us": clocks(problem, chosen, card) / card.clock_mhz, "candidates": shown}


def _by_costs(problem: Problem, card: Card) -> Iterator[dict[str, Any]]:
    all_ = judged(problem, card)
    first = set(corrections.asked_of(all_.parts.total).tolist())
    for place, config in all_.fastest_first():
        yield _row(config, all_.parts, float(all_.clocks[place]), place, card, learned=place in first)


def _row(config: DenseConfig, parts: Parts, total: float, place: int, card: Card, *, learned: bool = True) -> dict[str, Any]:
    named: dict[str, float | None] = {name: float(getattr(parts, name)[place]) for name in PARTS}
    for name in ("tiles", "reduction", "memory"):
        named[name] = float(getattr(parts, name)[place]) / card.clock_mhz
    named["learned"] = total / float(parts.total[place]) if learned else None
    return {"config": config, "us": total / card.clock_mhz, "parts": named}


def _by_time(problem: Problem, card: Card) -> Iterator[dict[str, Any]]:
    timed = [(clocks(problem, config, card) / card.clock_mhz, place, config) for place, config in enumerate(candidates(problem, card))]
    for us, _, config in sorted(timed):
        yield {"config": config, "us": us, "parts": {}}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The explanation as text."""
    m, n, k, batches = found["problem"]
    yield f"{'' if batches is None else f'{batches:,} products of '}{m:,} x {n:,} x {k:,}"
    yield f"{found['card']}: {found['chosen']}"
    rank = f"the model puts it first of {found['of']}" if found["place"] == 0 else "it is none of the model's candidates" \
        if found["place"] is None else f"the model puts it in place {found['place'] + 1} of {found['of']}"
    yield f"chosen by {found['by']}; {rank}, {found['us']:.2f} us"
    if any(row["parts"] for row in found["candidates"]):
        yield from ("", HEADER, "", f"{'us':>9} " + " ".join(f"{name:>9}" for name in SHOWN) + "  configuration")
    for row in found["candidates"]:
        mark = " <- chosen" if row["config"] == found["chosen"] else ""
        yield f"{row['us']:9.2f} " + " ".join(_cell(row["parts"][name]) for name in SHOWN if row["parts"]) + f"  {row['config']}{mark}"


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


__all__ = ["add_arguments", "command", "explained", "lines"]
