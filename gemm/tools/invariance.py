"""`python -m ptxkit.gemm invariance`: on a GPU, which families of configurations give a row the same bits.

Batch invariance relies on one family, `whole K`: a tensor core adds up an element's products in an order that neither the width of the
instruction nor the place of the element changes. The others are measured beside it. Numbers are random and results f32, so that a sum in
another order differs in most elements.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ptxkit.cards import Card
from ptxkit.cli.numbers import count, positive
from ptxkit.runtime import driver
from ptxkit.types import f32

from ..config.dense import DenseConfig, Operands
from ..config.grouped import GroupedConfig, GroupOperands, SwapAB
from ..config.invariant import varies
from ..config.parts import ConfigError, SplitK, StreamK, Tile
from ..heuristic.dense import candidates
from ..launch.dense import card_of
from .bench import run as bench
from .bench.operands import normal
from .bench.shapes import BYTES
from .problems import asked

Bits = np.ndarray[Any, Any]
Multiply = Callable[[int, int, DenseConfig | GroupedConfig], Bits]
"""(M, N, configuration) -> the f32 bits of D [M, N] of the first M rows of A and the first N columns of B, which stay the same."""

WHOLE = "whole K"
KINDS = (("bf16", "nt", 4096), ("bf16", "nn", 4096), ("f16", "nt", 1000), ("f16", "tt", 4096), ("f32", "nt", 2048), ("e4m3", "nt", 4096))
EXTENTS = ((512, 512), (1, 512), (16, 64), (64, 512), (136, 200), (320, 96))


def family(config: DenseConfig | GroupedConfig) -> str:
    """What sets the order of its sums apart."""
    if isinstance(config, GroupedConfig):
        return "tokens as columns" if config.swap_ab else "tokens as rows"
    if varies(config) is None:
        return WHOLE
    return "split-K" if isinstance(config.scheduler, SplitK) else "stream-K" if isinstance(config.scheduler, StreamK) else "longer stages"


def configurations(m: int, n: int, k: int, dtype: str, layout: str, count: int, card: Card, source: random.Random,
                   ) -> Iterator[DenseConfig | GroupedConfig]:
    """`count` candidates of a product of these extents, and some of each other family."""
    problem = asked(m, n, k, dtype, out="f32", layout=layout)
    found = list(candidates(problem, card))
    whole = [config for config in found if varies(config) is None]
    split = [config for config in found if varies(config)]
    yield from source.sample(whole, min(count, len(whole)))
    yield from source.sample(split, min(max(2, count // 4), len(split)))
    operands, stage = problem.operands, 128 // BYTES[dtype]
    groups = GroupOperands(operands.a, operands.b, f32) if dtype != "f32" and layout == "nt" else None
    for make in (lambda: _longer(operands, 2 * stage), *((lambda: GroupedConfig(groups, tile=Tile(64, 128)),
                                                         lambda: GroupedConfig(groups, SwapAB(), Tile(64, 64)),
                                                         lambda: GroupedConfig(groups, SwapAB(), Tile(128, 32))) if groups else ())):
        try:
            yield make()
        except ConfigError:
            continue


def _longer(operands: Operands, BK: int) -> DenseConfig:
    return DenseConfig(operands, Tile(64, 64, BK))


def compared(multiply: Multiply, k: int, dtype: str, layout: str, count: int, card: Card, seed: int = 0,
             extents: tuple[tuple[int, int], ...] = EXTENTS) -> dict[str, dict[str, int]]:
    """By family: the products, their elements, and how many of these have other bits than the same element of the first product."""
    source = random.Random(seed)
    first = multiply(*extents[0], next(configurations(*extents[0], k, dtype, layout, 1, card, source)))
    found: dict[str, dict[str, int]] = {}
    for m, n in extents:
        for config in configurations(m, n, k, dtype, layout, count, card, source):
            seen = found.setdefault(family(config), {"products": 0, "elements": 0, "differ": 0})
            bits = multiply(m, n, config)
            seen["products"] += 1
            seen["elements"] += m * n
            seen["differ"] += int((bits != first[:m, :n]).sum())
    return found


def on_gpu(torch: Any, dtype: str, layout: str, k: int) -> Multiply:
    """Products of random operands on the current device."""
    from ..launch.dense import gemm
    from ..launch.grouped import group_gemm

    m, n = (max(extents[axis] for extents in EXTENTS) for axis in (0, 1))
    a = normal(torch, dtype, m, k) if layout[0] == "n" else normal(torch, dtype, k, m).T
    b = normal(torch, dtype, n, k).T if layout[1] == "t" else normal(torch, dtype, k, n)

    def multiply(rows: int, columns: int, config: DenseConfig | GroupedConfig) -> Bits:
        d = torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.float32)
        if isinstance(config, GroupedConfig):
            lengths = torch.tensor([0, rows], device="cuda", dtype=torch.int32)
            group_gemm(a[:rows], b[:, :columns].T[None], lengths, out=d, config=config)
        else:
            # Lines of one element have no stride of their own: what is cut out is laid anew, as the configuration has it.
            some = a[:rows].T.contiguous().T if layout[0] == "t" else a[:rows]
            gemm(some, b[:, :columns].contiguous() if layout[1] == "n" else b[:, :columns], d, config=config)
        return np.asarray(d.cpu().numpy().view(np.uint32))

    return multiply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, and `run` for the command line."""
    parser.add_argument("--count", type=positive, default=24, metavar="N", help="configurations of each extents and type (default 24)")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=command)


def command(options: argparse.Namespace) -> int:
    """0: the family that batch invariance relies on has the same bits everywhere; 1: it has not."""
    driver.probe()
    torch = bench.library()
    card = card_of(driver.current_device())
    found = {f"{dtype} {layout} K={k}": compared(on_gpu(torch, dtype, layout, k), k, dtype, layout, options.count, card, options.seed)
             for dtype, layout, k in KINDS}
    if options.json:
        print(json.dumps({"device": driver.device(driver.current_device()).name, "seed": options.seed, "kinds": found}))
    else:
        print("\n".join(lines(found)))
    return int(any(seen[name]["differ"] for seen in found.values() for name in (WHOLE, "tokens as rows") if name in seen))


def lines(found: dict[str, dict[str, dict[str, int]]]) -> Iterator[str]:
    """A line for each kind of product and family."""
    for what, families in found.items():
        for name, seen in families.items():
            yield f"{what:<18} {name:<18} {seen['products']:>4} products: {seen['differ']} of {seen['elements']} elements differ"


__all__ = ["add_arguments", "command", "compared", "configurations", "family", "lines", "on_gpu"]
