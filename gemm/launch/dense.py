"""Layer 5, the device adapter of dense products: checks arguments, chooses a configuration, encodes tensor maps and launches."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import astuple, fields, replace
from typing import Any, get_args

from ptxkit.cards import Card, of_device
from ptxkit.dsl.kernel import Kernel
from ptxkit.errors import LaunchError
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.compiled import Compiled
from ptxkit.runtime.launch import empty_like_owner, raw_stream, same_device, view
from ptxkit.runtime.launcher import EncodedTensorMap, Launcher, encode_tiled
from ptxkit.types import TYPES

from ..config import budget
from ..config.dense import DenseConfig
from ..config.parts import BlockScaled, ScaleLoad
from ..heuristic.dense import heuristic
from ..heuristic.tuned import tuned
from ..problem.dense import PLAIN, Arrays, Lines, Options, Problem, extents, type_name
from ..scheduler.hilbert import hilbert
from .grid import COUNTER_BYTES, Grid, kernel_of, places, scalars
from .workspace import Workspaces

_PLANS_KEPT = 512

_plans: dict[tuple[Any, ...], Plan] = {}
_launches: OrderedDict[tuple[Any, ...], Launch | Zeros | None] = OrderedDict()
_workspaces = Workspaces(32 << 20)


class Maps:
    """The tensor maps of a launch, by the kernel's parameter names. They are encoded once, then copied with new addresses."""

    __slots__ = ("encoded", "fields", "names")

    def __init__(self, records: Mapping[str, Any], lines: Mapping[str, Lines], promotion: int) -> None:
        self.names = tuple(lines)
        self.fields = [replace(records[name].fields(seen.dims, seen.strides), l2_promotion=promotion) if name in records else None
                       for name, seen in lines.items()]
        self.encoded: tuple[EncodedTensorMap, ...] = ()

    def at(self, *pointers: int) -> tuple[EncodedTensorMap, ...]:
        """The maps of arrays at these addresses. In place of a map that the kernel never reads, the first map is passed again."""
        found: list[EncodedTensorMap] = []
        for i, (wanted, pointer) in enumerate(zip(self.fields, pointers, strict=False)):
            if wanted is None:
                found.append(found[0])
            else:
                found.append(self.encoded[i].at(pointer) if self.encoded else encode_tiled(wanted, pointer))
        self.encoded = self.encoded or tuple(found)
        return tuple(found)


class Plan:
    """A configuration loaded on a device for one problem: everything of a launch except the pointers."""

    __slots__ = ("compiled", "config", "curve", "grid", "launcher", "maps", "ordinal", "places", "problem", "template")

    def __init__(self, problem: Problem, ordinal: int, config: DenseConfig | None = None, *, pdl: bool = True) -> None:
        self.problem, self.ordinal = problem, ordinal
        self.config = config or configuration(problem, ordinal)
        self.compiled = compiled(kernel_of(self.config), ordinal, **self.config.parameters)
        self.launcher: Launcher = self.compiled.launcher(pdl=pdl)
        clusters = self.compiled.max_clusters()
        if not clusters:
            raise LaunchError(f"{driver.device(ordinal).name} holds no cluster of {self.config.cluster} CTAs with "
                              f"{self.config.smem_bytes:,} bytes of shared memory each: take Static() or fewer stages")
        self.grid = Grid.of(problem, self.config, clusters)
        self.curve = _curve(*self.grid.curve, ordinal) if self.grid.curve else 0
        traced = self.compiled.traced
        lines = {"a": problem.a_lines, "b": problem.b_lines, "d": problem.d_lines, "sfa_map": problem.s_lines}
        read = [parameter.name for parameter in traced.parameters if parameter.kind == "tensormap"]
        self.maps = Maps(traced.copies.records, {name: lines[name] for name in read}, self.config.loads.l2_fetch)
        self.places = places(traced)
        self.template: tuple[Any, ...] = ()

    def scalars(self, arrays: Arrays, options: Options) -> tuple[Any, ...]:
        """The kernel's arguments besides tensor maps, without the workspace. For plain products only the pointer of D changes."""
        if options is not PLAIN or not self.problem.plain:
            return self._scalars(arrays, options)
        if not self.template:
            self.template = self._scalars(arrays, options)
        out = self.places["out_pointer"]
        return (*self.template[:out], arrays.out.pointer, *self.template[out + 1:])

    def _scalars(self, arrays: Arrays, options: Options) -> tuple[Any, ...]:
        def pointer(name: str) -> int:
            array = getattr(arrays, name, None)
            return self.curve if name == "curve" else 0 if array is None else array.pointer

        return scalars(self.compiled.traced, self.grid.arguments(self.problem, arrays, options, pointer))


