"""From a drawn problem to what this tree loads for it: the one module to change when names in the library change."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from ptxkit.cards import H200
from ptxkit.dsl.traced import Traced
from ptxkit.errors import PtxkitError
from ptxkit.ptx import mul
from ptxkit.runtime.arrays import ArrayView

from ...config import budget
from ...config.dense import DenseConfig
from ...config.grouped import (
    CAPACITIES,
    DynamicGroups,
    GroupedConfig,
    GroupLoads,
    GroupOperands,
    StagedGroups,
    StaticGroups,
    SwapAB,
    TokensAsRows,
)
from ...config.parts import (
    L2_FETCH,
    BlockScaled,
    ClusterShape,
    Cooperative,
    Direct,
    Dynamic,
    Hilbert,
    Loads,
    Pingpong,
    Promoted,
    Promotion,
    ScaleLoad,
    Schedule,
    Scheduler,
    SplitK,
    Staged,
    Static,
    Store,
    StreamK,
    Sums,
    Swizzle,
    TensorCoreSums,
    ThreadScaled,
    Tile,
)
from ...heuristic.dense import heuristic
from ...heuristic.group_tile import with_partial_boxes
from ...heuristic.grouped import heuristic as grouped_heuristic
from ...heuristic.ptr_array import heuristic as ptr_array_heuristic
from ...heuristic.tuned import tuned
from ...launch.dense import check_config
from ...launch.grid import Grid, kernel_of
from ...problem.dense import Arrays, Options, Problem
from ...problem.grouped import GroupArrays, GroupOptions, GroupProblem
from ...scheduler.group_table import Layout
from ...scheduler.grouped import Order
from .draw import BYTES, Dense, Grouped, Words
from .draw import Problem as Drawn

if TYPE_CHECKING:
    from ...launch.ptr_array import PointerProblem

RENAMED: dict[str, str] = {
    "shape_m": "m", "shape_n": "n", "shape_m_tiles": "m_tiles", "shape_n_tiles": "n_tiles", "shape_k_tiles": "k_tiles",
    "shape_batches": "batches", "out_pointer": "out", "fused_alpha": "alpha", "fused_beta": "beta", "fused_c_pointer": "c",
    "fused_c_row": "c_row", "fused_c_batch": "c_batch", "fused_bias": "bias", "fused_residual_pointer": "residual",
    "fused_residual_row": "residual_row", "fused_residual_batch": "residual_batch", "fused_a_scale": "a_scale", "fused_b_scale": "b_scale",
    "sfa_map": "s", "sfa_pointer": "a_scale", "sfa_mn_stride": "a_scale_m", "sfa_k_stride": "a_scale_k", "sfb_pointer": "b_scale",
    "sfb_mn_stride": "b_scale_n", "sfb_k_stride": "b_scale_k", "divmod_line": "of_line", "divmod_panel": "of_panel",
    "divmod_batch": "of_batch",
    "groups_lengths": "lengths", "groups_count": "groups", "groups_rows": "rows", "groups_pitch": "pitch", "groups_n": "n",
    "groups_weight_tiles": "weight_tiles", "groups_k_tiles": "k_tiles", "groups_weights_divmod": "of_weights", "x_tail": "x_rest",
    "x_scale_pointer": "x_scale", "x_scale_mn_stride": "x_scale_m", "x_scale_k_stride": "x_scale_k", "w_scale_pointer": "w_scale",
    "w_scale_group_stride": "w_scale_group", "w_scale_mn_stride": "w_scale_n", "w_scale_k_stride": "w_scale_k",
    "out_scale_pointer": "out_scale", "out_scale_mn_stride": "out_scale_m", "out_scale_k_stride": "out_scale_n"}
"""Run-time parameters of this tree's kernels that had another name in the tree to compare with: {name here: name there}."""


class Unsupported(Exception):
    """The library has no kernel for this problem with these words."""


@dataclass(frozen=True)
class Launched:
    """A kernel of a problem: what it is for, what is traced, and words of its configuration to count what is covered."""

    role: str
    traced: Traced
    words: tuple[str, ...]


def kernels(drawn: Drawn) -> tuple[Launched, ...]:
    """The kernels that the library would launch, in their order. Raises Unsupported."""
    try:
        if isinstance(drawn, Dense):
            config = dense_config(drawn)
            return (Launched("gemm", kernel_of(config).trace(**config.parameters), (*_problem_words(drawn), *_config_words(config))),)
        grouped = grouped_config(drawn)
        return tuple(_grouped_kernels(drawn, grouped))
    except PtxkitError as error:
        raise Unsupported(str(error)) from error


