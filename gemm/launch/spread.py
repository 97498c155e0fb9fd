"""`gemm.spread`: rows written to each of their places, the copy before a mixture of experts; on the device and on the CPU device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxkit.dsl.kernel import Kernel
from ptxkit.errors import LaunchError
from ptxkit.newest import Newest
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import check_dtype, check_shape, empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.types import TYPES

from ..kernels.combine import THREADS, VECTOR
from ..kernels.combine import spread as spread_kernel
from .combine import MOST_TILES, Sums, choices, matrix, row_of_result, run_problem, views_of, wide

if TYPE_CHECKING:
    import numpy as np

    from ptxkit.sim import Report

    Array = np.ndarray[Any, Any]

_launches: Newest[Any, Sums] = Newest()


class SpreadProblem:
    """One spread, checked: everything of it but the pointers."""

    kernel: Kernel[...] = spread_kernel
    written: tuple[str, ...] = ("out",)

    def __init__(self, x: ArrayView, place: ArrayView, out: ArrayView) -> None:
        self.rows, self.columns = matrix("x", x)
        count, self.top = choices(place, None, None)
        if count != self.rows:
            raise LaunchError(f"place has shape {place.shape} and x {x.shape}: it has a row for each row of x, with the rows of out that "
                              "are copies of it")
        check_dtype("out", out, (x.dtype,))
        check_shape("out", out, (None, self.columns))
        self.out_rows, self.out_row = out.shape[0], row_of_result(out)
        self.empty = not (self.rows and self.columns and self.top and self.out_rows)
        self.source, self.x_row = TYPES[x.dtype], x.strides[0] if self.rows > 1 else 0
        self.wide = wide((x, self.x_row), (out, self.out_row), self.columns)
        self.vectors = -(-self.columns * self.source.bits // (8 * VECTOR)) if self.wide else self.columns
        self.across = next(across for across in (4, 2, 1) if across == 1 or (self.wide and self.vectors > across * 16))
        self.threads = next((threads for threads in (32, 64, 128) if threads * self.across >= self.vectors), THREADS)
        if -(-self.vectors // self.threads) > MOST_TILES:
            raise LaunchError(f"x has {self.columns} columns: a spread has at most {MOST_TILES * THREADS}; spread parts of them")

    @property
    def grid(self) -> tuple[int, int, int]:
        """The CTAs: along the rows of x and along its columns."""
        return -(-self.rows * self.threads // THREADS), -(-self.vectors // (self.threads * self.across)), 1

    @property
    def parameters(self) -> dict[str, Any]:
        """The kernel's compile-time parameters."""
        return {"source": self.source, "threads": self.threads, "across": self.across, "wide": self.wide}

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The kernel's arguments by name. `pointer` maps the name of an array to its address."""
        return {"x": {"pointer": pointer("x"), "row": self.x_row, "rows": self.rows}, "place": pointer("place"), "top": self.top,
                "out": {"pointer": pointer("out"), "row": self.out_row, "rows": self.out_rows}, "columns": self.columns}


def spread(x: Any, place: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[place[t, k]] = x[t] for every k. Returns `out`, by default [T K, N].

    It copies tokens to their experts: x [T, N] has the tokens, and place [T, K], int32 on the device and contiguous, the rows of `out` that
    are copies of each, as `slot` of `gemm.sort_choices`. A row of x is read once, while `gemm.combine(x, token[:, None])`, which gives the
    same rows, reads it for each of its places. Numbers below 0 and not below len(out) are written nowhere. Rows of `out` that nobody names
    keep what they have; where two have the same number, one of them is left.

    A torch tensor that requires grad is refused while gradients are recorded: ptxkit.torch has operators with them.
    """
    key: Any = marks(x, place, out) if out is not None else None
    found = _launches.get(key) if key is not None else None
    refuse_gradients(("x", x), ("out", out))
    if found is None:
        seen = {"x": view(x, "x"), "place": view(place, "place")}
        if out is None:
            _, columns = matrix("x", seen["x"])
            out = empty_like_owner(seen["x"], (math.prod(seen["place"].shape), columns), seen["x"].dtype)
        seen["out"] = view(out, "out")
        found = Sums(SpreadProblem(**seen), seen, same_device(list(seen.items())), seen["x"])
        if key is not None:
            _launches[key] = found
    found.run(raw_stream(stream, found.like))
    return out


def simulate_spread(x: Array, place: Array, *, out: Array, schedule: str = "fifo", seed: int = 0, check: bool = True) -> Report:
    """`gemm.spread` into a NumPy array `out`, executed on the CPU."""
    given = {"x": x, "place": place, "out": out}
    return run_problem(SpreadProblem(**views_of(given)), given, {"schedule": schedule, "seed": seed, "check": check})


__all__ = ["SpreadProblem", "simulate_spread", "spread"]
