"""Layer 5, the device adapter of dense products: checks arguments, chooses a configuration, encodes tensor maps and launches."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ptxkit.cards import Card
from ptxkit.dsl.descriptor import TensorMapFields
from ptxkit.dsl.kernel import Kernel
from ptxkit.errors import LaunchError
from ptxkit.newest import Newest
from ptxkit.runtime import driver, images
from ptxkit.runtime.arrays import ArrayView, are_tensors, marks, marks_of_three
from ptxkit.runtime.compiled import Compiled
from ptxkit.runtime.launch import STREAMS, empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.launcher import EncodedTensorMap, Launcher, encode_tiled
from ptxkit.runtime.overlap import Spans, refuse_overlap
from ptxkit.types import TYPES, u8

from ..config.dense import DenseConfig
from ..heuristic import probes
from ..heuristic.dense import heuristic
from ..heuristic.tuned import tuned
from ..kernels.align_lines import align_lines
from ..problem.dense import PLAIN, Arrays, Options, Problem, type_name
from ..problem.folded import folded
from ..problem.lines import Lines
from ..problem.matmul import products, result_shape
from ..problem.options import check_kind, flag
from ..problem.options import options as checked
from ..scheduler.hilbert import hilbert
from . import tuning
from .aligning import CTAS, Copy
from .alike import NOTHING, Recipe, likeness
from .grid import COUNTER_BYTES, Grid, kernel_of, places, scalars
from .parts import check_config
from .slabs import slabs
from .trial import Launches
from .workspace import Workspaces
from .zeros import Zeros

_plans: Newest[tuple[Any, ...], Plan] = Newest()
_launches: Newest[tuple[Any, ...], Launch | Zeros | Several | None] = Newest()
_results: Newest[tuple[Any, ...], Callable[..., Any]] = Newest()
_recipes: Newest[tuple[Any, ...], Recipe] = Newest()
_workspaces = Workspaces(32 << 20)


class Maps:
    """The tensor maps of a launch, by the kernel's parameter names. They are encoded once, then copied with new addresses.

    A kernel reads no map that it has no copies for: any other one stands in its place, or zeros if there is none.
    """

    __slots__ = ("encoded", "fields", "names")

    def __init__(self, records: Mapping[str, Any], lines: Mapping[str, Lines], promotion: int) -> None:
        self.names = tuple(lines)
        self.fields = [replace(records[name].fields(seen.dims, seen.strides), l2_promotion=promotion) if name in records else None
                       for name, seen in lines.items()]
        self.encoded: tuple[EncodedTensorMap, ...] = ()

    def at(self, *pointers: int) -> tuple[EncodedTensorMap, ...]:
        """The maps of arrays at these addresses. Weights, for one, are where they were."""
        if self.encoded:
            found = [wanted and (one if one.pointer == pointer else one.at(pointer))
                     for wanted, one, pointer in zip(self.fields, self.encoded, pointers, strict=False)]
        else:
            found = [wanted and encode_tiled(wanted, pointer) for wanted, pointer in zip(self.fields, pointers, strict=False)]
        other = next((one for one in found if one is not None), _NO_MAP)
        every = tuple([one or other for one in found])
        self.encoded = self.encoded or every
        return every


_NO_MAP = EncodedTensorMap(TensorMapFields(u8, (16,), (), (16,)), bytes(128))


class Plan:
    """A configuration loaded on a device for one problem: everything of a launch except the pointers. `settled`: no tuning would change
    it."""

    __slots__ = ("aligners", "compiled", "config", "curve", "grid", "launcher", "maps", "ordinal", "places", "problem", "settled", "spans",
                 "template")

    def __init__(self, problem: Problem, ordinal: int, config: DenseConfig | None = None, *, pdl: bool = True) -> None:
        self.problem, self.ordinal, self.settled = problem, ordinal, False
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
        seen = problem.aligned(self.config.loads.align)
        seen = seen.swapped if self.config.swap_ab else seen
        lines = {"a": seen.a_lines, "b": seen.b_lines, "d": problem.d_lines, "sfa_map": problem.s_lines}
        read = [parameter.name for parameter in traced.parameters if parameter.kind == "tensormap"]
        self.maps = Maps(traced.copies.records, {name: lines[name] for name in read}, self.config.loads.l2_fetch)
        self.places = places(traced)
        self.template: tuple[Any, ...] = ()
        self.aligners = tuple(Aligner(one, ordinal, pdl=pdl) for one in self.grid.copies)
        self.spans = Spans(())

    def scalars(self, arrays: Arrays, options: Options) -> tuple[Any, ...]:
        """The kernel's arguments besides tensor maps, without the workspace. For plain products only the pointer of D changes, unless
        threads copy an operand."""
        if options is not PLAIN or not self.problem.plain or self.config.by_threads:
            return self._scalars(arrays, options)
        if not self.template:
            self.template = self._scalars(arrays, options)
        out = self.places["out_pointer"]
        return (*self.template[:out], arrays.out.pointer, *self.template[out + 1:])

    def _scalars(self, arrays: Arrays, options: Options) -> tuple[Any, ...]:
        def pointer(name: str) -> int:
            array = getattr(arrays, name, None)
            return self.curve if name == "curve" else 0 if array is None else array.pointer

        return scalars(self.compiled.traced, self.grid.arguments(self.problem, options, pointer))


class Aligner:
    """The kernel that copies one operand before a product."""

    __slots__ = ("compiled", "copy", "grid", "launcher")

    def __init__(self, copy: Copy, ordinal: int, *, pdl: bool) -> None:
        self.copy, self.compiled = copy, compiled(align_lines, ordinal, **copy.parameters)
        self.launcher: Launcher = self.compiled.launcher(pdl=pdl)
        self.grid = min(copy.ctas, CTAS * driver.device(ordinal).multiprocessors), 1, 1

    def run(self, stream: int, operand: int, workspace: int) -> None:
        """Copy the operand at this address into the workspace."""
        named = self.copy.arguments(operand, workspace + self.copy.offset)
        self.launcher(stream, self.grid, scalars(self.compiled.traced, named), ())


class Launch:
    """A plan with pointers: all that a repeated call needs. `settled`: the next call of these arrays can have it."""

    __slots__ = ("aligned", "aligners", "counters", "grid", "launcher", "like", "maps", "ordinal", "placed", "plan", "pointers", "scalars",
                 "settled", "sums", "workspace_bytes")

    def __init__(self, plan: Plan, arrays: Arrays, options: Options) -> None:
        self.like = arrays.a                    # whose library is asked for its stream
        self.settled = True
        self.placed: tuple[tuple[int, int], tuple[Any, ...]] = (-1, -1), ()
        self.launcher, self.grid, self.ordinal = plan.launcher, plan.grid.ctas, plan.ordinal
        first, second = ("b", "a") if plan.config.swap_ab else ("a", "b")           # of the kernel's tensor maps
        self.pointers = {first: getattr(arrays, first).pointer, second: getattr(arrays, second).pointer, "out": arrays.out.pointer,
                         "a_scale": arrays.a_scale.pointer if arrays.a_scale else 0}
        self.plan, self.aligners = plan, plan.aligners
        self.aligned = 0                        # the workspace to whose copies the maps belong
        self.maps = () if plan.aligners else plan.maps.at(*self.pointers.values())
        self.scalars = plan.scalars(arrays, options)
        self.workspace_bytes = plan.grid.workspace_bytes
        self.counters, self.sums = plan.places["counters"], plan.places.get("workspace")

    def run(self, stream: int, workspace: int = 0) -> None:
        """Launch on a stream. `workspace` is the address from `Adapter.initialize`; 0: the stream's own workspace."""
        scalars = self.scalars
        if self.workspace_bytes:
            placed = self.placed
            if placed[0] != (stream, workspace):
                place = workspace or _workspaces.of(self.ordinal, stream, self.workspace_bytes)
                placed = self.placed = (stream, workspace), self.placed_in(place)
            scalars = placed[1]
            if self.aligners:
                self._align(stream, scalars[self.counters])
        self.launcher(stream, self.grid, scalars, self.maps)

    def placed_in(self, place: int) -> tuple[Any, ...]:
        """The arguments with a workspace: counters first, partial sums after them."""
        placed = list(self.scalars)
        placed[self.counters] = place
        if self.sums is not None:
            placed[self.sums] = place + COUNTER_BYTES
        return tuple(placed)

    def _align(self, stream: int, workspace: int) -> None:
        """Copy operands into the workspace, and point the tensor maps at the copies."""
        for aligner in self.aligners:
            aligner.run(stream, self.pointers[aligner.copy.name], workspace)
        if self.aligned != workspace:
            copies = {aligner.copy.name: workspace + aligner.copy.offset for aligner in self.aligners}
            self.maps = self.plan.maps.at(*(self.pointers | copies).values())
            self.aligned = workspace


