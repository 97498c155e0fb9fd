"""The device adapter of attention: checks arguments, chooses a configuration, encodes tensor maps and launches."""

from __future__ import annotations

from typing import Any

from ptxkit.gemm.launch.dense import Maps, Zeros, compiled
from ptxkit.gemm.launch.grid import scalars
from ptxkit.newest import Newest
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView, marks
from ptxkit.runtime.launch import empty_like_owner, raw_stream, refuse_gradients, same_device, view
from ptxkit.runtime.overlap import refuse_overlap

from ..config.forward import ForwardConfig
from ..heuristic import heuristic
from ..kernels.forward import forward
from ..problem.forward import Arrays, Options, Problem, check_config, lse_shape
from ..problem.refusals import check_scale, flag
from .grid import Grid

L2_PROMOTION = 128          # bytes that a miss of a copy brings into the L2
MINUS_INFINITY = 0xFF800000

_launches: Newest[tuple[Any, ...], Launch | Nothing] = Newest()
_plans: Newest[tuple[Any, ...], Plan] = Newest()


class Plan:
    """A configuration loaded on a device for one problem: everything of a launch except the pointers."""

    __slots__ = ("compiled", "config", "grid", "launcher", "maps", "ordinal", "problem")

    def __init__(self, problem: Problem, ordinal: int, config: ForwardConfig | None = None) -> None:
        self.problem, self.ordinal = problem, ordinal
        self.config = config or heuristic(problem)
        check_config(self.config, problem)
        self.compiled = compiled(forward, ordinal, **self.config.parameters)
        self.launcher = self.compiled.launcher(pdl=True)
        device = driver.device(ordinal)
        self.grid = Grid(problem, self.config, device.multiprocessors, device.l2_bytes)
        self.maps = Maps(self.compiled.traced.copies.records, dict(problem.lines), L2_PROMOTION)


class Launch:
    """A plan with pointers: all that a repeated call needs."""

    __slots__ = ("grid", "launcher", "like", "maps", "scalars")

    def __init__(self, plan: Plan, arrays: Arrays) -> None:
        self.like = arrays.q                    # whose library is asked for its stream
        self.launcher, self.grid = plan.launcher, plan.grid.ctas
        self.maps = plan.maps.at(*(array.pointer for array in arrays[:4]))
        pointers = {name: array.pointer for name, array in arrays.named()}
        self.scalars = scalars(plan.compiled.traced, plan.grid.arguments(lambda name: pointers.get(name, 0)))

    def run(self, stream: int) -> None:
        """Launch on a stream. Allocates nothing and waits for nothing."""
        self.launcher(stream, self.grid, self.scalars, self.maps)


class Nothing:
    """No keys or no queries: outputs are zeros and log-sum-exps -inf."""

    __slots__ = ("cleared", "like", "lse")

    def __init__(self, arrays: Arrays) -> None:
        self.like, self.lse = arrays.q, arrays.lse
        self.cleared = [] if 0 in arrays.out.shape else [Zeros(part) for part in _parts(arrays.out)]

    def run(self, stream: int) -> None:
        """Fill on a stream."""
        for part in self.cleared:
            part.run(stream)
        if self.lse is not None and 0 not in self.lse.shape:
            count = 1
            for extent in self.lse.shape:
                count *= extent
            with driver.on(self.like.device):
                driver.call("cuMemsetD32Async", self.lse.pointer, MINUS_INFINITY, count, stream)


def attention(q: Any, k: Any, v: Any, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
              cu_seqlens: Any = None, return_lse: bool = False, out: Any = None, *, lse: Any = None,
              config: ForwardConfig | None = None, stream: Any = None) -> Any:
    """softmax(scale q k^T) v, as torch's scaled_dot_product_attention has it, in one launch. Returns out, or (out, lse) with `return_lse`.

    q [B, H, S, D], k and v [B, H, Sk, D], all bf16 or all f16. D is 64, 128 or 256. It is contiguous; the other strides and the
    addresses are multiples of 16 bytes, in any order. With `enable_gqa` k and v may have fewer heads, which divide those of q. `scale` is
    positive (None: 1 / sqrt(D)). With `is_causal` query i sees the keys j <= i.

    `cu_seqlens`: int32 [sequences + 1] on the device. Then q is [T, H, D], k and v [T, Hkv, D], and rows cu_seqlens[s] to cu_seqlens[s + 1]
    attend to one another. Lengths may be 0. Rows that no sequence has are not written. Offsets past T are taken as T.

    `out` may be q itself, unless sequences are packed: else it has memory of its own.

    `lse`: f32 [B, H, S], or [H, T], the logarithm of the sum of the exponentials of each row's scaled scores. `out` and `lse` None are
    allocated with the library of q; `lse` is stored if it is given or returned. `stream` None is that library's current stream. A tensor
    that requires grad is refused while gradients are recorded: torch.ops.ptxkit.attention has gradients.

    With `out`, and `lse` where it is asked for, a repeated call allocates nothing and waits for nothing.
    """
    refuse_gradients(("q", q), ("k", k), ("v", v), ("out", out), ("lse", lse))
    if not (is_causal is True or is_causal is False):
        is_causal = flag("is_causal", is_causal)
    if not (enable_gqa is True or enable_gqa is False):
        enable_gqa = flag("enable_gqa", enable_gqa)
    return_lse = return_lse if return_lse is False else flag("return_lse", return_lse)
    if scale is not None and type(scale) is not float:
        check_scale(scale)
    check_config(config)
    options = is_causal, scale, enable_gqa, config
    seen = None
    if out is None:
        seen = view(q, "q")
        out = empty_like_owner(seen, seen.shape, seen.dtype)
    if return_lse and lse is None:
        seen = seen or view(q, "q")
        lse = empty_like_owner(seen, lse_shape(seen, cu_seqlens is not None), "f32")
    key = marks(q, k, v, out, lse, cu_seqlens)
    launch = _launches.get((key, options)) if key is not None else None
    if launch is None:
        given = (q, k, v, out, lse, cu_seqlens)
        arrays = Arrays(*(None if array is None and name in Arrays._field_defaults else view(array, name)      # type: ignore[arg-type]
                          for name, array in zip(Arrays._fields, given, strict=True)))
        launch = prepare(arrays, Options(is_causal, scale, enable_gqa), config)
        if key is not None:
            _launches[key, options] = launch
    launch.run(raw_stream(stream, launch.like))
    return (out, lse) if return_lse else out


def prepare(arrays: Arrays, options: Options, config: ForwardConfig | None) -> Launch | Nothing:
    """The launch of these arrays. Raises LaunchError for what no kernel takes."""
    ordinal = same_device(arrays.named())
    problem = Problem.of(arrays, options)
    refuse_overlap(arrays.named(), ("out", "lse"), problem.in_place)
    if problem.empty or not problem.keys:
        return Nothing(arrays)
    key = problem, ordinal, config
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = Plan(problem, ordinal, config)
    return Launch(plan, arrays)


def _parts(out: ArrayView) -> list[ArrayView]:
    """The batches of a result, each [heads, rows, head dim]."""
    if len(out.shape) == 3:
        return [out]
    size = 2
    return [out._replace(pointer=out.pointer + size * batch * out.strides[0], shape=out.shape[1:], strides=out.strides[1:])
            for batch in range(out.shape[0])]


__all__ = ["Launch", "Nothing", "Plan", "attention", "prepare"]
