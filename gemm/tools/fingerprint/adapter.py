"""From a drawn problem to what this tree loads for it: the one module to change when names in the library change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptxkit.dsl.kernel import Traced
from ptxkit.errors import PtxkitError
from ptxkit.ptx import mul
from ptxkit.runtime.arrays import ArrayView

from ...collective.tensormaps import update_tensormaps
from ...config.dense import Config
from ...config.grouped import GroupConfig
from ...heuristic.dense import heuristic
from ...heuristic.grouped import fixed
from ...heuristic.grouped import heuristic as group_heuristic
from ...heuristic.tuned import tuned
from ...kernels.dense import gemm
from ...kernels.grouped import group_gemm
from ...launch.dense import check_config
from ...launch.grid import Grid
from ...launch.ptr_array import PointerArrays, PointerProblem
from ...problem.dense import Arrays, Options, Problem
from ...problem.grouped import GroupArrays, GroupOptions, GroupProblem
from .draw import BYTES, Dense, Grouped, Words
from .draw import Problem as Drawn

DEVICE, SMS = "NVIDIA H200", 132
RENAMED: dict[str, str] = {}
"""Run-time parameters of this tree's kernels that had another name in the tree to compare with: {name here: name there}."""

_COMMON = {"warpgroups": "CONSUMERS", "swizzle": "GROUP", "raster": "RASTER", "serpentine": "SERPENTINE", "store": "STORE",
           "stages": "STAGES", "buffers": "BUFFERS", "prefetch": "AHEAD", "l2_bytes": "L2_PROMOTION"}
_DENSE = {**_COMMON, "splits": "SPLITS", "reduce": "REDUCE", "a_rows": "A_ROWS", "evict_first": "STREAM_B"}
_GROUPED = {**_COMMON, "swap_ab": "TRANSPOSED", "n_granularity": "STEP", "shared_scales": "RING", "longest_first": "LONGEST_FIRST",
            "from_end": "FROM_END", "partial_boxes": "PIECES", "tail_rows": "REST", "evict_first": "STREAM_W"}


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
            return (Launched("gemm", gemm.trace(**config.parameters), (*_problem_words(drawn), *_config_words(config))),)
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


def dense_config(drawn: Dense) -> Config:
    """The tuned configuration, the heuristic's, or the one that is forced."""
    problem, _ = dense_problem(drawn)
    if not drawn.force:
        return tuned(problem, DEVICE) or heuristic(problem, SMS)
    words = dict(drawn.force)
    found: dict[str, Any] = {**problem.fixed, **_tile(words, _DENSE, problem.a.bits)}
    found |= {"TICKET": words.get("tiles") == "dynamic", "STREAM_K": words.get("tiles") == "stream_k"}
    config = Config(**found)
    check_config(config, problem)
    Grid.of(problem, config, max(1, SMS // config.cluster))
    return config


def _tile(words: Words, names: Mapping[str, str], bits: int) -> dict[str, Any]:
    """The fields of a configuration that neutral words say."""
    found: dict[str, Any] = {field: words[word] for word, field in names.items() if word in words}
    found["BM"], found["BN"] = words["tile"]
    if "stage_bytes" in words:
        found["BK"] = words["stage_bytes"] * 8 // bits
    if "cluster" in words:
        found["CLUSTER_M"], found["CLUSTER_N"] = words["cluster"]
    if words.get("schedule") == "pingpong":
        found["PINGPONG"] = True
    if "promotion" in words:
        found |= {"PROMOTE": True, "OVERLAP": words["promotion"] == "overlap", "STAGGER": words["promotion"] == "stagger"}
    if words.get("sfa") == "threads":
        found |= {"SCALE_MAP": False, "SCALE_BULK": False}
    if words.get("sfb") == "threads":
        found["SCALE_BULK"] = False
    return found


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


def _config_words(config: Config) -> tuple[str, ...]:
    cluster = f"{config.CLUSTER_M}x{config.CLUSTER_N}"
    return ("pingpong" if config.PINGPONG else f"cooperative:{config.CONSUMERS}", f"store:{config.STORE}", f"raster:{config.RASTER}",
            f"cluster:{cluster}", *["serpentine"] * config.SERPENTINE, *[f"split:{config.REDUCE}"] * (config.SPLITS > 1),
            *["dynamic"] * config.TICKET, *["stream_k"] * config.STREAM_K, *["prefetch"] * bool(config.AHEAD),
            *["b_evict_first"] * config.STREAM_B, *["few_rows"] * bool(config.A_ROWS), *[f"sfa:{config.SCALE_MAP}"] * config.BLOCK_SCALES,
            *[f"sfb:{config.SCALE_BULK}"] * config.BLOCK_SCALES,
            *["promotion:" + ("overlap" if config.OVERLAP else "stagger" if config.STAGGER else "plain")] * config.PROMOTE)


__all__ = ["RENAMED", "Launched", "Unsupported", "dense_config", "grouped_config", "kernels"]