class Several:
    """Products of one call that are launched one after another."""

    __slots__ = ("launches", "like", "settled")

    def __init__(self, launches: Sequence[Launch | Zeros | Several | None]) -> None:
        self.launches = tuple(launch for launch in launches if launch is not None)
        self.like: ArrayView = self.launches[0].like
        self.settled: bool = all(launch.settled for launch in self.launches)

    def run(self, stream: int) -> None:
        """Launch all on a stream."""
        for launch in self.launches:
            launch.run(stream)


@functools.cache
def card_of(ordinal: int) -> Card:
    """The card of a device."""
    this = driver.device(ordinal)
    return probes.card(this.name, this.multiprocessors, this.memory_gbs, this.clock_mhz, this.l2_bytes / (1 << 20))


def configuration(problem: Problem, ordinal: int) -> DenseConfig:
    """The configuration of a problem on a device: the tuned one if there is one, else the heuristic's."""
    card = card_of(ordinal)
    return tuned(problem, card) or heuristic(problem, card)


@functools.cache
def compiled(kernel: Kernel[...], ordinal: int, **parameters: Any) -> Compiled:
    """A specialisation of a kernel, loaded once on each device: out of the cache without a trace, or traced and kept there."""
    found = images.load(kernel, parameters, ordinal)
    if found is not None:
        return Compiled(found[0], ordinal, found[1])
    traced = kernel.trace(**parameters)
    made = Compiled(traced, ordinal)
    images.keep(kernel, parameters, traced)
    return made


