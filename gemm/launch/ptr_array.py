"""Groups with matrices of their own: each its M, N, K and addresses, all of them known to the device alone."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace
from typing import Any, NamedTuple

from ptxkit.dsl.descriptor import TensorMapFields
from ptxkit.errors import LaunchError
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_contiguous, check_dtype, check_shape, raw_stream, same_device, view
from ptxkit.runtime.launcher import EncodedTensorMap, encode_tiled
from ptxkit.types import TYPES

from ..collective.tensormaps import warps
from ..config.dense import LINE
from ..config.grouped import CAPACITIES, GroupConfig
from ..heuristic.grouped_tiles import ALL_BOXES, FEW, FITTED_BY_TICKET, FROM_END_OF_MUCH, SEVERAL, SORTED_FITTED
from ..kernels.grouped import group_gemm as kernel
from ..kernels.grouped import records_of_templates
from ..problem.dense import type_name
from ..problem.grouped import OPERANDS, RESULTS
from .dense import compiled
from .grouped import updater, workspace

_KEPT = 512

_COLUMNS: dict[str, Any] = {**FITTED_BY_TICKET, "PIECES": True}
_STREAMED: dict[str, Any] = {**_COLUMNS, "STREAM_W": True, "L2_PROMOTION": LINE}
TILES: tuple[tuple[float, dict[str, Any]], ...] = (
    (8, {**_STREAMED, "BM": 64, "BN": 16, "LONGEST_FIRST": False}),
    (32, {**_STREAMED, "BM": 128, "BN": 128, "LONGEST_FIRST": False, "ORDER": "linear"}),
    (64, {**_STREAMED, "BM": 128, "BN": 128}),
    (128, {**_COLUMNS, "BM": 128, "BN": 192, "L2_PROMOTION": LINE}),
    (224, {**_COLUMNS, "BM": 256, "BN": 192, "FROM_END": FROM_END_OF_MUCH}),
    (448, {**_COLUMNS, "BM": 128, "BN": 192}),
    (2048, {"BM": 128, "BN": 192, "PINGPONG": True}),
    (math.inf, {"BM": 128, "BN": 256, **ALL_BOXES}))
"""The tiles of groups of up to so many expected rows, each beside what else may be taken in 66 products of bf16 and fp8, alike and skewed
(docs/grouped-performance.md)."""


class PointerArrays(NamedTuple):
    """x, w, out: int64 [G], the addresses of matrices; sizes: int32 [G, 3], M, N and K of each group."""

    x: ArrayView
    w: ArrayView
    out: ArrayView
    sizes: ArrayView
    x_scale: ArrayView | None = None
    w_scale: ArrayView | None = None


class PointerProblem:
    """One launch, checked as far as the host can."""

    def __init__(self, arrays: PointerArrays, dtype: str, w_dtype: str | None, out_dtype: str, mean_tokens: float,
                 fast_accum: bool | None) -> None:
        x, w, out = (type_name(word) or "" for word in (dtype, w_dtype or dtype, out_dtype))
        if x not in OPERANDS:
            raise LaunchError(f"dtype={dtype!r}: x has elements of {', '.join(OPERANDS)}")
        if w not in OPERANDS[x]:
            raise LaunchError(f"x has elements of {x} and w of {w}: w must have {' or '.join(OPERANDS[x])}")
        if out not in RESULTS:
            raise LaunchError(f"out_dtype={out_dtype!r}: the result is {', '.join(RESULTS)}")
        self.x, self.w, self.out = TYPES[x], TYPES[w], TYPES[out]
        self.groups = arrays.sizes.shape[0] if arrays.sizes.shape else 0
        check_dtype("sizes", arrays.sizes, ("s32", "u32"))
        check_shape("sizes", arrays.sizes, (self.groups, 3))
        check_contiguous("sizes", arrays.sizes)
        for name, array in (("x", arrays.x), ("w", arrays.w), ("out", arrays.out)):
            if array.dtype not in ("s64", "u64") or array.shape != (self.groups,):
                raise LaunchError(f"{name} has elements of {array.dtype} and shape {array.shape}: it holds the addresses of the "
                                  f"{self.groups} groups' matrices, int64 ({self.groups},)")
            check_contiguous(name, array)
        if self.groups > CAPACITIES[-1]:
            raise LaunchError(f"sizes has {self.groups} groups: a table of groups has room for {CAPACITIES[-1]}; launch parts of them")
        if not mean_tokens > 0:
            raise LaunchError(f"mean_tokens={mean_tokens}: it is the expected number of rows of a group, more than 0")
        self.mean = mean_tokens
        self.scaled = arrays.x_scale is not None
        if self.scaled != (arrays.w_scale is not None):
            raise LaunchError(f"{'w_scale' if self.scaled else 'x_scale'} is missing: both operands have scales, or none")
        self.w_scale_stride = 0
        if arrays.x_scale is not None and arrays.w_scale is not None:
            for name, scale in (("x_scale", arrays.x_scale), ("w_scale", arrays.w_scale)):
                check_dtype(name, scale, ("f32",))
            if arrays.x_scale.shape not in ((), (1,)) or arrays.w_scale.shape not in ((), (1,), (self.groups,)):
                raise LaunchError(f"x_scale has shape {arrays.x_scale.shape} and w_scale {arrays.w_scale.shape}: groups with matrices of "
                                  f"their own have one scale of x, and one of w or of each of {self.groups} groups")
            self.w_scale_stride = arrays.w_scale.strides[0] if arrays.w_scale.shape not in ((), (1,)) else 0
        self.promote = self.x.bits == 8 and fast_accum is False

    def config(self) -> GroupConfig:
        """By the expected rows alone: N and K are the device's."""
        tile = next(tile for most, tile in TILES if self.mean <= most)
        if self.groups > SORTED_FITTED:
            tile = {**tile, "LONGEST_FIRST": False, "FROM_END": 0}
        elif self.groups <= SEVERAL and "FROM_END" in tile:     # whose tiles of fewer features are enough for all SMs
            tile = {**tile, "BM": 192, "FROM_END": 0}
        if self.promote:
            tile = {"BM": 64 if self.mean <= FEW else 128, "BN": 128, "PIECES": True}
        capacity = next(c for c in CAPACITIES if self.groups <= c)
        if capacity == CAPACITIES[-1]:                          # whose table takes a buffer's place
            tile = {key: value for key, value in tile.items() if key not in ALL_BOXES}
        return GroupConfig.of(self.x, self.w, self.out, GROUPS=capacity, LAYOUT="pointers", SCALED=self.scaled, PROMOTE=self.promote,
                              **tile)

    def templates(self, config: GroupConfig) -> list[TensorMapFields]:
        """Of x, w and y: type, box and swizzle count, everything else is replaced. Nobody uses y's where it is stored without one."""
        found, records = [], records_of_templates(config)
        for name, type_ in zip("xwy", (self.x, self.w, self.out), strict=True):
            record = records.get(name, records["x"])
            dims = 128 // type_.bits, 1
            found.append(TensorMapFields(record.type, dims, (16,), record.box[:2], swizzle=record.swizzle))
        return found

    def scalars(self, pointer: Any) -> tuple[Any, ...]:
        """The product's arguments besides maps; `pointer` maps a name to what stands for an array."""
        return (pointer("sizes"), self.groups, 0, 0, 0, 0, 0, pointer("out"), 0, 0, pointer("x_scale"), 0, 0, pointer("w_scale"),
                self.w_scale_stride, 0, 0, pointer("x_scale"), 0, 0, 0, pointer("workspace"))

    def update_scalars(self, pointer: Any) -> tuple[Any, ...]:
        """Those of the kernel that makes the maps."""
        return (pointer("sizes"), self.groups, 0, 0, pointer("none"), 0, pointer("x"), pointer("w"), pointer("out"), pointer("workspace"))