def _square(x: Any) -> Any:
    return mul.rn.f32(x, x)


# ---------------------------------------------------------------------------------------------------------------------- dense

def dense_problem(drawn: Dense) -> tuple[Problem, Arrays]:
    """The library's problem, of arrays without memory."""
    def matrix(rows: int, columns: int, dtype: str, pad: int = 0, letter: str = "n") -> ArrayView:
        inner, outer = (columns, rows) if letter == "n" else (rows, columns)
        line = inner + pad * 16 // BYTES[dtype]
        shape, strides = (rows, columns), (line, 1) if letter == "n" else (1, line)
        if drawn.batch:
            return ArrayView(0, (drawn.batch, *shape), (line * outer, *strides), dtype, 0, "other")
        return ArrayView(0, shape, strides, dtype, 0, "other")

    fused, (m, n, k) = drawn.fused, (drawn.m, drawn.n, drawn.k)
    bias = None
    if fused.bias:
        shape, strides = ((n,), (1,)) if fused.along == "column" else ((m, 1), (1, 1))
        bias = ArrayView(0, shape, strides, fused.bias, 0, "other")
    scales: tuple[ArrayView | None, ...] = (None, None)
    if drawn.scales == "one":
        scales = (ArrayView(0, (), (), "f32", 0, "other"),) * 2
    elif drawn.scales != "none":
        depth, letter = -(-k // 128), "t" if drawn.scales == "block" else "n"
        line = -(-m // 4) * 4
        a_scale = ArrayView(0, (m, depth), (1, line) if letter == "t" else (depth, 1), "f32", 0, "other")
        scales = a_scale, matrix(depth, -(-n // 128), "f32", 0, letter)
    arrays = Arrays(matrix(m, k, drawn.a, drawn.pads[0], drawn.layout[0]), matrix(k, n, drawn.b, drawn.pads[1], drawn.layout[1]),
                    matrix(m, n, drawn.out, drawn.pads[2]), matrix(m, n, fused.c, drawn.pads[3]) if fused.c else None, bias,
                    matrix(m, n, fused.residual, drawn.pads[3]) if fused.residual else None, *scales)
    activation = _square if fused.activation == "square" else fused.activation or None
    return Problem(arrays, Options(fused.alpha, fused.beta, activation, drawn.accumulate, drawn.fast)), arrays


def dense_config(drawn: Dense) -> DenseConfig:
    """The tuned configuration, the heuristic's, or the one that is forced."""
    problem, _ = dense_problem(drawn)
    if not drawn.force:
        return tuned(problem, H200) or heuristic(problem, H200)
    words = dict(drawn.force)
    scheduler = _scheduler(words)
    loads = Loads(words.get("a_rows", 0), words.get("evict_first", False), words.get("prefetch", 0), words.get("l2_bytes", L2_FETCH))
    if isinstance(scheduler, StreamK) or isinstance(scheduler.order, Hilbert):
        loads = replace(loads, l2_prefetch_stages=0)

    def config_of(store: Store | None) -> DenseConfig:
        return DenseConfig(problem.operands, _tile(words, problem.a.bits), words.get("stages", 0), _schedule(words, problem), scheduler,
                           store, loads, problem.fusion)

    stores: dict[str, Store] = {"direct": Direct(), "staged": Staged(words.get("buffers", 0))}
    store = stores.get(words.get("store", ""))
    config = config_of(store)
    if store is None and config.staged and "buffers" in words:
        config = config_of(Staged(words["buffers"]))
    check_config(config, problem)
    Grid.of(problem, config, max(1, H200.sms // config.cluster))
    return config


def _tile(words: Words, bits: int) -> Tile:
    BM, BN = words["tile"]
    return Tile(BM, BN, words.get("stage_bytes", 0) * 8 // bits)


def _order(words: Words) -> Swizzle | Hilbert:
    if words.get("raster") == "hilbert":
        return Hilbert()
    return Swizzle(words.get("raster", "along_m"), words.get("swizzle", 8), words.get("serpentine", False))


def _scheduler(words: Words) -> Scheduler:
    order, cluster, tiles = _order(words), ClusterShape(*words.get("cluster", (1, 1))), words.get("tiles")
    if words.get("splits", 1) > 1:
        if cluster.size > 1 or tiles in ("dynamic", "stream_k"):
            raise Unsupported("a split K has no clusters of its own, and no other scheduler")
        return SplitK(words["splits"], words.get("reduce", "workspace"), order)
    if tiles == "dynamic":
        if cluster.size > 1:
            raise Unsupported("tickets are drawn by CTAs on their own")
        return Dynamic(order)
    return StreamK(order, cluster) if tiles == "stream_k" else Static(order, cluster)


def _said_load(words: Words, best: ScaleLoad) -> ScaleLoad:
    """How block scales are loaded: as the words say, or in the best way that there is."""
    said: ScaleLoad = "warp" if words.get("sfa") == "threads" else "tensor_map" if words.get("sfb") == "threads" else best
    return min((said, best), key=get_args(ScaleLoad).index)


def _schedule(words: Words, problem: Problem) -> Schedule:
    how = words.get("promotion")
    sums = problem.sums(how or "plain")
    if how and not isinstance(sums, Promoted):
        sums = Promoted(how)
    if isinstance(sums, BlockScaled):
        sums = replace(sums, load=_said_load(words, sums.load))
    if words.get("schedule") == "pingpong":
        if isinstance(sums, Promoted) or words.get("warpgroups", 2) != 2:
            raise Unsupported("pingpong is of two warpgroups whose sums stay in the tensor cores")
        return Pingpong()
    return Cooperative(words.get("warpgroups", 0), sums)


# -------------------------------------------------------------------------------------------------------------------- grouped

LAYOUTS_HERE: dict[str, Layout] = {"offsets": "cu_seqlens", "masked": "masked", "rows": "contiguous", "pointers": "ptr_array"}
"""The names of this tree for the layouts of drawn problems."""
ORDERS_HERE: dict[str, Order] = {"ticket": "dynamic", "dynamic": "dynamic", "linear": "linear", "search": "search", "across": "across"}


def grouped_config(drawn: Grouped) -> GroupedConfig:
    """The heuristic's configuration, or the one that is forced."""
    if drawn.layout == "pointers":
        pointers = _pointer_problem(drawn)
        if not drawn.force:
            return ptr_array_heuristic(pointers.x, pointers.w, pointers.out, pointers.mean, pointers.promote, pointers.scaled,
                                       pointers.groups)
        capacity = next(capacity for capacity in CAPACITIES if drawn.groups <= capacity)
        operands = GroupOperands(pointers.x, pointers.w, pointers.out, "ptr_array", scaled=pointers.scaled, max_groups=capacity)
        return _forced(drawn.force, operands, lambda how, swap_ab: Promoted(how) if pointers.promote else TensorCoreSums())
    problem = grouped_problem(drawn)
    if not drawn.force:
        return grouped_heuristic(problem, H200)
    words = drawn.force
    order: Words = {"order": drawn.order} if drawn.order else {}
    config = _forced({**words, **order}, problem.operands, functools.partial(_group_sums, words, problem))
    second = words.get("second")
    if second is None:
        return config
    other = _forced({**second, **order}, problem.operands, functools.partial(_group_sums, second, problem))
    first, last = second["costs"]
    return config.or_(config.cost(first), other, other.cost(last), second.get("between"))


def _group_sums(words: Words, problem: GroupProblem, how: Promotion, swap_ab: bool) -> Sums:
    """Where sums are accumulated. Block scales are read by the threads unless shared_scales is said."""
    sums = problem.sums(how, swap_ab)
    if not problem.block_scales or swap_ab:
        return sums
    if not words.get("shared_scales"):
        if how == "overlap":
            raise Unsupported("promotion that overlaps takes block scales from shared memory")
        return ThreadScaled(how == "stagger")
    return BlockScaled(how, _said_load(words, problem.scale_load))


def _forced(words: Words, operands: GroupOperands, sums: Callable[[Promotion, bool], Sums]) -> GroupedConfig:
    """The configuration that the words say. Partial boxes and tail rows are left out where such a tile cannot have them."""
    swap_ab, tile = words.get("swap_ab", False), _tile(words, operands.x.bits)
    where = sums(words.get("promotion", "plain"), swap_ab)
    schedule: Schedule = Cooperative(words.get("warpgroups", 0), where)
    if words.get("schedule") == "pingpong":
        if not isinstance(where, TensorCoreSums):
            raise Unsupported("pingpong is of warpgroups whose sums stay in the tensor cores")
        schedule = Pingpong()
    cluster = ClusterShape(*words.get("cluster", (1, 1)))
    swizzle = Swizzle(words.get("raster", "along_m"), words.get("swizzle", 8), words.get("serpentine", False))
    find, longest = ORDERS_HERE[words.get("order", "linear")], words.get("longest_first", False)
    scheduler: StaticGroups | DynamicGroups = DynamicGroups(longest, words.get("from_end", 0), swizzle, cluster)
    if find != "dynamic":
        scheduler = StaticGroups(find, longest, swizzle, cluster)
    tokens: TokensAsRows | SwapAB = SwapAB(words.get("n_granularity", 0)) if swap_ab else TokensAsRows()
    if words.get("partial_boxes"):
        tokens = with_partial_boxes(tokens, words.get("tail_rows", 0), tile.BM, schedule, cluster, operands.layout)
    loads = GroupLoads(words.get("evict_first", False), words.get("prefetch", 0), words.get("l2_bytes", L2_FETCH))

    def config_of(store: StagedGroups | Direct | None) -> GroupedConfig:
        return GroupedConfig(operands, tokens, tile, words.get("stages", 0), schedule, scheduler, store, loads)

    config = config_of(_group_store(words, operands, tile))
    if "buffers" in words and isinstance(config.store, StagedGroups) and config.store.buffers != words["buffers"]:
        config = config_of(replace(config.store, buffers=words["buffers"]))
    if words.get("buffers") == 1 and not words.get("stages") and not budget.promoted_by_halves(config.tile, config.schedule):
        raise Unsupported("one staging buffer goes with stages that are said")
    return config


def _group_store(words: Words, operands: GroupOperands, tile: Tile) -> StagedGroups | Direct | None:
    """How tiles are stored. Swapped ones, and halves of gated ones that are no whole spans, are stored directly whatever is said."""
    maps = words.get("tails") == "maps"
    if words.get("swap_ab") or (operands.gated and tile.BN * operands.out.bits % 512):
        return Direct()
    if words.get("store") == "direct":
        if maps:
            raise Unsupported("maps of each group are for staged stores")
        return Direct()
    staged = StagedGroups(words.get("buffers", 0), "tensormap" if maps else "ragged")
    return staged if maps or words.get("store") == "staged" else None


def grouped_problem(drawn: Grouped) -> GroupProblem:
    """The library's problem, of arrays without memory."""
    def array(dtype: str, *shape: int) -> ArrayView:
        strides, stride = [], 1
        for extent in reversed(shape):
            strides.append(stride)
            stride *= extent
        return ArrayView(0, shape, tuple(reversed(strides)), dtype, 0, "other")

    groups, lines, depth = drawn.groups, drawn.n * (1 + drawn.gated), -(-drawn.k // 128)
    shape = (groups, drawn.rows // groups) if drawn.layout == "masked" else (drawn.rows,)
    count = {"masked": groups, "rows": drawn.rows, "offsets": groups + 1}[drawn.layout]
    scales: Any = (None, None)
    if drawn.scales in ("block", "rows"):
        x_scale = array("f32", *shape, depth)
        if drawn.scales == "block":
            line = -(-drawn.rows // 4) * 4
            strides = (1, line) if len(shape) == 1 else (shape[1], 1, line)
            x_scale = x_scale._replace(strides=strides)
        scales = x_scale, array("f32", groups, -(-lines // 128), depth)
    elif drawn.scales != "none":
        scales = array("f32", 1), array("f32", 1 if drawn.scales == "one" else groups)
    out_scale = array("f32", *shape, drawn.n // 128) if drawn.quantised else None
    arrays = GroupArrays(array(drawn.x, *shape, drawn.k), array(drawn.w, groups, lines, drawn.k), array("s32", count),
                         array(drawn.out, *shape, drawn.n), scales[0], scales[1], out_scale)
    order = ORDERS_HERE[drawn.order] if drawn.order else None
    problem = GroupProblem(arrays, GroupOptions(LAYOUTS_HERE[drawn.layout], drawn.gated, drawn.mean, drawn.fast, order))
    if problem.empty:
        raise Unsupported("nothing to multiply")
    return problem


def _pointer_problem(drawn: Grouped) -> PointerProblem:
    from ...launch.ptr_array import PointerArrays, PointerProblem

    def array(dtype: str, *shape: int) -> ArrayView:
        return ArrayView(0, shape, (shape[1], 1) if len(shape) == 2 else (1,), dtype, 0, "other")

    groups = drawn.groups
    one = array("s64", groups)
    scales = () if drawn.scales == "none" else (array("f32", 1), array("f32", 1 if drawn.scales == "one" else groups))
    arrays = PointerArrays(one, one, one, array("s32", groups, 3), *scales)
    return PointerProblem(arrays, drawn.x, drawn.w, drawn.out, drawn.mean or 128.0, drawn.fast)


def _grouped_kernels(drawn: Grouped, config: GroupedConfig) -> list[Launched]:
    from ...kernels.update_tensormaps import update_tensormaps
    from ...launch.group_kernels import kernel_of as grouped_kernel_of

    found = []
    words = _problem_words(drawn)
    for number, each in enumerate(config.kernels):
        if each.updates_maps:
            found.append(Launched("update_tensormaps", update_tensormaps.trace(**each.update), (f"maps:{drawn.layout}",)))
        traced = grouped_kernel_of(each).trace(**each.parameters)
        found.append(Launched("group_gemm", traced, (*words, *_grouped_words(each, number))))
    return found


def _grouped_words(config: GroupedConfig, number: int) -> tuple[str, ...]:
    scheduler, tokens, plan = config.scheduler, config.tokens, config.plan
    order = scheduler.find if isinstance(scheduler, StaticGroups) else "stream" if config.streams else "dynamic"
    tails = "direct" if isinstance(config.store, Direct) else getattr(config.store, "ends", "")
    return (f"order:{order}", f"groups:{config.operands.max_groups}", *["swap_ab"] * config.swap_ab,
            *["n_granularity"] * bool(config.n_granularity), *["shared_scales"] * isinstance(config.sums, BlockScaled),
            *["longest_first"] * scheduler.longest_first,
            *["from_end"] * (isinstance(scheduler, DynamicGroups) and bool(scheduler.from_tail)),
            *["partial_boxes"] * tokens.partial_boxes, *["tail_rows"] * bool(config.tail_rows),
            *["weights_evict_first"] * config.loads.weights_evict_first, f"tails:{tails}",
            *[f"two_kernels:{number + 1}"] * (plan is not None),
            *["two_kernels:shared"] * (plan is not None and plan.between is not None),
            "pingpong" if isinstance(config.schedule, Pingpong) else f"cooperative:{config.warpgroups}",
            f"store:{'direct' if isinstance(config.store, Direct) else 'staged'}", f"raster:{scheduler.order.raster}",
            f"cluster:{scheduler.cluster.m}x{scheduler.cluster.n}", *["serpentine"] * scheduler.order.serpentine,
            *["prefetch"] * bool(config.loads.l2_prefetch_stages), *_sums_words(config.sums))


# ------------------------------------------------------------------------------------------------------------------- coverage

def _problem_words(drawn: Drawn) -> tuple[str, ...]:
    source = ["forced" if drawn.force else "chosen", f"scales:{drawn.scales}", f"layout:{drawn.layout}", f"out:{drawn.out}",
              *["promoted"] * (drawn.fast is False)]
    if isinstance(drawn, Grouped):
        return (*source, f"types:{drawn.x}*{drawn.w}", *["gated"] * drawn.gated, *["quantised"] * drawn.quantised)
    fused = drawn.fused
    return (*source, f"types:{drawn.a}*{drawn.b}", *["batch"] * bool(drawn.batch), f"sums:{drawn.accumulate}",
            *["alpha"] * (fused.alpha != 1), *["beta"] * bool(fused.c), *[f"bias:{fused.along}"] * bool(fused.bias),
            *[f"activation:{fused.activation}"] * bool(fused.activation), *["residual"] * bool(fused.residual))


def _config_words(config: DenseConfig) -> tuple[str, ...]:
    scheduler, sums, order = config.scheduler, config.sums, config.scheduler.order
    return ("pingpong" if isinstance(config.schedule, Pingpong) else f"cooperative:{config.warpgroups}",
            f"store:{type(config.store).__name__}", f"raster:{getattr(order, 'raster', 'hilbert')}",
            f"cluster:{config.multicast.m}x{config.multicast.n}", *["serpentine"] * getattr(order, "serpentine", False),
            *[f"split:{scheduler.reduce}" for _ in (0,) if isinstance(scheduler, SplitK)], *["dynamic"] * isinstance(scheduler, Dynamic),
            *["stream_k"] * isinstance(scheduler, StreamK), *["prefetch"] * bool(config.loads.l2_prefetch_stages),
            *["b_evict_first"] * config.loads.b_evict_first, *["few_rows"] * bool(config.loads.a_rows),
            *_sums_words(sums))


def _sums_words(sums: Sums) -> tuple[str, ...]:
    if isinstance(sums, ThreadScaled):
        return "scales:threads", f"promotion:{'stagger' if sums.stagger else 'plain'}"
    return (*[f"scales:{sums.load}" for _ in (0,) if isinstance(sums, BlockScaled)],
            *[f"promotion:{sums.how}" for _ in (0,) if isinstance(sums, Promoted)])


__all__ = ["RENAMED", "Launched", "Unsupported", "dense_config", "grouped_config", "kernels"]
