"""What a launch passes besides tensor maps, for a GPU and for the CPU device."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxkit.types import TYPES

from ..config.forward import ForwardConfig
from ..heuristic import order
from ..problem.forward import Problem


@dataclass(frozen=True, slots=True)
class Grid:
    """The CTAs of a launch, and its tiles."""

    problem: Problem
    config: ForwardConfig
    sms: int
    l2_bytes: int

    @property
    def m_tiles(self) -> int:
        """Tiles of queries in a head; for packed sequences the most that there can be: each may have one that is not whole."""
        problem = self.problem
        if not problem.packed:
            return -(-problem.queries // self.config.BM)
        return problem.queries // self.config.BM + problem.sequences

    @property
    def tiles(self) -> int:
        return self.m_tiles * self.problem.heads * self.problem.batches

    @property
    def ctas(self) -> tuple[int, int, int]:
        return max(1, min(self.tiles, self.sms)), 1, 1

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The arguments by name. `pointer` gives the address of an array, or the array."""
        problem = self.problem
        lines = dict(problem.lines)["o"]                        # outputs of packed sequences: heads are batches
        size = TYPES[problem.type].bits // 8
        section, turning = order(problem, self.config, self.sms, self.l2_bytes)
        return {"sums": pointer("lse"), "scale": problem.scale * math.log2(math.e),
                "shape": {"queries": problem.queries, "keys": problem.keys, "heads": problem.heads, "group": problem.group,
                          "outer": problem.heads * problem.batches, "m_tiles": self.m_tiles,
                          "section": section, "turning": int(turning), "tiles": self.tiles},
                "sequences": {"cu_seqlens": pointer("cu_seqlens"), "count": problem.sequences,
                              "out": {"pointer": pointer("out"), "row": lines.strides[0] // size, "batch": lines.strides[1] // size}}}


__all__ = ["Grid"]
