"""From a drawn problem to what this tree loads for it: the one module to change when names in the library change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from ptxkit.cards import H200
from ptxkit.dsl.traced import Traced
from ptxkit.errors import PtxkitError
from ptxkit.ptx import mul
from ptxkit.runtime.arrays import ArrayView

from ...config.dense import DenseConfig
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
    ScaleLoad,
    Schedule,
    Scheduler,
    SplitK,
    Staged,
    Static,
    Store,
    StreamK,
    Swizzle,
    Tile,
)
from ...heuristic.dense import heuristic
from ...heuristic.tuned import tuned
from ...launch.dense import check_config
from ...launch.grid import Grid, kernel_of
from ...problem.dense import Arrays, Options, Problem
from .draw import BYTES, Dense, Grouped, Words
from .draw import Problem as Drawn

if TYPE_CHECKING:
    from ...config.grouped import GroupConfig
    from ...launch.ptr_array import PointerProblem
    from ...problem.grouped import GroupProblem

RENAMED: dict[str, str] = {
    "shape_m": "m", "shape_n": "n", "shape_m_tiles": "m_tiles", "shape_n_tiles": "n_tiles", "shape_k_tiles": "k_tiles",
    "shape_batches": "batches", "out_pointer": "out", "fused_alpha": "alpha", "fused_beta": "beta", "fused_c_pointer": "c",
    "fused_c_row": "c_row", "fused_c_batch": "c_batch", "fused_bias": "bias", "fused_residual_pointer": "residual",
    "fused_residual_row": "residual_row", "fused_residual_batch": "residual_batch", "fused_a_scale": "a_scale", "fused_b_scale": "b_scale",
    "sfa_map": "s", "sfa_pointer": "a_scale", "sfa_mn_stride": "a_scale_m", "sfa_k_stride": "a_scale_k", "sfb_pointer": "b_scale",
    "sfb_mn_stride": "b_scale_n", "sfb_k_stride": "b_scale_k", "divmod_line": "of_line", "divmod_panel": "of_panel",
    "divmod_batch": "of_batch"}
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
        return tuned(problem, H200.name) or heuristic(problem, H200)
    words = dict(drawn.force)
    scheduler = _scheduler(words)
    loads = Loads(words.get("a_rows", 0), words.get("evict_first", False), words.get("prefetch", 0), words.get("l2_bytes", L2_FETCH))
    if isinstance(scheduler, StreamK) or isinstance(scheduler.order, Hilbert):
        loads = replace(loads, l2_prefetch_stages=0)
    def config_of(store: Store | None) -> DenseConfig:
        return DenseConfig(problem.operands, _tile(words, problem.a.bits), words.get("stages", 0), _schedule(words, problem), scheduler,
                           store, loads, problem.fusion)

    store = {"direct": Direct(), "staged": Staged(words.get("buffers", 0))}.get(words.get("store", ""))
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


def _schedule(words: Words, problem: Problem) -> Schedule:
    how = words.get("promotion")
    sums = problem.sums(how or "plain")
    if how and not isinstance(sums, Promoted):
        sums = Promoted(how)
    if isinstance(sums, BlockScaled):
        slower = {"threads": "warp"}.get(words.get("sfa", ""), "tensor_map" if words.get("sfb") == "threads" else sums.load)
        sums = replace(sums, load=min((slower, sums.load), key=get_args(ScaleLoad).index))
    if words.get("schedule") == "pingpong":
        if isinstance(sums, Promoted) or words.get("warpgroups", 2) != 2:
            raise Unsupported("pingpong is of two warpgroups whose sums stay in the tensor cores")
        return Pingpong()
    return Cooperative(words.get("warpgroups", 0), sums)


# -------------------------------------------------------------------------------------------------------------------- grouped

def grouped_config(drawn: Grouped) -> GroupConfig:
    """The heuristic's configuration, or the one that is forced."""
    if drawn.layout == "pointers":
        pointers = _pointer_problem(drawn)
        if not drawn.force:
            return pointers.config()
        capacity = next(capacity for capacity in (32, 64, 128, 256, 1024) if drawn.groups <= capacity)
        rest: dict[str, Any] = {"x": pointers.x, "w": pointers.w, "out": pointers.out, "GROUPS": capacity, "LAYOUT": "pointers",
                                "SCALED": pointers.scaled, "PROMOTE": pointers.promote}
        return GroupConfig.of(**{**_group_tile(drawn.force, pointers.x.bits), **rest})
    problem = grouped_problem(drawn)
    if not drawn.force:
        return group_heuristic(problem, SMS)
    rest = fixed(problem)
    config = GroupConfig.of(**{**problem.scale_copies, **_group_tile(drawn.force, problem.x.bits), **rest}) \
        if drawn.force.get("shared_scales") else GroupConfig.of(**{**_group_tile(drawn.force, problem.x.bits), **rest})
    second = drawn.force.get("second")
    if second is None:
        return config
    other = GroupConfig.of(**{**_group_tile(second, problem.x.bits), **rest})
    first, last = second["costs"]
    return config.or_(config.tiles(first), other, other.tiles(last), second.get("between"))


