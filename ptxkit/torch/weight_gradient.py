"""The product of groups along K: the gradient of grouped weights, into new memory, into `out`, or added to float32 that is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.grouped_k import group_gemm_k

from . import cpu
from .framework import torch
from .views import say_copy

ROWS = 8
"""The kernel reads rows of multiples of 16 bytes, which begin at such multiples: 8 elements."""

Launch = Callable[..., None]
"""`on_gpu` or `on_cpu`."""


def weight_gradient(launch: Launch, a: Any, b: Any, offs: Any, dtype: Any, out: Any = None) -> Any:
    """out[g] = a[offs[g]:offs[g + 1]].T @ b[offs[g]:offs[g + 1]]: a [T, M] and b [T, N] give [G, M, N]. offs is int32 [G + 1]."""
    refuse(a, b, offs)
    shape = offs.shape[0] - 1, a.shape[1], b.shape[1]
    if out is None:
        out = a.new_empty(shape, dtype=dtype)
    return _products(launch, a, b, offs, out, shape, accumulate=False)


def accumulate(launch: Launch, out: Any, a: Any, b: Any, offs: Any) -> None:
    """The same added to `out`, which is float32. Groups without rows are left as they are."""
    refuse(a, b, offs)
    refuse_sums(out)
    _products(launch, a, b, offs, out, (offs.shape[0] - 1, a.shape[1], b.shape[1]), accumulate=True)


def _products(launch: Launch, a: Any, b: Any, offs: Any, out: Any, shape: tuple[int, ...], *, accumulate: bool) -> Any:
    """The products into `out`, or added to it; through other memory where the kernel cannot store `out` itself."""
    refuse_shape(out, shape)
    a, b = _lined("a", a), _lined("b", b)
    wide = shape[0], a.shape[1], b.shape[1]
    fits = wide == shape and out.is_contiguous() and out.data_ptr() % 16 == 0
    own = out if fits else out.new_empty(wide)
    launch(a, b, offs, own, accumulate=accumulate and fits)
    if not fits:
        part = own[:, :shape[1], :shape[2]]
        out.add_(part) if accumulate else out.copy_(part)
    return out


def on_gpu(a: Any, b: Any, offs: Any, out: Any, *, accumulate: bool) -> None:
    """The launch on a GPU."""
    group_gemm_k(a, b, offs, out=out, accumulate=accumulate)


def on_cpu(a: Any, b: Any, offs: Any, out: Any, *, accumulate: bool) -> None:
    """The launch on the CPU device."""
    cpu.grouped_k(a, b, offs, out, accumulate=accumulate)


def _lined(name: str, matrix: Any) -> Any:
    """The matrix with rows as the kernel reads them. Another one is copied, with further columns of zeros up to a multiple of 8."""
    missing = -matrix.shape[1] % ROWS
    if not missing and reads(matrix):
        return matrix
    say_copy("weight_gradient", name, matrix, f"its kernel reads rows that are contiguous and begin at multiples of {ROWS} elements")
    if missing:
        return torch.nn.functional.pad(matrix, (0, missing))
    return matrix.clone(memory_format=torch.contiguous_format)


def reads(matrix: Any) -> bool:
    """Whether the kernels read a matrix of 16 bits as it lies."""
    (rows, columns), (row, column) = matrix.shape, matrix.stride()
    apart = rows <= 1 or (row % ROWS == 0 and row >= columns)
    return bool(apart and (column == 1 or columns <= 1) and matrix.data_ptr() % 16 == 0)


def refuse(a: Any, b: Any, offs: Any) -> None:
    """Raise LaunchError for what has no groups along K."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0]:
        raise LaunchError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: groups along K are rows of both, as many in a as in b")
    refuse_types(a, b)
    if offs.ndim != 1 or not offs.shape[0]:
        raise LaunchError(f"offs has shape {tuple(offs.shape)}: it is int32 [G + 1], where each group begins, and the end of the last")


def refuse_types(a: Any, b: Any, out_dtype: Any = torch.float32) -> None:
    """Raise LaunchError for operands and results of types that groups along K do not have."""
    if a.dtype is not b.dtype or a.dtype not in (torch.bfloat16, torch.float16):
        raise LaunchError(f"a has elements of {a.dtype} and b of {b.dtype}: groups along K are both bfloat16 or both float16; "
                          "convert them")
    if out_dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise LaunchError(f"out has elements of {out_dtype}: results of groups along K have bfloat16, float16 or float32")


def refuse_shape(out: Any, shape: tuple[int, ...]) -> None:
    """Raise LaunchError for an `out` of another shape."""
    if tuple(out.shape) != shape:
        raise LaunchError(f"out has shape {tuple(out.shape)}: {shape[0]} groups along K give {shape}")


def refuse_sums(out: Any) -> None:
    """Raise LaunchError for what products are not added to."""
    if out.dtype is not torch.float32:
        raise LaunchError(f"out has elements of {out.dtype}: weight_gradient_ adds in float32; weight_gradient has results of other types")


__all__ = ["ROWS", "accumulate", "on_cpu", "on_gpu", "reads", "refuse", "refuse_shape", "refuse_sums", "refuse_types", "weight_gradient"]
