"""Tensors on the CPU: products by the kernels that a GPU would run, executed by the CPU device of `ptxkit.sim`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxkit.errors import LaunchError
from ptxkit.gemm.problem.options import flag
from ptxkit.runtime.launch import refuse_gradients

from .framework import torch
from .views import refuse_factor, refuse_layout, word_of

ALIGNED = 256
"""The memory of a tensor on a GPU begins at a multiple of so many bytes."""
_INTEGERS = (torch.int32, torch.int64)      # of lengths and numbers of rows


@dataclass(slots=True)
class _Uses:
    """How many blocks `with cpu_device()` are open in this process, and how many of them check."""

    open: int = 0
    checking: int = 0


_uses = _Uses()


@contextmanager
def cpu_device(*, check: bool = False) -> Iterator[None]:
    """Inside the block products of tensors on the CPU run on the CPU device: each kernel as on a GPU, instruction by instruction.

    It is for tests and for small shapes: a product of 64 x 64 x 64 takes about 10 ms, the first of its kind more. With `check` the
    checker watches each kernel for races and misused barriers, and a finding is a LaunchError. Outside of all blocks a tensor on the CPU
    is refused. Blocks may be nested; they are the process's, so that the threads of autograd are inside, too.
    """
    _numpy_types()
    checks = flag("check", check)
    _uses.open += 1
    _uses.checking += checks
    try:
        yield
    finally:
        _uses.open -= 1
        _uses.checking -= checks


def require(name: str = "a") -> None:
    """Raise LaunchError outside of all blocks."""
    if not _uses.open:
        raise LaunchError(f"{name} is a torch tensor on the CPU: copy it to the GPU with .cuda(), or run small shapes on the CPU device "
                          "inside `with ptxkit.torch.cpu_device():`")


def dense(a: Any, b: Any, out: Any, **more: Any) -> None:
    """`gemm.gemm(a, b, out, ...)` on the CPU device."""
    from ptxkit.gemm.launch.simulate import simulate

    require()
    refuse_gradients(("a", a), ("b", b), ("out", out), *more.items())
    refuse_factor(a, "a")
    refuse_factor(b, "b")
    judge(simulate(check=checks(), **arrays({"a": a, "b": b, "out": out, **more})))


def grouped(x: Any, w: Any, lengths: Any, out: Any, *, activation: str | None = None, **more: Any) -> None:
    """`gemm.group_gemm(x, w, lengths, out=out, ...)` on the CPU device."""
    from ptxkit.gemm.launch.simulate_grouped import simulate

    require()
    refuse_gradients(("a", x), ("b", w), ("out", out))
    refuse_factor(x, "a")
    refuse_factor(w, "b")
    seen = arrays({"a": x, "b": w, "offs": lengths, "out": out, **more})
    first = [seen.pop(name) for name in ("a", "b", "offs", "out")]
    judge(simulate(*first, gated=activation is not None, check=checks(), **seen))


def grouped_k(a: Any, b: Any, lengths: Any, out: Any, *, accumulate: bool) -> None:
    """`gemm.group_gemm_k(a, b, lengths, out=out, accumulate=accumulate)` on the CPU device."""
    from ptxkit.gemm.launch.simulate_grouped_k import simulate

    require()
    refuse_gradients(("a", a), ("b", b), ("out", out))
    seen = arrays({"a": a, "b": b, "offs": lengths, "out": out})
    judge(simulate(*seen.values(), accumulate=accumulate, check=checks()))


def combined(y: Any, place: Any, weights: Any, starts: Any, out: Any) -> None:
    """`gemm.combine(y, place, weights, starts=starts, out=out)` on the CPU device."""
    from ptxkit.gemm.launch.combine import simulate

    refuse_gradients(("y", y), ("weights", weights), ("out", out))
    judge(simulate(check=checks(), **arrays({"y": y, "place": place, "weights": weights, "starts": starts, "out": out})))


def products_of_rows(a: Any, first: Any, b: Any, second: Any, out: Any) -> None:
    """The products of pairs of rows on the CPU device."""
    from ptxkit.gemm.launch.combine import simulate_products

    arrays = [array(each, name) for each, name in ((a, "a"), (first, "first"), (b, "b"), (second, "second"))]
    judge(simulate_products(*arrays, out=array(out, "out"), check=checks()))


def chosen(logits: Any, weights: Any, experts: Any, over_all: bool) -> None:
    """`gemm.choose_experts(logits, top, over_all=over_all, out=(weights, experts))` on the CPU device."""
    from ptxkit.gemm.launch.route import simulate_choice

    arrays = [array(each, name) for each, name in ((logits, "logits"), (weights, "weights"), (experts, "experts"))]
    judge(simulate_choice(*arrays, over_all=over_all, check=checks()))


def in_order(experts: Any, out: Any) -> None:
    """`gemm.sort_choices(experts, count, out=out)` on the CPU device."""
    from ptxkit.gemm.launch.route import Sorted, simulate_sort

    judge(simulate_sort(array(experts, "experts"), Sorted(*(array(each, "out") for each in out)), check=checks()))


def attended(q: Any, k: Any, v: Any, out: Any, **more: Any) -> None:
    """`ptxkit.attention(q, k, v, out=out, ...)` on the CPU device."""
    from ptxkit.attention.launch.simulate import simulate

    seen = arrays({"q": q, "k": k, "v": v, "out": out, **more})
    first = [seen.pop(name) for name in ("q", "k", "v", "out")]
    judge(simulate(*first, check=checks(), **seen))


def decoded(operands: dict[str, Any], out: Any, **more: Any) -> None:
    """`ptxkit.attention_decode(..., out=out)` on the CPU device."""
    from ptxkit.attention.launch.simulate_decode import simulate_decode

    options = {name: array(value, name) if isinstance(value, torch.Tensor) else value for name, value in more.items()}
    arrays: dict[str, Any] = {name: array(value, name) for name, value in operands.items()}
    for report in simulate_decode(**arrays, out=array(out, "out"), check=checks(), **options):
        judge(report)


def checks() -> bool:
    """Whether a block asked for the checker."""
    return bool(_uses.checking)


def judge(report: Any) -> None:
    """Raise LaunchError if a kernel failed."""
    if report.verdict == "error":
        raise LaunchError(f"the kernel failed on the CPU device: {report}")


def arrays(named: dict[str, Any]) -> dict[str, Any]:
    """Those of these that are tensors as NumPy arrays; the rest as it is. Tensors whose bytes lie among each other are parts of one array,
    since the CPU device copies each array by itself: `out` may be c, or columns of a matrix that another argument has columns of."""
    from ptxkit.gemm.launch.on_cpu import place
    from ptxkit.sim.storage import extent

    seen = {name: array(value, name) if isinstance(value, torch.Tensor) else value for name, value in named.items()}
    bounds = {name: extent(one)[1:] for name, one in seen.items() if isinstance(one, np.ndarray) and one.size}
    ordered: list[tuple[int, int, list[str]]] = []
    for name, (low, high) in sorted(bounds.items(), key=lambda item: item[1]):
        if ordered and low < ordered[-1][1]:
            first, last, names = ordered.pop()
            low, high, names = first, max(last, high), [*names, name]
        else:
            names = [name]
        ordered.append((low, high, names))
    for low, high, names in ordered:
        if len(names) > 1:
            low -= min(place(seen[name]) for name in names if bounds[name][0] == low)
            whole = _memory(low, high - low, [seen[name] for name in names])
            for name in names:
                one = seen[name]
                begin = one.__array_interface__["data"][0] - low
                element = whole[begin:begin + one.itemsize].view(f"u{one.itemsize}")
                seen[name] = np.lib.stride_tricks.as_strided(element, one.shape, one.strides).view(one.dtype)
    return seen


def array(tensor: Any, name: str) -> Any:
    """A NumPy array of a tensor's memory, which keeps the tensor, and lies in an aligned block as on a GPU. `Tensor.numpy` would make its
    storage one that cannot be resized, which sharded layers do."""
    refuse_layout(tensor, name)
    kind = _numpy_types().get(tensor.dtype)
    if kind is None:
        word_of(tensor.dtype, name) if tensor.dtype not in _INTEGERS else None
        kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
    if not tensor.numel():
        return np.zeros(tuple(tensor.shape), kind)
    size = tensor.dtype.itemsize
    count = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    before = tensor.storage_offset() * size % ALIGNED
    memory = _memory(tensor.data_ptr() - before, before + count * size, tensor)[before:].view(f"u{size}")
    return np.lib.stride_tricks.as_strided(memory, tuple(tensor.shape), [stride * size for stride in tensor.stride()]).view(kind)


def _memory(address: int, size: int, owner: Any) -> Any:
    """The `size` bytes at an address as an array that keeps their owner."""
    held: Any = (ctypes.c_uint8 * size).from_address(address)
    held.owner = owner
    return np.ctypeslib.as_array(held)


def _numpy_types() -> dict[Any, Any]:
    """The types of elements that torch has and NumPy has not."""
    try:
        import ml_dtypes  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LaunchError("the CPU device needs the package ml_dtypes for bfloat16 and float8: `pip install 'ptxkit[torch]'`") from None
    return {getattr(torch, name): getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}


__all__ = ["array", "arrays", "attended", "checks", "chosen", "combined", "cpu_device", "decoded", "dense", "grouped", "grouped_k",
           "in_order", "judge", "products_of_rows", "require"]