class Launch:
    """A plan with pointers: all that a repeated call needs."""

    __slots__ = ("counters", "grid", "launcher", "maps", "ordinal", "scalars", "sums", "workspace_bytes")

    def __init__(self, plan: Plan, arrays: Arrays, options: Options) -> None:
        self.launcher, self.grid, self.ordinal = plan.launcher, plan.grid.ctas, plan.ordinal
        self.maps = plan.maps.at(arrays.a.pointer, arrays.b.pointer, arrays.out.pointer, arrays.a_scale.pointer if arrays.a_scale else 0)
        self.scalars = plan.scalars(arrays, options)
        self.workspace_bytes = plan.grid.workspace_bytes
        self.counters, self.sums = plan.places["counters"], plan.places.get("workspace")

    def run(self, stream: int, workspace: int = 0) -> None:
        """Launch on a stream. `workspace` is the address from `Adapter.initialize`; 0: the stream's own workspace."""
        scalars = self.scalars
        if self.workspace_bytes:
            place, placed = workspace or _workspaces.of(self.ordinal, stream, self.workspace_bytes), list(scalars)
            placed[self.counters] = place           # counters first, partial sums after them
            if self.sums is not None:
                placed[self.sums] = place + COUNTER_BYTES
            scalars = tuple(placed)
        self.launcher(stream, self.grid, scalars, self.maps)


class Zeros:
    """A product with K = 0: D is cleared."""

    __slots__ = ("out",)

    def __init__(self, out: ArrayView) -> None:
        self.out = out

    def run(self, stream: int) -> None:
        """Clear D on a stream."""
        out = self.out
        size = TYPES[out.dtype].bits // 8
        *_, m, n = out.shape
        batches = out.shape[0] if len(out.shape) == 3 else 1
        with driver.on(out.device):
            for batch in range(batches):
                start = out.pointer + batch * out.strides[0] * size if batches > 1 else out.pointer
                driver.call("cuMemsetD2D8Async", start, size * (out.strides[-2] if m > 1 else n), 0, n * size, m, stream)


@functools.cache
def card_of(ordinal: int) -> Card:
    """The card of a device."""
    device = driver.device(ordinal)
    return of_device(device.name, device.multiprocessors)


def configuration(problem: Problem, ordinal: int) -> DenseConfig:
    """The configuration of a problem on a device: the tuned one if there is one, else the heuristic's."""
    card = card_of(ordinal)
    return tuned(problem, card.name) or heuristic(problem, card)


@functools.cache
def compiled(kernel: Kernel[...], ordinal: int, **parameters: Any) -> Compiled:
    """A specialisation of a kernel, loaded once on each device."""
    return Compiled(kernel.trace(**parameters), ordinal)


@functools.cache
def _curve(rows: int, columns: int, ordinal: int) -> int:
    """The address of a Hilbert curve's table on a device. The table stays allocated."""
    table = hilbert(rows, columns)
    made = driver.allocate(table.nbytes, ordinal)
    driver.copy_to_device(made, table.ctypes.data, table.nbytes, ordinal)
    return made


