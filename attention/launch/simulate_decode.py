"""Decode on the CPU device: runs the same kernels as on a GPU, on NumPy arrays, and reports what the checker found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.gemm.launch.on_cpu import bytes_of, check_card, check_overlap

from ..kernels.decode import combine, decode
from ..problem.decode import DecodeArrays, DecodeProblem
from .decode_grid import DecodeGrid
from .simulate import seen

if TYPE_CHECKING:
    from ptxkit.dsl.kernel import Kernel
    from ptxkit.sim import Report

Array = np.ndarray[Any, Any]
BEFORE = {"decode": {"writes": ["q_pointer", "k_pointer", "v_pointer", "out_pointer", "sums",
                               "parts_values", "parts_tops", "parts_totals"]}}
"""What the launch before may still use while a kernel begins: all but the page table and the lengths."""


def simulate_decode(q: Array, k_cache: Array, v_cache: Array, page_table: Array, lengths: Array, out: Array, *,
                    scale: float | None = None, lse: Array | None = None, dtype: str | None = None, splits: int | None = None,
                    card: Card = H200, schedule: str = "fifo", seed: int = 0, check: bool = True) -> list[Report]:
    """`out[...]`, and `lse[...]` if it is given, are those of `ptxkit.attention_decode(q, ...)`, executed on the CPU. Returns the report of
    each launch.

    Arrays are float16, ml_dtypes' bfloat16, or uint16 with the bits of `dtype`. `splits` None is chosen for `card`. `schedule`, `seed` and
    `check` are passed to `ptxkit.sim.run`.
    """
    from ptxkit.sim.limits import UNLIMITED

    return [kernel.simulate(grid, **named, **chosen, schedule=schedule, seed=seed, check=check, max_steps=UNLIMITED,
                            previous=BEFORE.get(kernel.name))
            for kernel, grid, named, chosen in decode_launches(q, k_cache, v_cache, page_table, lengths, out, scale=scale, lse=lse,
                                                              dtype=dtype, splits=splits, card=card)]


def decode_launches(q: Array, k_cache: Array, v_cache: Array, page_table: Array, lengths: Array, out: Array, *,
                    scale: float | None = None, lse: Array | None = None, dtype: str | None = None, splits: int | None = None,
                    card: Card = H200) -> list[tuple[Kernel[...], tuple[int, int, int], dict[str, Any], Mapping[str, Any]]]:
    """The kernel, the grid, the arguments and the compile-time parameters of each launch of a call, as `ptxkit.prove` takes them."""
    check_card(card)
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "page_table": page_table, "lengths": lengths, "out": out, "lse": lse}
    arrays = DecodeArrays(**{name: None if array is None and name == "lse" else seen(name, array, dtype)        # type: ignore[arg-type]
                             for name, array in given.items()})
    problem = DecodeProblem.of(arrays, scale)
    check_overlap(given, ("out", "lse"), in_place=("q",))
    if problem.empty:
        return []
    grid = DecodeGrid(problem, card.sms, splits)
    memory = {name: bytes_of(array) for name, array in given.items() if array is not None and array.dtype.itemsize == 2}
    memory["lse"] = np.zeros(1, np.float32) if lse is None else lse.reshape(-1)
    memory["page_table"], memory["lengths"] = bytes_of(page_table).view(np.uint32) if page_table.size else np.zeros(1, np.uint32), lengths
    rows = grid.splits * problem.batches * problem.heads if grid.config.split else 1
    parts = {name: np.full(count, np.nan, np.float32) for name, count in (("values", rows * problem.head), ("tops", rows),
                                                                         ("totals", rows))}
    of_decode, of_combine = grid.arguments(memory.__getitem__, parts)
    found: list[tuple[Any, ...]] = [(decode, grid.ctas[0], of_decode, grid.config.parameters)]
    if grid.config.split:
        found.append((combine, grid.ctas[1], of_combine, grid.config.combining))
    return found


__all__ = ["decode_launches", "simulate_decode"]
