"""The device adapter of grouped products: checks arguments, chooses a configuration, encodes tensor maps and launches."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.newest import Newest
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.compiled import Compiled
from ptxkit.runtime.launch import empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.launcher import EncodedTensorMap, Extent, Launcher
from ptxkit.runtime.overlap import Spans, refuse_overlap
from ptxkit.types import TYPES

from ..collective.atoms import ROWS
from ..collective.tensormaps import COUNTERS_WORDS, MOST_SMS, warps
from ..config.grouped import GroupedConfig
from ..config.parts import BlockScaled, ThreadScaled
from ..heuristic.grouped import heuristic
from ..heuristic.grouped_stream import LARGEST
from ..kernels.clear_groups import clear_groups
from ..kernels.update_tensormaps import update_tensormaps
from ..problem.dense import short, type_name
from ..problem.group_parts import parts
from ..problem.grouped import NAMES, GroupArrays, GroupOptions, GroupProblem, extents, gathered_rows, misfit, settled
from ..problem.options import check_kind, flag, group_options
from ..scheduler.group_table import Layout
from ..scheduler.grouped import Order
from .dense import Maps, card_of, check_out_dtype, compiled
from .grid import places, scalars
from .group_kernels import kernel_of, records_of_templates
from .parts import LOADED, LOADS, GroupLaunches, check_operands, check_room, check_sums
from .workspace import Workspaces

ADDRESSES = {"x": ("x_pointer",), "gather": ("x_numbers",), "scatter": ("scatter_numbers",), "lengths": ("groups_lengths",),
             "out": ("out_pointer",), "x_scale": ("x_scale", "x_scale_pointer"), "w_scale": ("w_scale_pointer",),
             "out_scale": ("out_scale_pointer",)}
"""The kernels' parameters that are addresses of arrays."""

LAYOUTS = tuple(layout for layout in NAMES if layout != "ptr_array")
"""The layouts whose matrices are parts of arrays."""
WRITTEN = ("out", "out_scale")
"""The arrays of a product of groups that a launch writes."""
_workspaces = Workspaces()
_sums = Workspaces(4 * (COUNTERS_WORDS + MOST_SMS * LARGEST))      # where CTAs share K: 19 MB, for any tile that is chosen
_plans: Newest[tuple[Any, ...], GroupPlan] = Newest()
_launches: Newest[tuple[Any, ...], tuple[GroupLaunch | GroupLaunches[GroupLaunch] | ClearedGroups | None, ArrayView]] = Newest()


@functools.cache
def _layout(made: Compiled) -> tuple[int, list[tuple[int, int]], list[str]]:
    """Where a kernel's workspace is among its arguments, where the addresses of arrays are, and its tensor maps."""
    at = places(made.traced)
    addresses = [(at[name], i) for i, array in enumerate(GroupArrays._fields) for name in ADDRESSES.get(array, ()) if name in at]
    return at["workspace"], addresses, [parameter.name for parameter in made.traced.parameters if parameter.kind == "tensormap"]


