"""The device adapter of groups with their own matrices: M, N, K and the addresses of each group are known only on the device."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

from ptxkit.dsl.descriptor import TensorMapFields
from ptxkit.errors import LaunchError
from ptxkit.newest import Newest
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_contiguous, check_dtype, check_shape, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.launcher import EncodedTensorMap, encode_tiled
from ptxkit.types import TYPES

from ..collective.tensormaps import warps
from ..config.grouped import CAPACITIES, GroupedConfig, GroupOperands
from ..heuristic.ptr_array import heuristic
from ..problem.dense import short, type_name
from ..problem.group_parts import part, spans
from ..problem.grouped import OPERANDS, RESULTS
from ..problem.options import check_kind, flag, number, optional_flag
from .dense import compiled
from .grid import places, scalars
from .group_kernels import kernel_of, records_of_templates
from .grouped import updater, workspace
from .parts import check_operands, check_room, check_sums


class PointerArrays(NamedTuple):
    """x, w and out are int64 [G], the addresses of matrices. sizes is int32 [G, 3], M, N and K of each group."""

    x: ArrayView
    w: ArrayView
    out: ArrayView
    sizes: ArrayView
    x_scale: ArrayView | None = None
    w_scale: ArrayView | None = None


class PointerProblem:
    """The problem of one launch, checked as far as the host can check it."""

    def __init__(self, arrays: PointerArrays, dtype: str, w_dtype: str | None, out_dtype: str, mean_tokens: float,
                 fast_accum: bool | None, batch_invariant: bool = False) -> None:
        x = _word("dtype", dtype, OPERANDS)
        w = x if w_dtype is None else _word("w_dtype", w_dtype, OPERANDS)
        out = _word("out_dtype", out_dtype, RESULTS)
        if w not in OPERANDS[x]:
            raise LaunchError(f"x has elements of {x} and w of {w}: w must have {' or '.join(OPERANDS[x])}")
        self.x, self.w, self.out = TYPES[x], TYPES[w], TYPES[out]
        self.groups = arrays.sizes.shape[0] if arrays.sizes.shape else 0
        check_dtype("sizes", arrays.sizes, ("s32", "u32"))
        check_shape("sizes", arrays.sizes, (self.groups, 3))
        check_contiguous("sizes", arrays.sizes)
        for name, array in (("x", arrays.x), ("w", arrays.w), ("out", arrays.out)):
            if array.dtype not in ("s64", "u64") or array.shape != (self.groups,):
                raise LaunchError(f"{name} has elements of {array.dtype} and shape {array.shape}: it must hold the addresses of the "
                                  f"{self.groups} groups' matrices, int64 ({self.groups},)")
            check_contiguous(name, array)
        self.mean, self.invariant = number("mean_tokens", mean_tokens), flag("batch_invariant", batch_invariant)
        if not self.mean > 0:
            raise LaunchError(f"mean_tokens={mean_tokens}: it is the expected number of rows of a group, more than 0")
        self.scaled = arrays.x_scale is not None
        if self.scaled != (arrays.w_scale is not None):
            raise LaunchError(f"{'w_scale' if self.scaled else 'x_scale'} is missing: both operands have scales, or none")
        self.w_scale_stride = 0
        if arrays.x_scale is not None and arrays.w_scale is not None:
            for name, scale in (("x_scale", arrays.x_scale), ("w_scale", arrays.w_scale)):
                check_dtype(name, scale, ("f32",))
            if arrays.x_scale.shape not in ((), (1,)) or arrays.w_scale.shape not in ((), (1,), (self.groups,)):
                raise LaunchError(f"x_scale has shape {arrays.x_scale.shape} and w_scale {arrays.w_scale.shape}: x has one scale, w one "
                                  f"scale or one for each of {self.groups} groups")
            self.w_scale_stride = arrays.w_scale.strides[0] if arrays.w_scale.shape not in ((), (1,)) else 0
        self.promote = optional_flag("fast_accum", fast_accum) is False and self.x.bits == 8

    def check(self, config: GroupedConfig) -> None:
        """Raise LaunchError unless the caller's configuration fits the problem."""
        check_kind(config, GroupedConfig)
        check_operands(config.operands, GroupOperands(self.x, self.w, self.out, "ptr_array", scaled=self.scaled))
        check_sums(config, self.promote, self.invariant)
        if self.out.bits == 32 and not (config.staged or config.swap_ab) and config.elements > 1:
            raise LaunchError("this config is not for this problem: rows of 32-bit results may end within a block of 8 columns, take "
                              "store=Direct(1) or StagedGroups()")
        check_room(config.operands.max_groups, "sizes", self.groups, min(self.groups, CAPACITIES[-1]))

    def config(self) -> GroupedConfig:
        """The heuristic's configuration. It depends on the expected rows only: N and K are known only on the device."""
        return heuristic(self.x, self.w, self.out, self.mean, self.promote, self.scaled, self.groups, self.invariant)

    def templates(self, config: GroupedConfig) -> list[TensorMapFields]:
        """The templates of each group's maps of x, w and y: type, box and swizzle stay, everything else is replaced. Direct stores do not
        use the map of y."""
        found, records = [], records_of_templates(config)
        for name, type_ in zip("xwy", (self.x, self.w, self.out), strict=True):
            record = records.get(name, records["x"])
            dims = 128 // type_.bits, 1
            found.append(TensorMapFields(record.type, dims, (16,), record.box[:2], swizzle=record.swizzle))
        return found

    def arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The product's arguments by name, without tensor maps. `pointer` maps the name of an array to its address."""
        nothing = dict.fromkeys(("rows", "pitch", "n", "weight_tiles", "k_tiles", "weights_divmod"), 0)
        return {"groups": {"lengths": pointer("sizes"), "count": self.groups, **nothing},
                "out": {"pointer": pointer("out"), "row": 0, "batch": 0}, "x_scale": pointer("x_scale"),
                "w_scale": {"pointer": pointer("w_scale"), "group_stride": self.w_scale_stride, "mn_stride": 0, "k_stride": 0},
                "workspace": pointer("workspace")}

    def update_arguments(self, pointer: Callable[[str], Any]) -> dict[str, Any]:
        """The arguments of `update_tensormaps`. The workspace comes last."""
        return {"lengths": pointer("sizes"), "groups": self.groups, "rows": 0, "pitch": 0, "out": pointer("none"), "out_row_bytes": 0,
                "x_at": pointer("x"), "w_at": pointer("w"), "y_at": pointer("out"), "workspace": pointer("workspace")}