def _group_tile(words: Words, bits: int) -> dict[str, Any]:
    found = _tile(words, _GROUPED, bits)
    if "order" in words:
        found["ORDER"] = "ticket" if words["order"] == "dynamic" else words["order"]
    if words.get("tails") == "maps":
        found["TAILS"] = "updated"
    return found


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
    options: Any = (drawn.layout, drawn.gated, drawn.mean, drawn.fast, drawn.order or None)
    problem = GroupProblem(arrays, GroupOptions(*options))
    if problem.empty:
        raise Unsupported("nothing to multiply")
    return problem


def _pointer_problem(drawn: Grouped) -> PointerProblem:
    def array(dtype: str, *shape: int) -> ArrayView:
        return ArrayView(0, shape, (shape[1], 1) if len(shape) == 2 else (1,), dtype, 0, "other")

    groups = drawn.groups
    one = array("s64", groups)
    scales = () if drawn.scales == "none" else (array("f32", 1), array("f32", 1 if drawn.scales == "one" else groups))
    arrays = PointerArrays(one, one, one, array("s32", groups, 3), *scales)
    return PointerProblem(arrays, drawn.x, drawn.w, drawn.out, drawn.mean or 128.0, drawn.fast)


def _grouped_kernels(drawn: Grouped, config: GroupConfig) -> list[Launched]:
    found = []
    words = _problem_words(drawn)
    for number, each in enumerate(config.kernels):
        if each.TAILS == "predicated" and each.tile.STORE == "staged":
            raise Unsupported("stores of whole tiles or parts are not compared")
        if each.TAILS == "updated":
            found.append(Launched("update_tensormaps", update_tensormaps.trace(**each.update), (f"maps:{drawn.layout}",)))
        more = [f"order:{each.ORDER}", f"groups:{each.GROUPS}", *["swap_ab"] * each.TRANSPOSED, *["n_granularity"] * bool(each.STEP),
                *["shared_scales"] * each.ring, *["longest_first"] * each.LONGEST_FIRST, *["from_end"] * bool(each.FROM_END),
                *["partial_boxes"] * bool(each.piece), *["tail_rows"] * bool(each.REST), *["weights_evict_first"] * each.STREAM_W,
                f"tails:{each.TAILS}", *[f"two_kernels:{number + 1}"] * (each.CHOICE is not None),
                *["two_kernels:shared"] * (each.CHOICE is not None and each.CHOICE.between is not None)]
        found.append(Launched("group_gemm", group_gemm.trace(**each.parameters), (*words, *more, *_config_words(each.tile))))
    return found


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
            *[f"scales:{sums.load}" for _ in (0,) if isinstance(sums, BlockScaled)],
            *[f"promotion:{sums.how}" for _ in (0,) if isinstance(sums, Promoted)])


__all__ = ["RENAMED", "Launched", "Unsupported", "dense_config", "grouped_config", "kernels"]