class KernelPlan:
    """One kernel of a plan. The map of Y begins `y_offset` bytes before Y."""

    __slots__ = ("addresses", "config", "ctas", "launcher", "maps", "passed", "templates", "traced", "updater", "workspace", "y_offset")

    def __init__(self, problem: GroupProblem, ordinal: int, config: GroupedConfig) -> None:
        made = compiled(kernel_of(config), ordinal, **config.parameters)
        self.config, self.traced = config, made.traced
        self.ctas = made.max_clusters() * config.cluster
        self.updater = updater(config, ordinal) if config.updates_maps else None
        self.launcher: Launcher = made.launcher(pdl=True)
        self.workspace, self.addresses, read = _layout(made)
        self.passed: tuple[Any, ...] = ()
        y_lines, self.y_offset = problem.stored(config)
        lines = {"x": problem.x_lines, "w": problem.w_lines, "y": y_lines, "sfa_map": problem.s_lines, "sfb_map": problem.w_s_lines,
                 "x_tail": problem.x_lines}
        records = made.traced.copies.records if self.updater is None else records_of_templates(config)
        self.maps = Maps(records, {name: lines[name] for name in read}, config.loads.l2_fetch)
        self.templates = Maps(records, {name: lines[name] for name in "xwy"}, config.loads.l2_fetch) if self.updater is not None else None

    def at(self, arrays: GroupArrays) -> tuple[EncodedTensorMap, ...]:
        """The tensor maps of these arrays, in the kernel's order."""
        if self.y_offset > arrays.out.pointer:
            raise LaunchError(f"the rows of out are {self.y_offset // ROWS:,} bytes apart, and the address {ROWS} rows before out is "
                              "negative: give a configuration with store=Direct()")
        pointers = {"x": arrays.x.pointer, "w": arrays.w.pointer, "y": arrays.out.pointer - self.y_offset,
                    "sfa_map": arrays.x_scale.pointer if arrays.x_scale else 0,
                    "sfb_map": arrays.w_scale.pointer if arrays.w_scale else 0, "x_tail": arrays.x.pointer}
        return self.maps.at(*(pointers[name] for name in self.maps.names))

    def scalars(self, problem: GroupProblem, arrays: GroupArrays) -> list[Any]:
        """The kernel's other arguments, still without a workspace. Launches of one plan differ in addresses alone."""
        self.passed = self.passed or scalars(self.traced, problem.arguments(arrays, self.config, lambda _: 0))
        found = list(self.passed)
        for place, i in self.addresses:
            array = arrays[i]
            found[place] = 0 if array is None else array.pointer
        return found

    def templates_at(self, arrays: GroupArrays) -> tuple[EncodedTensorMap, ...]:
        """The templates of each group's maps."""
        return self.templates.at(arrays.x.pointer, arrays.w.pointer, arrays.out.pointer) if self.templates is not None else ()


class GroupPlan:
    """A configuration loaded on a device for arrays of these shapes: everything of a launch except the pointers."""

    __slots__ = ("grid", "kernels", "ordinal", "problem", "spans")

    def __init__(self, problem: GroupProblem, ordinal: int, config: GroupedConfig | None) -> None:
        card = card_of(ordinal)
        config = config or heuristic(problem, card)
        self.problem, self.ordinal, self.spans = problem, ordinal, Spans(())
        self.kernels = tuple([KernelPlan(problem, ordinal, each) for each in config.kernels])
        self.grid = problem.grid(config, min(card.sms, *(plan.ctas for plan in self.kernels))), 1, 1


class ClearedGroups:
    """Groups with K = 0: their rows are cleared."""

    __slots__ = ("grid", "launcher", "scalars")

    def __init__(self, problem: GroupProblem, arrays: GroupArrays, ordinal: int) -> None:
        made = compiled(clear_groups, ordinal, layout=problem.options.layout)
        self.launcher: Launcher = made.launcher(pdl=False)
        self.grid = problem.rows, 1, 1
        named = {"lengths": arrays.lengths.pointer, "out": arrays.out.pointer, **problem.clear_arguments(arrays.out)}
        self.scalars = tuple(named[parameter.name] for parameter in made.traced.parameters)

    def run(self, stream: int) -> None:
        """Clear them on a stream."""
        self.launcher(stream, self.grid, self.scalars, ())


def updater(config: GroupedConfig, ordinal: int) -> Launcher:
    """The kernel that makes the groups' maps for this configuration."""
    return compiled(update_tensormaps, ordinal, **config.update).launcher(pdl=True)


def workspace(ordinal: int, stream: int, config: GroupedConfig, ctas: int) -> int:
    """The address of a stream's workspace for a launch of so many CTAs. Its counters and flags are 0."""
    return (_sums if config.streams else _workspaces).of(ordinal, stream, config.workspace_bytes(ctas))


Placed = tuple[Launcher, Extent, tuple[Any, ...], tuple[EncodedTensorMap, ...]]
"""A launch: the kernel, its grid, its scalars and its tensor maps."""