@functools.cache
def _curve(rows: int, columns: int, ordinal: int) -> int:
    """The address of a Hilbert curve's table on a device. The table stays allocated."""
    table = hilbert(rows, columns)
    made = driver.allocate(table.nbytes, ordinal)
    driver.copy_to_device(made, table.ctypes.data, table.nbytes, ordinal)
    return made


def gemm(a: Any, b: Any, out: Any = None, *, c: Any = None, alpha: float = 1.0, beta: float = 0.0, bias: Any = None,
         activation: Any = None, residual: Any = None, a_scale: Any = None, b_scale: Any = None, accumulate: str = "f32",
         fast_accum: bool | None = None, batch_invariant: bool = False, out_dtype: Any = None, config: DenseConfig | None = None,
         stream: Any = None) -> Any:
    """out = activation(alpha * scales * a @ b + beta * c + bias) + residual, in one launch. Returns `out`, row-major.

    Operands: a [..., M, K] and b [..., K, N], or vectors, of f16, bf16, f32 (multiplied as tf32), or e4m3 and e5m2 in any
    combination. Strides choose the layout: pass a weight w of shape [N, K] as `w.T`. M, N, K, addresses and strides that are not negative
    are free, and fastest where lines begin at multiples of 16 bytes; K = 0 gives zeros.

    Epilogue: `bias` has N elements, or shape (M, 1). `c` and `residual` have the shape of `out` and are f16, bf16 or f32. `activation` is
    "relu", "gelu", "silu" or a function of one f32 register that emits PTX.

    Scales are float32 on the device. Each has one element; or, of fp8 operands, a_scale is [M] or [M, 1] for the rows, b_scale [N] or
    [1, N] for the columns, both contiguous, and either may have one element. Or they are block scales of fp8 operands: a_scale [M, K/128]
    and b_scale [K/128, N/128]. Any strides of these work; fast are a_scale contiguous along M, b_scale contiguous along K, and K a
    multiple of 512.

    Sums are f32, or f16 for f16 operands with `accumulate="f16"`. With `fast_accum=False` fp8 sums leave the tensor cores after every 128
    of K and are added in f32, as they always are with block scales.

    If `out` is None, it is allocated with the library of a, as `out_dtype` (default: the type of a; bf16 for fp8). `stream` None is that
    library's current stream. A torch tensor that requires grad is refused while gradients are recorded: ptxkit.torch has operators
    for it.

    A configuration gives the same bits in every run. With `batch_invariant=True` a row of a gives the same bits whatever M, N, the number
    of products and its place among them are: the order of its sums depends on K, the types and the majors alone. K is then never split.

    With `out`, a repeated call allocates nothing and waits for nothing. SplitK through the workspace, StreamK and Dynamic use a workspace
    that belongs to the stream; the first call allocates it.
    """
    plain = activation is fast_accum is None and batch_invariant is False and type(alpha) is type(beta) is float \
        and alpha == 1.0 and beta == 0.0 and type(accumulate) is str and accumulate == "f32"        # nothing is asked of another type
    alone = c is None and bias is None and residual is None and a_scale is None and b_scale is None
    return _run(a, b, out, NOTHING if alone else (c, bias, residual, a_scale, b_scale),
                PLAIN if plain else checked(alpha, beta, activation, accumulate, fast_accum, batch_invariant), out_dtype, config, stream)


