"""Which structures some operands can have, and how deep their rings are: the budget of `DenseConfig`, for all structures at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxkit.smem import SHARED_LIMIT
from ptxkit.types import f32

from ..collective.epilogue import BUFFERS
from ..collective.split_k import columns_per_split
from ..config import budget
from ..config.dense import Operands
from ..config.parts import MAX_STAGES, Pingpong, Tile, shares_columns
from ..config.tiled import PINGPONG_BYTES
from .costs import Columns
from .space import SHORTER, Structure


def fitting(found: Sequence[Structure], seen: Columns, operands: Operands) -> tuple[Any, Columns]:
    """Which structures there are for these operands, and those with their rings."""
    stage, buffer, barriers = _bytes(found, operands)
    split = seen.splits > 1
    buffers = np.array([0 if one.store is None else one.store.buffers for one in found])
    staged = (buffer > 0) & ~split
    BM, BN, splits = (values.astype(np.int64) for values in (seen.BM, seen.BN, seen.splits))
    sums = np.where(seen.in_cluster > 0, splits * columns_per_split(BN, splits) * 8 * BM * 4 + 8, 0)
    fixed = barriers + np.where(staged, buffer * np.where(buffers > 0, buffers, BUFFERS), 0) + sums
    fit = np.minimum(MAX_STAGES, np.maximum(0, SHARED_LIMIT - fixed) // np.maximum(1, stage))
    given = np.array([one.stages for one in found])
    stages = np.where(buffers > 0, SHORTER, np.where(given > 0, given, fit))
    stored = staged | ((buffers == 0) & ((seen.swapped == 0) | (split & (buffer > 0))))
    streams = (seen.stream == 0) | (operands.accumulator is f32)
    there = (stage > 0) & (stages >= 2) & (stages <= fit) & stored & streams
    spans = np.where(seen.swapped > 0, operands.a_major == "mn", operands.b_major == "mn")
    held = np.where(spans, -(-BN // budget.SPAN) * budget.SPAN, BN)
    columns = {name: getattr(seen, name)[there] for name in seen.__slots__ if name != "ctas"}
    found_out = {"stages": stages, "staged": staged, "held": held}
    rings = Columns(**{**columns, **{name: values[there].astype(float) for name, values in found_out.items()}})
    return there, rings.sharing_sms((fixed + stages * stage)[there])


def _bytes(found: Sequence[Structure], operands: Operands) -> Any:
    """For each structure the bytes of a stage with its mbarriers (0: no such tile for these operands), of one staging buffer for each
    warpgroup (0: a tile's rows are no whole spans), and of other barriers."""
    places = [(one.tile.BM, one.tile.BN, type(one.schedule), one.warpgroups, one.swap_ab) for one in found]     # cheaper than the parts
    known = {place: _of_tile(one, operands) for place, one in dict(zip(places, found, strict=True)).items()}
    return np.array([known[place] for place in places]).T


def _of_tile(one: Structure, operands: Operands) -> tuple[int, int, int]:
    tile = Tile(one.tile.BM, one.tile.BN, budget.STAGE_BYTES * 8 // operands.a.bits)
    how = one.schedule if isinstance(one.schedule, Pingpong) else replace(one.schedule, warpgroups=one.warpgroups)
    columns = budget.own_columns(tile, how)
    operands = operands.swapped if one.swap_ab else operands
    if budget.register_problem(tile, how, operands.accumulator) is not None:
        return 0, 0, 0
    if shares_columns(how) and columns % budget.column_unit(operands.b_major):
        return 0, 0, 0
    spans = (one.swap_ab or columns * operands.out.bits % 256 == 0) and operands.out.bits > 8
    return (budget.stage_bytes(budget.spanned(tile, operands.b_major), operands.a, operands.b) + budget.BARRIER_BYTES,
            budget.staging_bytes(1, columns, operands.out, how, one.swap_ab) if spans else 0,
            PINGPONG_BYTES if isinstance(how, Pingpong) else 0)


__all__ = ["fitting"]