class GroupLaunch:
    """A plan with pointers: all that a repeated call needs."""

    __slots__ = ("kernels", "placed", "plan", "update")

    def __init__(self, plan: GroupPlan, arrays: GroupArrays) -> None:
        self.plan = plan
        self.kernels = [(each, each.at(arrays), tuple(each.scalars(plan.problem, arrays)), each.templates_at(arrays))
                        for each in plan.kernels]
        self.update = self._update(arrays) if plan.kernels[0].updater is not None else ()
        self.placed: tuple[int, list[Placed]] = (-1, [])

    def _update(self, arrays: GroupArrays) -> tuple[Any, ...]:
        """The arguments of the kernel that makes maps but for the workspace, which is the last one."""
        def pointer(name: str) -> int:
            array = getattr(arrays, name, None)
            return 0 if array is None else array.pointer

        return tuple(self.plan.problem.update_arguments(pointer).values())[:-1]

    def run(self, stream: int) -> None:
        """Launch on a stream."""
        placed = self.placed
        if placed[0] != stream:
            placed = self.placed = stream, self._on(stream)
        for launcher, grid, passed, maps in placed[1]:
            launcher(stream, grid, passed, maps)

    def _on(self, stream: int) -> list[Placed]:
        """The launches on a stream, with its workspace."""
        return self.placed_in(lambda config: workspace(self.plan.ordinal, stream, config, self.plan.grid[0]))

    def placed_in(self, place_of: Callable[[GroupedConfig], int]) -> list[Placed]:
        """The launches with the workspaces at these addresses."""
        plan, found = self.plan, []
        for each, maps, passed, templates in self.kernels:
            if each.config.needs_workspace:
                place, at = place_of(each.config), each.workspace
                passed = (*passed[:at], place, *passed[at + 1:])
                if each.updater is not None:
                    blocks = warps(plan.problem.groups, each.config.operands.layout)
                    found.append((each.updater, (blocks, 1, 1), (*self.update, place), templates))
            found.append((each.launcher, plan.grid, passed, maps))
        return found


def group_gemm(x: Any, w: Any, cu_seqlens: Any, *, x_scale: Any = None, w_scale: Any = None, out: Any = None, out_dtype: Any = None,
               out_scale: Any = None, activation: str | None = None, mean_tokens: float | None = None, fast_accum: bool | None = None,
               order: Order | None = None, batch_invariant: bool = False, check_lengths: bool = False,
               gather: Any = None, weights: Any = None, scatter: Any = None, combine: Literal["atomic"] | None = None,
               config: GroupedConfig | None = None, stream: Any = None) -> Any:
    """out[cu[g]:cu[g + 1]] = x[cu[g]:cu[g + 1]] @ w[g].T for every group, in one launch. Returns `out`, [M, N].

    Operands: x [M, K] and w [G, N, K], both with contiguous K, of bf16 or f16, or of e4m3 and e5m2 in any combination. w of 16 bits may be
    contiguous along N instead, as a transposed view of [G, K, N], where there is no gate. cu_seqlens is int32
    [G + 1] on the device. Only the kernel reads it, nothing is copied to the host, and a captured launch may be replayed with other
    lengths. A group may have any length, also 0. Of more than 1024 groups each launch has up to 1024. Rows of `out` outside of all groups
    are not written.

    Scales are float32 on the device: one for x and one for w or for each group. Of fp8 operands x_scale may be [M] or [M, 1], one for each
    row, and w_scale [G, N], [G, 1, N] or [G, N, 1], one for each feature of a group; these are contiguous, and one of the two may be as
    before. Or they are block scales of fp8 operands: x_scale [M, K/128] and w_scale [G, N/128, K/128]. Any strides of these work; fast are
    x_scale contiguous along M and w_scale contiguous along K. With block scales or `fast_accum=False` fp8 sums leave the tensor cores after
    every 128 of K and are added in f32.

    A torch tensor that requires grad is refused while gradients are recorded: ptxkit.torch has operators with them.

    `activation="silu_and_mul"`: w has the rows of the gate, then the rows of the up projection, and out [M, N/2] is
    silu(x gate^T) * (x up^T).

    With `out_scale`, float32 [M, N/128] of any strides, out is e4m3. Every 128 columns of a row are divided by a scale, 1/448 of their
    largest magnitude, which is written to `out_scale`. The next block-scaled product takes both.

    `mean_tokens` is the expected number of rows of a group (default M / G); it only affects the choice of a configuration. `order` is the
    tile scheduler: "linear", "search" and "across" are static; "dynamic" suits lengths that differ much. Lengths that decrease or exceed M
    give a wrong result, but nothing outside of `out` is written. `check_lengths` reads the lengths back first, which waits for the device,
    and raises an error for such lengths.

    With `gather`, int32 [M] on the device, row i of the product is row gather[i] of x, which has any number of rows: tokens are not copied
    to their experts first. Numbers below 0 and not below len(x) stand for rows of zeros. Scales of rows belong to the rows of out. There
    are no block scales then.

    With `weights`, float32 [M] on the device, row i of out is multiplied by weights[i] in f32, before it is rounded: those of a router in
    the last product of a mixture of experts. They come without scales of operands and without a gate.

    With `scatter`, int32 [M] on the device, row i of the product is written to out[scatter[i]]: `out`, [R, N], is given then. Numbers below
    0 and not below R are written nowhere; where two rows have the same number, one of them is left. With `combine="atomic"` rows are added
    to what out has, by atomic additions in no particular order, which differ in their last bits from run to run; `gemm.combine` adds rows
    in a fixed order. There are neither gathered rows, quantised results nor block scales then.

    With `batch_invariant=True` a row of x gives the same bits whatever the lengths, the number of groups and its place are: the order of
    its sums depends on K and the types alone.
    """
    if check_lengths is not False and flag("check_lengths", check_lengths):
        check(cu_seqlens, view(x if gather is None else gather, "x").shape[0])
    _refuse_scales_of_both(weights, x_scale, w_scale)
    options = group_options("cu_seqlens", _gated(activation), mean_tokens, fast_accum, order, batch_invariant, weights is not None,
                            _adds(combine))
    if scatter is not None and out is None:
        raise LaunchError("scatter: give out, [rows, N], whose rows the numbers name")
    x_scale = weights if x_scale is None else x_scale
    return _run(x, w, cu_seqlens, (x_scale, w_scale, out_scale), out, out_dtype, options, config, stream, (gather, scatter))