def hgemm(a: Any, b: Any, out: Any = None, *, batch_invariant: bool = False, out_dtype: Any = None, stream: Any = None,
          config: DenseConfig | None = None) -> Any:
    """`a @ b` with fp32 accumulation: a [M, K] and b [K, N], both f16 or both bf16; returns out [M, N], row-major. See `gemm`."""
    if getattr(a, "dtype", None) not in _SIXTEEN_BITS:
        seen = view(a, "a")
        if seen.dtype not in _SIXTEEN_BITS:
            raise LaunchError(f"a has elements of {seen.dtype}: hgemm multiplies f16 or bf16, gemm.gemm also other types")
        _SIXTEEN_BITS.add(a.dtype)
    invariant = batch_invariant is not False and flag("batch_invariant", batch_invariant)
    return _run(a, b, out, NOTHING, _INVARIANT if invariant else PLAIN, out_dtype, config, stream)


_INVARIANT = Options(batch_invariant=True)
_SIXTEEN_BITS: set[Any] = {"f16", "bf16"}       # and how libraries of arrays that have been seen call them


def _run(a: Any, b: Any, out: Any, rest: tuple[Any, ...], options: Options, out_dtype: Any, config: DenseConfig | None, stream: Any) -> Any:
    """The warm path: a launch is known by what tells its arrays from others. What is asked of arrays that are new is asked once."""
    if getattr(a, "requires_grad", False) or getattr(b, "requires_grad", False) or getattr(out, "requires_grad", False) \
            or (rest is not NOTHING and [array for array in rest if array is not None and getattr(array, "requires_grad", False)]):
        refuse_gradients(("a", a), ("b", b), ("out", out), *zip(Arrays._fields[3:], rest, strict=True))
    if out is None and are_tensors(a, b):
        out, out_dtype = _new(a, b, out_dtype), None
    if config is not None:
        check_kind(config, DenseConfig)
    key = None
    if out is not None and out_dtype is None:
        key = marks_of_three(a, b, out)
        if key is not None and (rest is not NOTHING or options is not PLAIN or config is not None):
            others = marks(*rest)
            key = None if others is None else key + others if options is PLAIN and config is None else (key, others, options, config)
    launch = _launches.get(key, _UNKNOWN) if key is not None else _UNKNOWN
    if launch is _UNKNOWN:
        seen_a, seen_b = view(a, "a"), view(b, "b")
        seen_out = _out(seen_a, seen_b, out, out_dtype)
        out = seen_out if out is None else out
        arrays = Arrays(seen_a, seen_b, view(seen_out, "out"))
        if rest is not NOTHING:
            arrays = Arrays(*arrays[:3], *(None if array is None else view(array, name)
                                           for name, array in zip(Arrays._fields[3:], rest, strict=True)))
        key = (arrays, options, config) if key is None else key
        launch = _launches.get(key, _UNKNOWN)
        if launch is _UNKNOWN:
            launch = _prepare(arrays, options, config, stream)
            if launch is None or launch.settled:
                _launches[key] = launch
    if launch is not None:
        launch.run(raw_stream(stream, launch.like))
    return out


