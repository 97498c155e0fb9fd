"""The arithmetic of the cost of tiles on the host, with NumPy, which kernels do not load: `tile_cost` has the formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .tile_cost import Groups


@dataclass(frozen=True, slots=True)
class OnHost:
    """The lengths of all groups are one numpy array."""

    ctas: int

    def rows(self, tokens: Any, of: int) -> Any:
        return -(-tokens // of)

    def waves(self, tiles: int) -> int:
        return -(-tiles // self.ctas)

    def total(self, numbers: Sequence[Any]) -> int:
        return sum(int(number.sum()) for number in numbers)

    def real(self, number: Any) -> Any:
        return np.float32(number)

    def times(self, a: Any, b: Any) -> Any:
        return a * b

    def plus(self, a: Any, b: Any) -> Any:
        return a + b

    def less(self, a: Any, b: Any) -> Any:
        return a < b

    def pick(self, which: Any, a: Any, b: Any) -> Any:
        return np.where(which, a, b)

    def either(self, which: Any, a: Any, b: Any) -> Any:
        return np.where(which, a, b)


def on_host(lengths: Sequence[int], ctas: int) -> Groups:
    """Groups with these lengths, for a launch of so many CTAs."""
    return Groups(OnHost(ctas), [np.array(lengths, np.int64)])


__all__ = ["OnHost", "on_host"]
