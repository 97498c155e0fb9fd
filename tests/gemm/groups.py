"""What tests of grouped products share: lengths, arrays that are only described, configurations by settings, and what was measured."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from hypothesis import strategies as st

from ptxkit.gemm.config.grouped import DynamicGroups, GroupedConfig, GroupOperands, StaticGroups, StreamGroups
from ptxkit.gemm.config.parts import BlockScaled, Pingpong, Promoted
from ptxkit.gemm.heuristic import grouped_overlaps, grouped_trees
from ptxkit.gemm.heuristic.corrections import NONE
from ptxkit.gemm.heuristic.group_tile import GroupTile
from ptxkit.gemm.problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ptxkit.gemm.problem.grouped_k import ArraysAlongK, ProblemAlongK
from ptxkit.gemm.scheduler.group_table import CONTIGUOUS_ROWS
from ptxkit.gemm.tools.bench.grouped_cases import Case
from ptxkit.gemm.tools.grouped_settings import Settings, from_defaults
from ptxkit.gemm.tools.problems import arrays_of, scales_by_rows
from ptxkit.runtime.arrays import ArrayView, contiguous_strides


def lengths(tile: int, most: int = 6) -> st.SearchStrategy[list[int]]:
    """Lengths about the tile, and everything in one group."""
    one = st.sampled_from([0, 0, 1, 7, tile - 1, tile, tile + 1])
    whole = st.tuples(st.integers(0, 3), st.integers(1, 3 * tile), st.integers(0, 3)).map(lambda t: [0] * t[0] + [t[1]] + [0] * t[2])
    return st.lists(one, min_size=1, max_size=most) | whole


def view(dtype: str, *shape: int, strides: tuple[int, ...] | None = None, pointer: int = 0) -> ArrayView:
    return ArrayView(pointer, shape, strides or contiguous_strides(shape), dtype, 0, "other")


def by_number(one: Case, numbers: Literal["", "gather", "scatter"], **options: Any) -> GroupProblem:
    """The problem of a case whose rows of x are gathered, or whose rows of results are scattered, or neither."""
    given = {numbers: view("s32", one.rows)} if numbers else {}
    return GroupProblem(arrays_of(one)._replace(**given), GroupOptions(gated=one.gated, **options))


def of_blocks(blocks: int, groups: int, n: int, k: int, kind: str, gated: bool = False) -> GroupProblem:
    """A product of so many blocks of contiguous rows."""
    rows, dtype = blocks * CONTIGUOUS_ROWS, "bf16" if kind == "bf16" else "e4m3"
    scales: Any = (None, None)
    if kind == "fp8":
        scales = view("f32", 1), view("f32", groups)
    if kind == "fp8-block":
        scales = scales_by_rows(rows, -(-k // 128)), view("f32", groups, -(-n // 128), -(-k // 128))
    out = view("bf16", rows, n // (1 + gated))
    return GroupProblem(GroupArrays(view(dtype, rows, k), view(dtype, groups, n, k), view("s32", rows), out, *scales),
                        GroupOptions("contiguous", gated))


def along_k(groups: int, rows: int, m: int, n: int, out: str = "bf16", *, accumulate: bool = False) -> ProblemAlongK:
    """Groups along K of [rows, M] and [rows, N]."""
    arrays = (view(dtype, *shape, pointer=1 << 40) for dtype, shape in
              (("bf16", (rows, m)), ("bf16", (rows, n)), ("s32", (groups + 1,)), (out, (groups, m, n))))
    return ProblemAlongK(ArraysAlongK(*arrays), accumulate)


def with_defaults(settings: Settings) -> Callable[[GroupProblem], GroupedConfig]:
    """What makes the default configuration of a problem, with these settings."""
    return lambda problem: from_defaults(problem, settings)


def made(settings: Settings, *operands: Any, **more: Any) -> GroupedConfig:
    """A configuration with these settings, of operands of these types."""
    return GroupedConfig(GroupOperands(*operands, **more)).with_(settings)


def recorded_tile(tile: GroupTile | GroupedConfig) -> str:
    """What recorded measurements call a tile: `128x256`, and how it is worked on."""
    how = {" as wide as its tokens": tile.n_granularity, " in turn": isinstance(tile.schedule, Pingpong),
           " in pairs": tile.scheduler.cluster.n == 2}
    return f"{tile.tile.BM}x{tile.tile.BN}" + "".join(words for words, holds in how.items() if holds)


def recorded_order(config: GroupTile | GroupedConfig) -> str:
    """What they call the order in which CTAs get their tiles."""
    return config.scheduler.find if isinstance(config.scheduler, StaticGroups) else \
        "stream" if isinstance(config.scheduler, StreamGroups) else "ticket"


@contextlib.contextmanager
def without_begins() -> Iterator[None]:
    """No tile has a later begin of the next kernel, which is newer than some measurements, and counts where tiles are compared."""
    grouped_trees._answer.cache_clear()
    try:
        with mock.patch.object(grouped_overlaps, "of_card", return_value=NONE):
            yield
    finally:
        grouped_trees._answer.cache_clear()


def overlaps(config: GroupedConfig) -> bool:
    """Whether promotion overlaps."""
    return isinstance(config.sums, Promoted) and config.sums.how == "overlap"


def recorded_config(config: GroupedConfig) -> str:
    """What they call a configuration."""
    tile, scheduler, sums, loads, order = config.tile, config.scheduler, config.sums, config.loads, config.scheduler.order
    dealt = recorded_order(config)
    words = [f"{tile.BM}x{tile.BN}x{tile.BK}", f"{config.stages} stages",
             "pingpong" if isinstance(config.schedule, Pingpong) else f"{config.warpgroups} consumer{'s' * (config.warpgroups > 1)}",
             f"cluster {scheduler.cluster.m}x{scheduler.cluster.n}" * (config.cluster > 1),
             f"{order.raster.replace('_', ' ')} by {order.size}{' serpentine' * order.serpentine}",
             "overlapped promotion" * overlaps(config), "staggered promotion" * (getattr(sums, "how", "") == "stagger"),
             f"{loads.l2_prefetch_stages} stages ahead" * bool(loads.l2_prefetch_stages),
             f"L2 by {loads.l2_fetch} bytes" * (loads.l2_fetch != 256), "direct stores" * (not config.staged),
             "transposed" * config.swap_ab, dealt * (dealt != "linear"), "gated" * config.operands.gated,
             "quantised" * config.operands.quantised, "streamed weights" * loads.weights_evict_first,
             "scales through shared memory" * isinstance(sums, BlockScaled), "rows in pieces" * config.tokens.partial_boxes,
             f"the last by {config.tail_rows}" * bool(config.tail_rows),
             f"columns in steps of {config.n_granularity}" * bool(config.n_granularity),
             "longest groups first" * scheduler.longest_first,
             f"{scheduler.from_tail} from the end" if isinstance(scheduler, DynamicGroups) and scheduler.from_tail else ""]
    return ", ".join(word for word in words if word)


@functools.cache
def results(name: str) -> dict[str, Any]:
    """What was measured, of the file that is so called."""
    found: dict[str, Any] = _read(json.loads((Path(__file__).parents[2] / "benchmarks/results" / name).read_text()))
    return found


def _read(value: Any) -> Any:
    """The same with its tables as {case: {label: time}}: benchmarks/results/README.md says how a table is written."""
    if isinstance(value, list):
        return [_read(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"labels", "tables"}:
        return {case + rest: times for table in value["tables"] for case, rests in table["rows"].items()
                for rest, times in _rows([value["labels"][i] for i in table["columns"]], rests)}
    return {name: _read(one) for name, one in value.items()}


def _rows(labels: list[str], rows: dict[str, list[Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Of each row its name and its times; a number in quotes stands for the label of that column."""
    return [(name, {label: labels[int(us)] if isinstance(us, str) else us for label, us in zip(labels, row, strict=True)})
            for name, row in rows.items()]