def gemm(a: Any, b: Any, out: Any = None, *, c: Any = None, alpha: float = 1.0, beta: float = 0.0, bias: Any = None,
         activation: Any = None, residual: Any = None, a_scale: Any = None, b_scale: Any = None, accumulate: str = "f32",
         fast_accum: bool | None = None, out_dtype: Any = None, config: DenseConfig | None = None, stream: Any = None) -> Any:
    """out = activation(alpha * scales * a @ b + beta * c + bias) + residual, in one launch. Returns `out`, row-major.

    Operands: a [M, K] and b [K, N], or batches [L, M, K] and [L, K, N], of f16, bf16, f32 (multiplied as tf32), or e4m3 and e5m2 in any
    combination. Strides choose the layout: pass a weight w of shape [N, K] as `w.T`. Contiguous extents and line strides are multiples of
    16 bytes, and N is a multiple of 8. M, N and K are otherwise free; K = 0 gives zeros.

    Epilogue: `bias` has N elements, or shape (M, 1). `c` and `residual` have the shape of `out` and are f16, bf16 or f32. `activation` is
    "relu", "gelu", "silu" or a function of one f32 register that emits PTX.

    Scales of fp8 operands are float32 on the device. Each has one element, or they are block scales: a_scale [M, K/128] and b_scale
    [K/128, N/128]. Any strides work; fast are a_scale contiguous along M, b_scale contiguous along K, and K a multiple of 512.

    Sums are f32, or f16 for f16 operands with `accumulate="f16"`. With `fast_accum=False` fp8 sums leave the tensor cores after every 128
    of K and are added in f32, as they always are with block scales.

    If `out` is None, it is allocated with the library of a, as `out_dtype` (default: the type of a; bf16 for fp8). `stream` None is that
    library's current stream.

    A configuration gives the same bits in every run. With `out`, a repeated call allocates nothing and waits for nothing. SplitK through
    the workspace, StreamK and Dynamic use a workspace that belongs to the stream; the first call allocates it.
    """
    given = alpha, beta, activation, accumulate, fast_accum
    alone = c is None and bias is None and residual is None and a_scale is None and b_scale is None
    return _run(a, b, out, _NOTHING if alone else (c, bias, residual, a_scale, b_scale),
                PLAIN if given == _PLAIN else Options(*given), out_dtype, config, stream)


def hgemm(a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, stream: Any = None, config: DenseConfig | None = None) -> Any:
    """`a @ b` with fp32 accumulation: a [M, K] and b [K, N], both f16 or both bf16; returns out [M, N], row-major. See `gemm`."""
    seen = view(a, "a")
    if seen.dtype not in ("f16", "bf16"):
        raise LaunchError(f"a has elements of {seen.dtype}: hgemm multiplies f16 or bf16, gemm.gemm also other types")
    return _run(seen, b, out, _NOTHING, PLAIN, out_dtype, config, stream)


_NOTHING: tuple[None, ...] = (None,) * 5
_PLAIN = astuple(PLAIN)                         # compared before an object is made: a plain product needs no Options object


def _run(a: Any, b: Any, out: Any, rest: tuple[Any, ...], options: Options, out_dtype: Any, config: DenseConfig | None, stream: Any) -> Any:
    seen_a, seen_b = view(a, "a"), view(b, "b")
    if out is None:
        out = _empty(seen_a, seen_b, out_dtype)
    else:
        check_out_dtype(out, out_dtype)
    more: tuple[ArrayView | None, ...] = _NOTHING
    if rest is not _NOTHING:
        more = tuple(None if array is None else view(array, name) for name, array in zip(Arrays._fields[3:], rest, strict=True))
    arrays = Arrays(seen_a, seen_b, view(out, "out"), *more)
    key = arrays[:3] if more is _NOTHING and options is PLAIN and config is None else (arrays, options, config)
    launch = _launches.get(key, _UNKNOWN)
    if launch is _UNKNOWN:
        launch = _launches[key] = _prepare(arrays, options, config)
        if len(_launches) > _PLANS_KEPT:
            _launches.popitem(last=False)
    if launch is not None:
        launch.run(raw_stream(stream, seen_a))
    return out


def check_out_dtype(out: Any, out_dtype: Any) -> None:
    """Raise LaunchError if `out` has another element type than `out_dtype`."""
    if out_dtype is not None and type_name(out_dtype) != view(out, "out").dtype:
        raise LaunchError(f"out has elements of {view(out, 'out').dtype} and out_dtype says {type_name(out_dtype)}: give one of them")