def repeated(otherwise: Callable[..., Any], recording: Callable[[], bool], changed: Callable[[Any], None]) -> Callable[..., None]:
    """`gemm(a, b, out, bias=bias)` of dense torch tensors as an operator calls it, in fewer steps where it is a repeated call: what that
    adds counts. A call with more arguments is `otherwise(a, b, out, ...)`. `recording` says whether torch records gradients, and `changed`
    tells it what is written."""
    known, stream_of = _launches.get, STREAMS

    def into(a: Any, b: Any, bias: Any = None, *rest: Any, out: Any) -> None:
        changed((out,))
        if rest:
            otherwise(a, b, out, bias, *rest)
            return
        try:
            recorded = a.requires_grad or b.requires_grad or out.requires_grad or (bias is not None and bias.requires_grad)
        except AttributeError:
            for name, array in (("a", a), ("b", b)):
                if array is None:
                    view(array, name)
            raise
        if recorded and recording():
            refuse_gradients(("a", a), ("b", b), ("out", out), ("bias", bias))
        if bias is None:                        # as `marks_of_three` has them
            launch = known((a.data_ptr(), a.shape, a.stride(), a.dtype, b.data_ptr(), b.shape, b.stride(), b.dtype,
                            out.data_ptr(), out.shape, out.stride(), out.dtype))
        else:                                   # and after them what `marks` finds of the five others
            launch = known((a.data_ptr(), a.shape, a.stride(), a.dtype, b.data_ptr(), b.shape, b.stride(), b.dtype,
                            out.data_ptr(), out.shape, out.stride(), out.dtype,
                            None, bias.data_ptr(), bias.shape, bias.stride(), bias.dtype, None, None, None))
        if launch is None:
            _run(a, b, out, NOTHING if bias is None else (None, bias, None, None, None), PLAIN, None, None, None)
        else:
            launch.run(stream_of["torch"](launch.like.device))          # as `current_stream`; the first call has put it there

    return into


def _new(a: Any, b: Any, out_dtype: Any) -> Any:
    """A new result of torch tensors. Its shape and type are those of the views, which are asked once a shape."""
    kind = a.shape, b.shape, a.dtype, out_dtype
    found = _results.get(kind)
    if found is None:
        made = _empty(view(a, "a"), view(b, "b"), out_dtype)
        _results[kind] = functools.partial(sys.modules["torch"].empty_strided, tuple(made.shape), made.stride(), dtype=made.dtype)
        return made
    return found(device=a.device)


def _out(a: ArrayView, b: ArrayView, out: Any, out_dtype: Any) -> Any:
    """The given result, or a new one."""
    if out is None:
        return _empty(a, b, out_dtype)
    if out_dtype is not None:
        out = view(out, "out")
        check_out_dtype(out, out_dtype)
    return out


def check_out_dtype(out: Any, out_dtype: Any) -> None:
    """Raise LaunchError if `out` has another element type than `out_dtype`."""
    if out_dtype is not None and type_name(out_dtype) != (seen := view(out, "out")).dtype:
        raise LaunchError(f"out has elements of {seen.dtype} and out_dtype says {type_name(out_dtype)}: give one of them")