def group_gemm_masked(x: Any, w: Any, masked_m: Any, *, x_scale: Any = None, w_scale: Any = None, out: Any = None, out_dtype: Any = None,
                      out_scale: Any = None, activation: str | None = None, mean_tokens: float | None = None,
                      fast_accum: bool | None = None, order: Order | None = None, batch_invariant: bool = False,
                      config: GroupedConfig | None = None, stream: Any = None) -> Any:
    """out[g, :masked_m[g]] = x[g, :masked_m[g]] @ w[g].T: DeepGEMM's masked layout, x [G, rows, K] and out [G, rows, N].

    masked_m is int32 [G] on the device. Scales of the rows of x are [G, rows] or [G, rows, 1]. Block scales of x are [G, rows, K/128], of
    out [G, rows, N/128], of any strides: those of DeepGEMM, (rows K/128, 1, rows), are taken as they are. Other rows of `out` are not
    written. The rest is as in `group_gemm`.
    """
    options = group_options("masked", _gated(activation), mean_tokens, fast_accum, order, batch_invariant)
    return _run(x, w, masked_m, (x_scale, w_scale, out_scale), out, out_dtype, options, config, stream)


def group_gemm_contiguous(x: Any, w: Any, m_indices: Any, *, x_scale: Any = None, w_scale: Any = None, out: Any = None,
                          out_dtype: Any = None, out_scale: Any = None, activation: str | None = None, fast_accum: bool | None = None,
                          order: Order | None = None, batch_invariant: bool = False, config: GroupedConfig | None = None,
                          stream: Any = None) -> Any:
    """out[i] = x[i] @ w[m_indices[i]].T: DeepGEMM's contiguous layout, x [M, K] and out [M, N].

    m_indices is int32 [M] on the device. Each aligned block of 128 rows belongs to the group of its first row. A block whose first row has
    a negative group is skipped. Padding rows are the last rows of a block, and have a negative group. Their rows of out are undefined:
    they may be multiplied like the others, or left unwritten in aligned pieces of 32 rows. The rest is as in `group_gemm`.
    """
    options = group_options("contiguous", _gated(activation), None, fast_accum, order, batch_invariant)
    return _run(x, w, m_indices, (x_scale, w_scale, out_scale), out, out_dtype, options, config, stream)