_UNKNOWN: Any = object()


def _empty(a: ArrayView, b: ArrayView, out_dtype: Any) -> Any:
    batches, m, n, _ = extents(a, b)
    word = type_name(out_dtype) or ("bf16" if TYPES[a.dtype].bits == 8 else a.dtype)
    return empty_like_owner(a, (m, n) if batches is None else (batches, m, n), word)


def _prepare(arrays: Arrays, options: Options, config: DenseConfig | None) -> Launch | Zeros | None:
    a, b, out = arrays[:3]
    if options is PLAIN and config is None and arrays[3:] == _NOTHING:          # most products are plain: a shorter key is faster
        shapes: tuple[Any, ...] = a[1:5], b[1:5], out[1:5]
        aligned = not (a.pointer | b.pointer | out.pointer) & 15
    else:
        shapes = (*(array and array[1:5] for array in arrays), options, config)
        others = arrays.c, arrays.residual, arrays.a_scale, arrays.b_scale
        aligned = not any(array is not None and array.pointer % 16 for array in (a, b, out, *others))
    plan = _plans.get(shapes)
    if plan is None or not aligned:
        ordinal = same_device(arrays.named())
        problem = Problem(arrays, options)
        if problem.empty:
            return None
        if not problem.k:
            if not problem.fusion.nothing:
                raise LaunchError("K = 0 leaves nothing to multiply: apply the epilogue to zeros without a gemm")
            return Zeros(arrays.out)
        if config is not None:
            check_config(config, problem)
        plan = _plans[shapes] = Plan(problem, ordinal, config)
        if len(_plans) > _PLANS_KEPT:
            del _plans[next(iter(_plans))]
    return Launch(plan, arrays, options)


def check_config(config: DenseConfig, problem: Problem) -> None:
    """Raise LaunchError unless the caller's configuration fits the problem. It may promote without need, and load scales more slowly."""
    needs = problem.operands
    for field in fields(needs):
        given, wanted = getattr(config.operands, field.name), getattr(needs, field.name)
        if given != wanted:
            raise LaunchError(f"this config is not for this problem: its {field.name} is {_word(given)}, the arguments need "
                              f"{_word(wanted)}")
    if config.fusion != problem.fusion:
        raise LaunchError(f"this config is not for this problem: its fusion is {config.fusion}, the arguments need {problem.fusion}")
    if isinstance(config.sums, BlockScaled) != problem.block_scales:
        raise LaunchError("this config is not for this problem: " + ("it has block scales, the arguments have none"
                          if isinstance(config.sums, BlockScaled) else "its sums are not BlockScaled, the arguments have block scales"))
    if problem.promote and not budget.promoted(config.sums):
        raise LaunchError("this config is not for this problem: its sums stay in the tensor cores, the arguments need Promoted ones")
    best = problem.sums()
    if isinstance(config.sums, BlockScaled) and isinstance(best, BlockScaled) and LOADS.index(config.sums.load) > LOADS.index(best.load):
        raise LaunchError(f"this config is not for this problem: its scales are loaded by {config.sums.load}, which these arrays do not "
                          f"allow: take load={best.load!r}")
    if config.loads.a_rows and problem.m > config.loads.a_rows:
        raise LaunchError(f"this config loads a_rows={config.loads.a_rows} rows of a, and a has {problem.m} rows: take a_rows=0")
    depth = -(-problem.k // config.tile.BK)
    if max(1, depth) < config.splits:
        raise LaunchError(f"this config splits K {config.splits} ways, and K = {problem.k} has {depth} stages of {config.tile.BK}")


LOADS = get_args(ScaleLoad)


def _word(value: Any) -> str:
    return getattr(value, "__name__", str(value))


__all__ = ["Launch", "Maps", "Plan", "Zeros", "card_of", "check_config", "check_out_dtype", "compiled", "configuration", "gemm", "hgemm"]