_UNKNOWN: Any = object()


def _empty(a: ArrayView, b: ArrayView, out_dtype: Any) -> Any:
    word = type_name(out_dtype) or ("bf16" if TYPES[a.dtype].bits == 8 else a.dtype)
    return empty_like_owner(a, result_shape(a, b), word)


def _prepare(arrays: Arrays, options: Options, config: DenseConfig | None, stream: Any = None) -> Launch | Zeros | Several | None:
    """The launch of these arrays; None if D is empty."""
    like = likeness(arrays, options) if config is None and not tuning.wish() else None
    if like is not None and (recipe := _recipes.get(like)) is not None and (plan := _plans.get(recipe.plan)) is not None:
        one = recipe.arrays(arrays)
        if not plan.spans.apart(one):
            check_overlap(arrays)
        return Launch(plan, one, options)
    parts = products(arrays)
    if like is not None:
        parts = [slab for part in parts for slab in slabs(part, options, lambda: card_of(same_device(arrays.named())))]
    if len(parts) != 1:
        made = [_prepare_one(part, options, config, stream, arrays) for part in parts]
        check_overlap(arrays)                   # of one part's D with another one's operands
        return Several(made) if any(made) else None
    launch = _prepare_one(parts[0], options, config, stream, arrays)
    if like is not None and isinstance(launch, Launch) and (kept := Recipe.of(likeness(parts[0], options), arrays)) is not None:
        _recipes[like] = kept
    return launch


def check_overlap(arrays: Arrays) -> None:
    """Raise LaunchError if D shares memory with an operand; it may be c or the residual."""
    refuse_overlap(arrays.named(), in_place=("c", "residual"))


def _prepare_one(arrays: Arrays, options: Options, config: DenseConfig | None, stream: Any, whole: Arrays) -> Launch | Zeros | None:
    """The launch of one product, which may be a part of the `whole` call. What is wrong with shapes and types is said before memory."""
    like = likeness(arrays, options)
    key = like if config is None else (*like, config)
    plan = _plans.get(key)
    tunes = config is None and tuning.wish() is not None
    if plan is None or (tunes and not plan.settled):
        ordinal = same_device(arrays.named())
        problem = Problem(as_one(arrays, config), options)
        if problem.empty:
            return None
        check_overlap(whole)
        if not problem.k:
            return Zeros(arrays.out)
        if config is not None:
            check_config(config, problem)
        settled = config is not None
        if tunes:
            config, settled = tuning.first_use(problem, arrays, ordinal, raw_stream(stream, arrays.a), card_of(ordinal),
                                               launches(problem, options, ordinal))
        plan = _plans[key] = Plan(problem, ordinal, config)
        plan.spans = Spans(arrays[:3] if arrays[3:] == NOTHING else arrays, Arrays._fields.index("out"))
        plan.settled = settled
    elif not plan.spans.apart(arrays):
        check_overlap(whole)
    launch = Launch(plan, arrays, options)
    launch.settled = plan.settled or not tunes
    return launch


def launches(problem: Problem, options: Options, ordinal: int) -> Launches:
    """What makes a product's launches on several sets of arrays, with any configuration."""
    def made(config: DenseConfig, sets: Sequence[Arrays]) -> list[Any]:
        plan = Plan(problem, ordinal, config)
        return [Launch(plan, arrays, options) for arrays in sets]

    return made


def as_one(arrays: Arrays, config: DenseConfig | None) -> Arrays:
    """The arrays of one product where a batch is one, unless the caller's configuration is for a batch."""
    return arrays if config is not None and config.operands.batched else folded(arrays)


tuning.on_begin(_launches.clear)


__all__ = ["Launch", "Maps", "Plan", "Zeros", "as_one", "card_of", "check_config", "check_out_dtype", "check_overlap",
           "compiled", "configuration", "gemm", "hgemm", "launches", "repeated"]