def check(cu_seqlens: Any, rows: int) -> None:
    """Read the offsets back, which waits for the device. Raise LaunchError unless they describe groups in `rows` rows."""
    seen = view(cu_seqlens, "cu_seqlens")
    count = seen.shape[0] if len(seen.shape) == 1 else 0
    host = (ctypes.c_int32 * count)()
    driver.copy_to_host(ctypes.addressof(host), seen.pointer, 4 * count, seen.device)
    sentence = misfit(list(host), rows)
    if sentence:
        raise LaunchError(sentence)


def _gated(activation: str | None) -> bool:
    if not (activation is None or (isinstance(activation, str) and activation == "silu_and_mul")):
        raise LaunchError(f"activation={short(activation)}: it is 'silu_and_mul' or None")
    return activation is not None


def _adds(combine: str | None) -> bool:
    if not (combine is None or (isinstance(combine, str) and combine == "atomic")):
        raise LaunchError(f"combine={short(combine)}: it is 'atomic', which adds rows in no particular order, or None")
    return combine is not None


def _run(x: Any, w: Any, lengths: Any, scales: tuple[Any, Any, Any], out: Any, out_dtype: Any, options: GroupOptions,
         config: GroupedConfig | None, stream: Any, numbers: tuple[Any, Any] = (None, None)) -> Any:
    """A launch is known by what tells its arrays from others, where their library says that (`marks`), else by views of them."""
    if getattr(x, "requires_grad", False) or getattr(w, "requires_grad", False) or getattr(out, "requires_grad", False) \
            or any(getattr(array, "requires_grad", False) for array in scales if array is not None):
        refuse_gradients(("x", x), ("w", w), ("out", out), *zip(GroupArrays._fields[4:], scales, strict=False))
    check_kind(config, GroupedConfig)
    key: Any = marks(x, w, lengths, out, *scales, *numbers) if out is not None and out_dtype is None else None
    if key is not None:
        key = key, options, config
    found = _launches.get(key) if key is not None else None
    if found is None:
        seen_x, seen_w = view(x, "x"), view(w, "w")
        if out is None:
            _, _, n, _, _ = extents(seen_x, seen_w, options)
            word = type_name(out_dtype) or ("e4m3" if scales[2] is not None else "bf16" if TYPES[seen_x.dtype].bits == 8 else seen_x.dtype)
            rows = seen_x.shape[:-1] if numbers[0] is None else (gathered_rows(view(numbers[0], "gather"), options),)
            out = empty_like_owner(seen_x, (*rows, n), word)
        else:
            check_out_dtype(out, out_dtype)
        arrays = _views(seen_x, seen_w, lengths, out, (*scales, *numbers), options)
        key = (arrays, options, config) if key is None else key
        found = _launches.get(key)
        if found is None:
            found = _launches[key] = prepare(arrays, options, config), seen_x
    launch, like = found
    if launch is not None:
        launch.run(raw_stream(stream, like))
    return out


def can_implement(x: Any, w: Any, lengths: Any, out: Any, *, layout: Layout = "cu_seqlens", x_scale: Any = None, w_scale: Any = None,
                  out_scale: Any = None, activation: str | None = None, mean_tokens: float | None = None, fast_accum: bool | None = None,
                  order: Order | None = None, batch_invariant: bool = False, gather: Any = None, weights: Any = None, scatter: Any = None,
                  combine: Literal["atomic"] | None = None, config: GroupedConfig | None = None) -> str | None:
    """None, or the reason if `group_gemm` does not take these arrays, or the function of another layout, "masked" or "contiguous".
    `lengths` are cu_seqlens, masked_m or m_indices. The lengths themselves are not looked at. Needs no GPU."""
    try:
        if not (isinstance(layout, str) and layout in LAYOUTS):
            raise LaunchError(f"layout={short(layout)}: it is {', '.join(LAYOUTS)}")
        _refuse_scales_of_both(weights, x_scale, w_scale)
        options = group_options(layout, _gated(activation), mean_tokens, fast_accum, order, batch_invariant, weights is not None,
                                _adds(combine))
        rest = weights if x_scale is None else x_scale, w_scale, out_scale, gather, scatter
        given = ("x", x), ("w", w), ("out", out), *zip(GroupArrays._fields[4:7], rest, strict=False)
        refuse_gradients(*given)
        check_kind(config, GroupedConfig)
        arrays = settled(_views(view(x, "x"), view(w, "w"), lengths, out, rest, options))
        same_device(arrays.named())
        problem = _checked(arrays, options, config)
        for part in parts(arrays, options, problem.groups, problem.mean) if problem.in_parts and not problem.empty else ():
            _checked(*part, config)
    except PtxkitError as error:
        return str(error)
    return None


