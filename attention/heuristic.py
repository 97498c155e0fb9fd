"""Which configuration a problem gets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ptxkit.types import TYPES

from .config.decode import BLOCK, RESIDENT, WARPS, sides_of
from .config.forward import ForwardConfig
from .problem.decode import MOST, DecodeProblem
from .problem.forward import Problem

TILES = {64: (192, 128, 4, 1), 128: (128, 128, 4, 2), 256: (128, 96, 3, 1)}
"""BM, BN, stages and the staging buffers of a warpgroup, by head dim. Three warpgroups fit the registers of a head of 64: its outputs are
32. For a head of 256 three stages of 96 keys are faster than four of 64 or two of 80 for each operand."""
WIDE = {128: (128, 176, 4, 1)}
"""The same without a mask: blocks need not end at a diagonal, and longer ones spend less on maxima, rescaling and barriers."""
L2_SHARE = 0.6              # of the L2, for the keys and values of the heads that are worked on together
SHARERS = 16                # CTAs that read the same keys at the same time, where heads do not fit into the L2 together
TILE_KEYS = 192             # what a tile costs besides its blocks, in keys: queries, first scores, the last product, the store
NEARLY = 1.005              # of the shortest time: a smaller section is better for the L2
ROUNDS = 32                 # of tiles that tell how even an order is
FINE = 64                   # heads worked on together up to which every number is tried; beyond, about 45 numbers of each octave

LEAST_BLOCKS = 1                    # of a warp, in a part of a sequence
MOST_WAVES = 8                      # parts of a sequence where one part each fills the card
BESIDE = 4                          # blocks of a warp up to which launches that overlap are faster than twice the warps
GOOD = 0.9                          # of the best time: fewer parts leave less to combine


def heuristic(problem: Problem) -> ForwardConfig:
    """The configuration of a problem."""
    wide = not problem.causal and not problem.packed and problem.keys > 128
    BM, BN, stages, buffers = (WIDE if wide else TILES).get(problem.head, TILES[problem.head])
    return ForwardConfig(problem.head, BM, BN, stages, TYPES[problem.type], problem.causal, problem.packed, problem.lse,
                         pingpong=problem.head < 256, buffers=buffers, slack=problem.head == 256)


@lru_cache(maxsize=1024)
def order(problem: Problem, config: ForwardConfig, sms: int, l2_bytes: int) -> tuple[int, bool]:
    """The heads of queries that are worked on together, and whether every other round of tiles is dealt backwards.

    Without a causal mask or with few keys all tiles are equal, and one head at a time is best for the L2. Packed sequences have an order of
    their own. Else: the fewest heads with which CTAs are busy for nearly equal times, of those whose keys and values fit into the L2
    together. A few always may: CTAs share what they read, because tiles begin at key 0 at about the same time.
    """
    if not problem.causal or problem.packed or not problem.keys:
        return 1, False
    head_bytes = 2 * problem.keys * problem.head * TYPES[problem.type].bits // 8
    ends = np.minimum(problem.keys, np.arange(-(-problem.queries // config.BM), 0, -1) * config.BM)
    costs = -(-ends // config.BN) * config.BN + TILE_KEYS
    if costs[0] == costs[-1]:
        return 1, False
    heads = min(problem.heads * problem.batches, -(-ROUNDS * sms // len(costs)))
    most = min(heads, problem.group * max(int(L2_SHARE * l2_bytes) // head_bytes, sms // SHARERS, 1))
    times = {(count, turning): time for count in _tried(most)
             for turning, time in zip((False, True), _longest(_ordered(costs, heads, count), sms), strict=True)}
    return next(choice for choice, time in times.items() if time <= NEARLY * min(times.values()))


def _tried(most: int) -> Iterator[int]:
    """Numbers of heads to try, up to `most`. The steps between them grow: neighbouring large numbers give nearly the same order."""
    count = 1
    while count <= most:
        yield count
        count += max(1, count // FINE)


def _ordered(costs: np.ndarray[Any, Any], heads: int, section: int) -> np.ndarray[Any, Any]:
    """The costs of all tiles in the order of `TileScheduler`."""
    whole, rest = divmod(heads, section)
    falls = np.repeat(costs, section)
    first = falls if (whole + bool(rest)) % 2 else falls[::-1]
    return np.concatenate([np.resize(np.concatenate([first, first[::-1]]), whole * len(falls)), np.repeat(costs, rest)])


def _longest(costs: np.ndarray[Any, Any], sms: int) -> tuple[int, int]:
    """The cost of the CTA that gets the most of these tiles: where all rounds are dealt forwards, and where every other one is not."""
    dealt = np.zeros((-(-len(costs) // sms), sms), np.int64)
    dealt.reshape(-1)[:len(costs)] = costs
    even, odd = dealt[::2].sum(0), dealt[1::2].sum(0)
    return int((even + odd).max()), int((even + odd[::-1]).max())


def splits(problem: DecodeProblem, sms: int) -> int:
    """The CTAs that share the keys of a sequence, from the most keys that it may have: the fewest whose warps are done almost as early as
    with any other number. With few blocks for a warp there is one CTA for an SM, and the next launch begins beside it."""
    count, turns = _fewest(problem, sms)
    return count if turns <= BESIDE else _fewest(problem, sms * RESIDENT)[0]


def _fewest(problem: DecodeProblem, places: int) -> tuple[int, int]:
    """The splits where so many CTAs are at work at a time, and the blocks that a warp works on then, one after another, and those after it
    in its place."""
    blocks, teams = -(-problem.keys // BLOCK), WARPS // sides_of(problem.head)
    most = max(1, min(blocks // (LEAST_BLOCKS * teams), max(MOST_WAVES, places // max(1, problem.units)), MOST))
    turns = {count: -(-problem.units * count // places) * -(-blocks // (count * teams)) for count in range(1, most + 1)}
    best = min(turns.values())
    return next((count, found) for count, found in turns.items() if GOOD * found <= best)


__all__ = ["heuristic", "order", "splits"]
