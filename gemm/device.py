"""The host side of the kernels: arguments checked, tensor maps encoded, a configuration chosen, one launch."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ptxkit import driver
from ptxkit.arrays import ArrayView
from ptxkit.errors import LaunchError
from ptxkit.launch import check_aligned, empty_like_owner, raw_stream, same_device, view
from ptxkit.launcher import EncodedTensorMap, Launcher, encode_tiled
from ptxkit.layout import Major
from ptxkit.runtime import Compiled
from ptxkit.types import TYPES, Scalar

from .config import Config, heuristic
from .hgemm import BM
from .hgemm import hgemm as kernel

_PLANS_KEPT = 512


class Problem:
    """Shapes, strides and types of one product, checked; the same for every pointer. `dims` are (contiguous, strided, byte stride)."""

    __slots__ = ("a", "a_major", "b", "b_major", "d", "dtype", "k", "m", "n", "out")

    def __init__(self, a: ArrayView, b: ArrayView, out: ArrayView) -> None:
        self.a_major: Major
        self.b_major: Major
        self.m, self.n, self.k = extents(a, b)
        if a.dtype not in ("f16", "bf16"):
            raise LaunchError(f"a has elements of {a.dtype}: hgemm multiplies f16 or bf16")
        if b.dtype != a.dtype:
            raise LaunchError(f"a has elements of {a.dtype} and b of {b.dtype}: they must be the same")
        if out.dtype not in ("f16", "bf16", "f32"):
            raise LaunchError(f"out has elements of {out.dtype}: it is f16, bf16 or f32")
        if out.shape != (self.m, self.n):
            raise LaunchError(f"out has shape {out.shape}: a {a.shape} times b {b.shape} gives ({self.m}, {self.n})")
        self.dtype, self.out = TYPES[a.dtype], TYPES[out.dtype]
        nothing: tuple[Major, tuple[int, int, int]] = ("k", (0, 0, 0))
        some = self.m and self.n and self.k
        self.a_major, self.a = operand("a", a, rows_are_mn=True) if some else nothing
        self.b_major, self.b = operand("b", b, rows_are_mn=False) if some else nothing
        self.d = result(out) if self.m and self.n else nothing[1]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.a, self.b, self.d, self.a_major, self.b_major, self.dtype, self.out


def extents(a: ArrayView, b: ArrayView) -> tuple[int, int, int]:
    """(M, N, K) of a [M, K] times b [K, N]."""
    for name, array in (("a", a), ("b", b)):
        if len(array.shape) != 2:
            raise LaunchError(f"{name} has shape {array.shape}: it must be a matrix")
    if a.shape[1] != b.shape[0]:
        raise LaunchError(f"a has shape {a.shape} and b {b.shape}: a is [M, K] and b [K, N]; pass a weight w of shape [N, K] as w.T")
    return a.shape[0], b.shape[1], a.shape[1]


def operand(name: str, array: ArrayView, *, rows_are_mn: bool) -> tuple[Major, tuple[int, int, int]]:
    """The major of an operand and its (contiguous extent, strided extent, byte stride), from its strides."""
    (rows, columns), (row_stride, column_stride) = array.shape, array.strides
    check_aligned(name, array, 16)
    choices = []
    if column_stride == 1 or columns == 1:
        choices.append((columns, rows, row_stride, rows_are_mn))
    if row_stride == 1 or rows == 1:
        choices.append((rows, columns, column_stride, not rows_are_mn))
    if not choices:
        raise LaunchError(f"{name} has strides {array.strides}: one of them must be 1; pass a contiguous copy")
    for inner, outer, stride, is_k in choices:
        if inner % 8 == 0 and (outer == 1 or stride % 8 == 0):
            return ("k" if is_k else "mn"), (inner, outer, 2 * (stride if outer > 1 else inner))
    inner, outer, stride, _ = choices[0]
    if inner % 8:
        raise LaunchError(f"{name} has {inner} contiguous elements a line: hgemm needs a multiple of 8 (16 bytes); pad the array")
    raise LaunchError(f"the lines of {name} are {stride} elements apart: hgemm needs a multiple of 8 (16 bytes); pad the array")


def result(out: ArrayView) -> tuple[int, int, int]:
    """(N, M, byte stride) of a row-major result."""
    (m, n), (row_stride, column_stride) = out.shape, out.strides
    size = TYPES[out.dtype].bits // 8
    check_aligned("out", out, 16)
    if n > 1 and column_stride != 1:
        raise LaunchError(f"out has strides {out.strides}: hgemm writes row-major results")
    if n % 8:
        raise LaunchError(f"out has {n} columns: hgemm needs N to be a multiple of 8")
    if m > 1 and (row_stride < n or row_stride * size % 16):
        raise LaunchError(f"the rows of out are {row_stride} elements apart: hgemm needs at least {n} and a multiple of 16 bytes")
    return n, m, size * (row_stride if m > 1 else n)


class Plan:
    """A configuration loaded on a device for one problem: everything of a launch but the pointers."""

    __slots__ = ("compiled", "config", "encoded", "grid", "launcher", "problem", "scalars")

    def __init__(self, problem: Problem, ordinal: int, config: Config | None = None) -> None:
        self.problem = problem
        self.config = config or heuristic(problem.m, problem.n, problem.k, problem.dtype, problem.out, problem.a_major, problem.b_major,
                                          sms=driver.device(ordinal).multiprocessors)
        self.compiled = _compiled(self.config, ordinal)
        self.launcher: Launcher = self.compiled.launcher()
        tiles = -(-problem.m // BM), -(-problem.n // self.config.BN), -(-problem.k // 64)
        units = -(-tiles[0] // self.config.CLUSTER) * tiles[1]
        self.grid = (min(units, _resident(self.compiled)) * self.config.CLUSTER, 1, 1)
        self.scalars = tiles
        self.encoded: tuple[EncodedTensorMap, ...] = ()

    def maps(self, a: int, b: int, out: int) -> tuple[EncodedTensorMap, ...]:
        """The tensor maps for these pointers: encoded once, then copied with the new address."""
        if self.encoded:
            for_a, for_b, for_d = self.encoded
            return for_a.at(a), for_b.at(b), for_d.at(out)
        records = self.compiled.traced.copies.records
        found = []
        for name, (inner, outer, stride), pointer in (("a", self.problem.a, a), ("b", self.problem.b, b), ("d", self.problem.d, out)):
            found.append(encode_tiled(records[name].fields((inner, outer), (stride,)), pointer))
        self.encoded = tuple(found)
        return self.encoded


_modules: dict[tuple[Config, int], Compiled] = {}
_residents: dict[int, int] = {}
_plans: dict[tuple[Any, ...], Plan] = {}
_launches: OrderedDict[tuple[Any, ...], tuple[Plan | None, tuple[EncodedTensorMap, ...]]] = OrderedDict()


def _compiled(config: Config, ordinal: int) -> Compiled:
    key = (config, ordinal)
    if key not in _modules:
        _modules[key] = Compiled(kernel.trace(**config.parameters), ordinal)
    return _modules[key]


def _resident(compiled: Compiled) -> int:
    key = id(compiled)
    if key not in _residents:
        _residents[key] = compiled.max_clusters()
    return _residents[key]


def hgemm(a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, stream: Any = None, config: Config | None = None) -> Any:
    """`a @ b` with fp32 accumulation: a [M, K] and b [K, N], both f16 or both bf16; returns out [M, N], row-major.

    Strides choose the layout: a weight w of shape [N, K] is passed as `w.T`. Contiguous extents and line strides are multiples of
    8 elements; any M, N, K otherwise, K = 0 gives zeros. `out_dtype` (a ptxkit type, or its name; by default that of a) is used
    when `out` is None, which allocates with the library that a belongs to. `stream` None is that library's current stream.
    With `out` given, a repeated call allocates nothing and waits for nothing.
    """
    seen_a, seen_b = view(a, "a"), view(b, "b")
    if out is None:
        m, n, _ = extents(seen_a, seen_b)
        out = empty_like_owner(seen_a, (m, n), _type_name(out_dtype) or seen_a.dtype)
    elif out_dtype is not None and _type_name(out_dtype) != view(out, "out").dtype:
        raise LaunchError(f"out has elements of {view(out, 'out').dtype} and out_dtype says {_type_name(out_dtype)}: give one of them")
    seen_out = view(out, "out")
    key = (seen_a, seen_b, seen_out, config)
    ready = _launches.get(key)
    if ready is None:
        ready = _launches[key] = _prepare(seen_a, seen_b, seen_out, config)
        if len(_launches) > _PLANS_KEPT:
            _launches.popitem(last=False)
    plan, maps = ready
    if plan is not None:
        plan.launcher(raw_stream(stream, seen_a), plan.grid, plan.scalars, maps)
    elif seen_out.shape[0] and seen_out.shape[1]:
        _zero(seen_out, raw_stream(stream, seen_a))
    return out


def _prepare(a: ArrayView, b: ArrayView, out: ArrayView, config: Config | None) -> tuple[Plan | None, tuple[EncodedTensorMap, ...]]:
    ordinal = same_device((("a", a), ("b", b), ("out", out)))
    shapes = (a.shape, a.strides, b.shape, b.strides, out.shape, out.strides, a.dtype, b.dtype, out.dtype, ordinal, config)
    plan = _plans.get(shapes)
    if plan is None or (a.pointer | b.pointer | out.pointer) % 16:
        problem = Problem(a, b, out)
        if not (problem.m and problem.n and problem.k):
            return None, ()
        wanted = (problem.dtype, problem.out, problem.a_major, problem.b_major)
        if config is not None and (config.dtype, config.out, config.a_major, config.b_major) != wanted:
            raise LaunchError(f"{config} is not for this problem: {problem.dtype.__name__}, out {problem.out.__name__}, "
                              f"a {problem.a_major}-major, b {problem.b_major}-major")
        plan = _plans[shapes] = Plan(problem, ordinal, config)
        if len(_plans) > _PLANS_KEPT:
            del _plans[next(iter(_plans))]
    return plan, plan.maps(a.pointer, b.pointer, out.pointer)


def _zero(out: ArrayView, stream: int) -> None:
    size = TYPES[out.dtype].bits // 8
    m, n = out.shape
    with driver.on(out.device):
        driver.call("cuMemsetD2D8Async", out.pointer, size * (out.strides[0] if m > 1 else n), 0, n * size, m, stream)


def _type_name(dtype: Any) -> str | None:
    """ptxkit's name of a type given as a ptxkit type, a name, or a torch or NumPy dtype."""
    if dtype is None:
        return None
    if isinstance(dtype, type) and issubclass(dtype, Scalar):
        return dtype.__name__
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    word = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "half": "f16"}.get(name, name)
    if word not in ("f16", "bf16", "f32"):
        raise LaunchError(f"out_dtype={dtype!r}: the result is f16, bf16 or f32")
    return word


__all__ = ["Plan", "Problem", "hgemm"]