class _Launch:
    __slots__ = ("config", "grid", "launcher", "maps", "ordinal", "problem", "product", "update", "updater")

    def __init__(self, arrays: PointerArrays, problem: PointerProblem, config: GroupConfig, ordinal: int) -> None:
        def pointer(name: str) -> int:
            array = getattr(arrays, name, None)
            return 0 if array is None else array.pointer

        made = compiled(kernel, ordinal, **config.parameters)
        self.config, self.ordinal, self.problem = config, ordinal, problem
        self.launcher, self.updater = made.launcher(pdl=True), updater(config, ordinal)
        self.grid = made.max_clusters(), 1, 1
        self.product, self.update = problem.scalars(pointer), problem.update_scalars(pointer)
        at = arrays.sizes.pointer & -16
        self.maps: tuple[EncodedTensorMap, ...] = tuple(encode_tiled(replace(fields, l2_promotion=config.tile.L2_PROMOTION), at)
                                                        for fields in problem.templates(config))

    def run(self, stream: int) -> None:
        place = workspace(self.ordinal, stream, self.config)
        self.updater(stream, (warps(self.problem.groups, "pointers"), 1, 1), (*self.update[:-1], place), self.maps)
        self.launcher(stream, self.grid, (*self.product[:-1], place), (*self.maps, self.maps[0], self.maps[0]))


_launches: OrderedDict[Any, _Launch | None] = OrderedDict()


def group_gemm_pointers(x: Any, w: Any, out: Any, sizes: Any, *, dtype: str, w_dtype: str | None = None, out_dtype: str = "bf16",
                        x_scale: Any = None, w_scale: Any = None, mean_tokens: float = 128, fast_accum: bool | None = None,
                        config: GroupConfig | None = None, stream: Any = None) -> None:
    """out_g = x_g @ w_g.T for every group, x_g [M, K], w_g [N, K] and out_g [M, N] being matrices anywhere in device memory.

    x, w and out are int64 [G]: addresses, multiples of 16, of matrices without gaps between rows. sizes is int32 [G, 3]: M, N and K of
    each group; rows of x_g, w_g and out_g are multiples of 16 bytes long. All four lie on the device and are read there alone: nothing
    is copied to the host, and a captured launch may be replayed with others. A group of which M, N or K is 0 is left out. `dtype`,
    `w_dtype` and `out_dtype` name the element types; scales are one of x, and one of w or of each group. `mean_tokens`, the rows of a
    group that are expected, only chooses the tile. The first call on a stream allocates a workspace.
    """
    given = (x, w, out, sizes, x_scale, w_scale)
    views = [None if array is None else view(array, name) for array, name in zip(given, PointerArrays._fields, strict=True)]
    arrays = PointerArrays(*views)  # type: ignore[arg-type]
    key = (arrays, dtype, w_dtype, out_dtype, mean_tokens, fast_accum, config)
    if key not in _launches:
        problem = PointerProblem(arrays, dtype, w_dtype, out_dtype, mean_tokens, fast_accum)
        ordinal = same_device([(name, array) for name, array in zip(arrays._fields, arrays, strict=True) if array is not None])
        driver.device(ordinal)
        _launches[key] = _Launch(arrays, problem, config or problem.config(), ordinal) if problem.groups else None
        if len(_launches) > _KEPT:
            _launches.popitem(last=False)
    launch = _launches[key]
    if launch is not None:
        launch.run(raw_stream(stream, arrays.x))


__all__ = ["PointerArrays", "PointerProblem", "group_gemm_pointers"]
