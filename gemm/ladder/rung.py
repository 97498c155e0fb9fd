"""A step of the ladder for the harness: a kernel, its tile, and its idea."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ptxkit import Kernel
from ptxkit.errors import PtxkitError


class ShapeError(PtxkitError, ValueError):
    """A product that a step cannot compute: the steps need whole tiles."""


@dataclass(frozen=True)
class Rung:
    """A kernel with the arguments (a, b, d, m, n, k) and, with `order`, a table of tiles.

    A[m, k], B[n, k] and D[m, n] are row-major bf16. Its marks are spans of the phases. `tile` is
    BM x BN x BK. The CTAs of a `cluster` work on vertically adjacent tiles. The grid of a `persistent` kernel has as many CTAs as the
    device holds at once; other grids are (n / BN, m / BM). `order(m, n)` makes the table.
    """

    step: int
    kernel: Kernel[...]
    tile: tuple[int, int, int]
    idea: str
    cluster: int = 1
    persistent: bool = False
    order: Callable[[int, int], list[int]] | None = None

    @property
    def name(self) -> str:
        return self.kernel.name

    def problem(self, m: int, n: int, k: int) -> str | None:
        """The reason if this step cannot compute the product, else None."""
        rows, columns, depth = self.tile
        for letter, extent, unit in (("M", m, rows * self.cluster), ("N", n, columns), ("K", k, depth)):
            if extent < 1 or extent % unit:
                below, above = extent // unit * unit, (extent // unit + 1) * unit
                nearest = f"{below} or {above}" if below else f"{above}"
                return (f"step {self.step} ({self.name}) works on whole tiles: {letter} = {extent} is not a multiple of {unit}, "
                        f"take {nearest}")
        return None

    def require(self, m: int, n: int, k: int) -> None:
        if sentence := self.problem(m, n, k):
            raise ShapeError(sentence)

    def grid(self, m: int, n: int, resident: int) -> int | tuple[int, int]:
        """The grid in CTAs. The device holds `resident` clusters (or CTAs, without clusters) at once."""
        across, down = n // self.tile[1], m // self.tile[0]
        if self.persistent:
            return min(across * down // self.cluster, resident) * self.cluster
        return across, down

    def ctas(self, m: int, n: int, resident: int) -> int:
        grid = self.grid(m, n, resident)
        return grid if isinstance(grid, int) else grid[0] * grid[1]

    def arguments(self, a: Any, b: Any, d: Any, m: int, n: int, k: int, order: Any = None) -> tuple[Any, ...]:
        return (a, b, d, m, n, k) if self.order is None else (a, b, d, m, n, k, order)