def _word(name: str, given: Any, words: Collection[str]) -> str:
    """The name of an element type that is one of these words."""
    try:
        found = type_name(given)
    except LaunchError:
        found = None
    if found is None or found not in words:
        raise LaunchError(f"{name}={short(given)}: it is {', '.join(words)}")
    return found


class _Launch:
    __slots__ = ("config", "grid", "launcher", "maps", "ordinal", "problem", "product", "update", "updater", "workspace")

    def __init__(self, arrays: PointerArrays, problem: PointerProblem, config: GroupedConfig, ordinal: int) -> None:
        def pointer(name: str) -> int:
            array = getattr(arrays, name, None)
            return 0 if array is None else array.pointer

        made = compiled(kernel_of(config), ordinal, **config.parameters)
        self.config, self.ordinal, self.problem = config, ordinal, problem
        self.launcher, self.updater = made.launcher(pdl=True), updater(config, ordinal)
        self.grid = made.max_clusters(), 1, 1
        self.product = scalars(made.traced, problem.arguments(pointer))
        self.workspace = places(made.traced)["workspace"]
        self.update = tuple(problem.update_arguments(pointer).values())[:-1]
        at = arrays.sizes.pointer & -16
        self.maps: tuple[EncodedTensorMap, ...] = tuple(encode_tiled(replace(fields, l2_promotion=config.loads.l2_fetch), at)
                                                        for fields in problem.templates(config))

    def run(self, stream: int) -> None:
        place, at = workspace(self.ordinal, stream, self.config, self.grid[0]), self.workspace
        self.updater(stream, (warps(self.problem.groups, "ptr_array"), 1, 1), (*self.update, place), self.maps)
        self.launcher(stream, self.grid, (*self.product[:at], place, *self.product[at + 1:]), self.maps)


_launches: Newest[Any, list[_Launch]] = Newest()


def group_gemm_pointers(x: Any, w: Any, out: Any, sizes: Any, *, dtype: str, w_dtype: str | None = None, out_dtype: str = "bf16",
                        x_scale: Any = None, w_scale: Any = None, mean_tokens: float = 128, fast_accum: bool | None = None,
                        batch_invariant: bool = False, config: GroupedConfig | None = None, stream: Any = None) -> None:
    """out_g = x_g @ w_g.T for every group. x_g [M, K], w_g [N, K] and out_g [M, N] are matrices anywhere in device memory.

    x, w and out are int64 [G]: the addresses of matrices without gaps between rows. Addresses and rows are multiples of 16 bytes. sizes is
    int32 [G, 3]: M, N and K of each group. All four arrays are on the device and are read only there: nothing is copied to the host, and a
    captured launch may be replayed with other contents. A group with M, N or K = 0 is skipped.

    No out_g may share memory with any x or w: addresses are not seen on the host, so that this is not checked.

    `dtype`, `w_dtype` and `out_dtype` name the element types. x has one scale, and w has one scale or one for each group. `mean_tokens` is
    the expected number of rows of a group; it only affects the choice of a tile. `batch_invariant` is that of `group_gemm`. The
    first call on a stream allocates a workspace.
    """
    refuse_gradients(("x_scale", x_scale), ("w_scale", w_scale))
    given = (x, w, out, sizes, x_scale, w_scale)
    views = [None if array is None and name in PointerArrays._field_defaults else view(array, name)
             for array, name in zip(given, PointerArrays._fields, strict=True)]
    arrays = PointerArrays(*views)  # type: ignore[arg-type]
    key = (arrays, dtype, w_dtype, out_dtype, mean_tokens, fast_accum, batch_invariant, config)
    try:
        found = _launches.get(key)
    except TypeError:                           # what has no hash is no option: the problem says so
        found = None
    if found is None:
        problem = PointerProblem(arrays, dtype, w_dtype, out_dtype, mean_tokens, fast_accum, batch_invariant)
        if config is not None:
            problem.check(config)
        ordinal = same_device([(name, array) for name, array in zip(arrays._fields, arrays, strict=True) if array is not None])
        driver.device(ordinal)
        found = []
        for first, count in spans(problem.groups):
            own = arrays if count == problem.groups else _part(arrays, first, count, problem.groups)
            of_own = PointerProblem(own, dtype, w_dtype, out_dtype, mean_tokens, fast_accum, batch_invariant)
            found.append(_Launch(own, of_own, config or of_own.config(), ordinal))
        _launches[key] = found
    for launch in found:
        launch.run(raw_stream(stream, arrays.x))


def _part(arrays: PointerArrays, first: int, count: int, groups: int) -> PointerArrays:
    """The arrays of one of several launches."""
    own = {name: part(array, first, count) for name, array in zip(arrays._fields, arrays, strict=True)
           if array is not None and array.shape[:1] == (groups,)}
    return arrays._replace(**own)


__all__ = ["PointerArrays", "PointerProblem", "group_gemm_pointers"]
