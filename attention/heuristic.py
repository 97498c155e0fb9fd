"""Which configuration a problem gets."""

from __future__ import annotations

from ptxkit.types import TYPES

from .config.decode import BLOCK, RESIDENT, WARPS
from .config.forward import ForwardConfig
from .problem.decode import MOST, DecodeProblem
from .problem.forward import Problem

TILES = {64: (192, 128, 1), 128: (128, 128, 2), 256: (128, 64, 2)}
"""BM, BN and the staging buffers of a warpgroup, by head dim. Three warpgroups fit the registers of a head of 64: its outputs are 32."""
WIDE = {128: (128, 176, 1)}
"""The same without a mask: blocks need not end at a diagonal, and longer ones spend less on maxima, rescaling and barriers."""
L2_SHARE = 0.6              # of the L2, for the keys and values of the heads that are worked on together

LEAST_KEYS = 2 * WARPS * BLOCK      # of a part of a sequence: two blocks for each warp
MOST_WAVES = 8                      # parts of a sequence where one part each fills the card
GOOD = 0.9                          # of the best use of the card: fewer parts leave less to combine


def heuristic(problem: Problem) -> ForwardConfig:
    """The configuration of a problem."""
    wide = not problem.causal and not problem.packed and problem.keys > 128
    BM, BN, buffers = (WIDE if wide else TILES).get(problem.head, TILES[problem.head])
    return ForwardConfig(problem.head, BM, BN, type=TYPES[problem.type], causal=problem.causal, packed=problem.packed, lse=problem.lse,
                         pingpong=problem.head < 256, buffers=buffers)


def section(problem: Problem, l2_bytes: int) -> int:
    """The heads of queries that are worked on together. Without a causal mask all tiles are equal, and one head at a time is best for the
    L2; with it, more heads have tiles of equal lengths side by side."""
    if not problem.causal:
        return 1
    head_bytes = 2 * problem.keys * problem.head * TYPES[problem.type].bits // 8
    fitting = max(1, int(L2_SHARE * l2_bytes) // max(1, head_bytes)) * problem.group
    return max(1, min(fitting, problem.heads * problem.batches))


def splits(problem: DecodeProblem, sms: int) -> int:
    """The CTAs that share the keys of a sequence, from the most keys that it may have: the fewest whose waves fill the card well."""
    places = sms * RESIDENT
    most = max(1, min(problem.keys // LEAST_KEYS, max(MOST_WAVES, places // max(1, problem.units)), MOST))

    def use(count: int) -> float:
        ctas = problem.units * count
        return ctas / (-(-ctas // places) * places)

    best = max(use(count) for count in range(1, most + 1))
    return next(count for count in range(1, most + 1) if use(count) >= GOOD * best)


__all__ = ["heuristic", "section", "splits"]