def _refuse_scales_of_both(weights: Any, x_scale: Any, w_scale: Any) -> None:
    """Raise LaunchError for weights of rows besides scales of operands."""
    if weights is not None and (x_scale is not None or w_scale is not None):
        raise LaunchError("weights: with scales of operands multiply x_scale, of rows, by them instead")


def _views(x: ArrayView, w: ArrayView, lengths: Any, out: Any, rest: Sequence[Any], options: GroupOptions) -> GroupArrays:
    """The arrays of a product of groups as a launch sees them; the `rest` may be None."""
    seen = [None if array is None else view(array, name) for name, array in zip(GroupArrays._fields[4:], rest, strict=True)]
    return GroupArrays(x, w, view(lengths, NAMES[options.layout]), view(out, "out"), *seen)


def _checked(arrays: GroupArrays, options: GroupOptions, config: GroupedConfig | None) -> GroupProblem:
    """The problem of these arrays. Raises LaunchError where a result shares memory with another array, or the caller's configuration does
    not fit."""
    problem = GroupProblem(arrays, options)
    refuse_overlap(arrays.named(), WRITTEN)
    for each in config.kernels if config is not None and not (problem.empty or problem.in_parts) else ():
        check_config(each, problem)
    return problem


def prepare(arrays: GroupArrays, options: GroupOptions,
            config: GroupedConfig | None) -> GroupLaunch | GroupLaunches[GroupLaunch] | ClearedGroups | None:
    """The launch of these arrays; None if nothing is to be written."""
    apart = tuple([array is not None and array.pointer % LOADED > 0 for array in (arrays.x, arrays.w, *arrays[3:6])])
    shapes = tuple([array and array[1:5] for array in arrays]), apart, options, config
    plan = _plans.get(shapes)
    if plan is None:
        arrays = settled(arrays)
        named = arrays.named()
        ordinal = same_device(named)
        problem = _checked(arrays, options, config)
        if problem.empty:
            return ClearedGroups(problem, arrays, ordinal) if problem.clears else None
        if problem.in_parts:
            launches = [prepare(*part, config) for part in parts(arrays, options, problem.groups, problem.mean)]
            return GroupLaunches([launch for launch in launches if isinstance(launch, GroupLaunch)])
        plan = _plans[shapes] = GroupPlan(problem, ordinal, config)
        plan.spans = Spans(arrays, *map(GroupArrays._fields.index, WRITTEN))
    elif not plan.spans.apart(arrays):
        refuse_overlap(settled(arrays).named(), WRITTEN)
    return GroupLaunch(plan, arrays)


def check_config(config: GroupedConfig, problem: GroupProblem) -> None:
    """Raise LaunchError unless the caller's configuration fits the problem. It may load scales more slowly than necessary."""
    check_operands(config.operands, problem.operands)
    check_sums(config, problem.promote and not problem.block_scales, problem.options.batch_invariant)
    if problem.by_element and config.elements > 1:
        raise LaunchError(f"this config is not for this problem: rows of {problem.n} columns, or that begin anywhere, need store=Direct(1)")
    sums, best = config.sums, problem.sums()
    if isinstance(sums, BlockScaled | ThreadScaled) != problem.block_scales:
        raise LaunchError("this config is not for this problem: " + ("the arguments have block scales" if problem.block_scales else
                                                                     "it has block scales, the arguments have none"))
    if isinstance(sums, BlockScaled) and (not isinstance(best, BlockScaled) or LOADS.index(sums.load) > LOADS.index(best.load)):
        raise LaunchError(f"this config is not for this problem: its scales are loaded by {sums.load}, which these arrays do not "
                          f"allow: take {f'load={best.load!r}' if isinstance(best, BlockScaled) else best}")
    if problem.options.layout != "contiguous":                  # which has no table of groups
        check_room(config.operands.max_groups, "w", problem.groups)


__all__ = ["GroupLaunch", "GroupPlan", "can_implement", "check", "check_config", "group_gemm", "group_gemm_contiguous",
           "group_gemm_masked", "prepare", "updater", "workspace"]
