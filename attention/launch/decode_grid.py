"""What the launches of decode pass, for a GPU and for the CPU device."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.types import TYPES

from ..config.decode import DecodeConfig
from ..heuristic import splits as chosen_splits
from ..problem.decode import MOST, DecodeProblem


def whole(splits: Any) -> int:
    """A number of splits as an int. Raises LaunchError for what is none."""
    try:
        found = 0 if isinstance(splits, bool) else operator.index(splits)
    except TypeError:
        found = 0
    if not 1 <= found <= MOST:
        raise LaunchError(f"splits is {splits!r}: 1 to {MOST} CTAs share the keys of a sequence")
    return found


class DecodeGrid:
    """The configuration of a problem and the CTAs of its launches: decode, and where the keys are split, combine."""

    __slots__ = ("config", "problem", "splits")

    def __init__(self, problem: DecodeProblem, sms: int, splits: int | None) -> None:
        self.problem = problem
        self.splits = chosen_splits(problem, sms) if splits is None else whole(splits)
        self.config = DecodeConfig(problem.head, problem.page, TYPES[problem.type], self.splits > 1, problem.lse)

    @property
    def ctas(self) -> tuple[tuple[int, int, int], ...]:
        """The grids of decode and of combine."""
        problem = self.problem
        return (problem.batches, problem.kv_heads * problem.slices, self.splits), (problem.batches, problem.heads, 1)

    def parts(self, workspace: int) -> dict[str, Any]:
        """The addresses of the parts in a workspace."""
        rows = self.splits * self.problem.batches * self.problem.heads
        tops = workspace + 4 * rows * self.problem.head
        return {"values": workspace, "tops": tops, "totals": tops + 4 * rows}

    def arguments(self, pointer: Callable[[str], Any], parts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of decode and of combine by name. `pointer` gives the address of an array, or the array."""
        problem, strides = self.problem, dict(self.problem.strides)

        def heads(name: str) -> dict[str, Any]:
            return {"pointer": pointer(name), **dict(zip(("batch", "head"), strides[name], strict=True))}

        def cache(name: str) -> dict[str, Any]:
            return {"pointer": pointer(name), **dict(zip(("page", "row", "head"), strides[name], strict=True))}

        table = {"pages": pointer("page_table"), "row": problem.row, "lengths": pointer("lengths"), "limit": problem.keys,
                 "last": max(problem.pages - 1, 0)}
        both = {"parts": parts, "out": heads("out"), "sums": pointer("lse")}
        shape = {"heads": problem.heads, "group": problem.group, "slices": problem.slices}
        return ({**both, "q": heads("q"), "k": cache("k_cache"), "v": cache("v_cache"), "table": table, "shape": shape,
                 "scale": problem.scale * math.log2(math.e)}, {**both, "splits": self.splits})


__all__ = ["DecodeGrid", "whole"]
