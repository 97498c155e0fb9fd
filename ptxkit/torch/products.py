"""What the operators do with tensors that have memory: on a GPU the calls of `ptxkit.gemm`, on the CPU those of the CPU device.

Nothing here looks at a tensor that `ptxkit.gemm` looks at itself, nothing waits for a device, and nothing but results is allocated. The
exceptions are named in docs/torch.md: grouped weights, operands with groups along K and operands with block scales that no kernel reads as
they lie are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.dense import gemm as launch_gemm
from ptxkit.gemm.launch.dense import repeated
from ptxkit.gemm.launch.grouped import group_gemm as launch_on_gpu
from ptxkit.gemm.problem.lines import UNIT as LINE
from ptxkit.gemm.problem.matmul import result_shape
from ptxkit.gemm.problem.options import refuse_scaled_result
from ptxkit.gemm.problem.scales import scale_kind

from . import cpu
from .framework import torch
from .views import refuse_back, refuse_missing, refuse_overlap, say_copy
from .weight_gradient import ROWS as UNIT
from .weight_gradient import on_cpu, on_gpu, reads, weight_gradient


def result_dtype(a: Any, out_dtype: Any) -> Any:
    """The type of a result: the one asked for, that of the operands, or bfloat16 for fp8."""
    return out_dtype or (torch.bfloat16 if a.dtype.itemsize == 1 else a.dtype)


def empty(a: Any, b: Any, out_dtype: Any) -> Any:
    """Memory for a @ b."""
    if a.ndim == b.ndim == 2:
        m, n = a.shape[0], b.shape[1]
        dtype = result_dtype(a, out_dtype)
        return a.new_empty_strided((m, n), (n, 1)) if dtype is a.dtype else a.new_empty_strided((m, n), (n, 1), dtype=dtype)
    return a.new_empty(result_shape(a, b), dtype=result_dtype(a, out_dtype))


def check_out(out: Any, out_dtype: Any) -> None:
    """Raise LaunchError if `out` has another type than `out_dtype`."""
    if out_dtype is not None and out.dtype is not out_dtype:
        raise LaunchError(f"out has elements of {out.dtype} and out_dtype says {out_dtype}: give one of them")


# ------------------------------------------------------------------------------------------------------------- on a GPU


def _fused(a: Any, b: Any, out: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
           activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False) -> Any:
    if out is None:
        out = empty(a, b, out_dtype)
    elif out_dtype is not None:
        check_out(out, out_dtype)
    return launch_gemm(a, b, out, c=c, alpha=alpha, beta=beta, bias=bias, activation=activation, residual=residual,
                       batch_invariant=batch_invariant)


gemm_out = repeated(_fused, torch.is_grad_enabled, torch._C._increment_version)
"""`gemm` on a GPU, into `out`. torch leaves out arguments that are their defaults, so that a plain product costs no look at them."""


def gemm(a: Any, b: Any, bias: Any = None, *rest: Any) -> Any:
    """`gemm` on a GPU, into new memory."""
    try:
        if rest:
            return _fused(a, b, None, bias, *rest)
        out = empty(a, b, None)
    except AttributeError:
        for name, tensor in (("a", a), ("b", b)):
            refuse_missing(tensor, name)
        raise
    gemm_out(a, b, bias, out=out)
    return out


def scaled_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
                residual: Any = None, activation: str | None = None, batch_invariant: bool = False) -> Any:
    """`scaled_gemm` on a GPU, into new memory."""
    a, b = lines_of_blocks(a, b, scale_a, scale_b)
    return launch_gemm(a, b, empty(a, b, out_dtype), bias=bias, residual=residual, activation=activation, a_scale=scale_a, b_scale=scale_b,
                       fast_accum=use_fast_accum, batch_invariant=batch_invariant)


def scaled_gemm_out(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
                    residual: Any = None, activation: str | None = None, batch_invariant: bool = False, *, out: Any) -> None:
    """`scaled_gemm` on a GPU, into `out`."""
    check_out(out, out_dtype)
    a, b = lines_of_blocks(a, b, scale_a, scale_b)
    launch_gemm(a, b, out, bias=bias, residual=residual, activation=activation, a_scale=scale_a, b_scale=scale_b,
                fast_accum=use_fast_accum, batch_invariant=batch_invariant)


def lines_of_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, Any]:
    """a [.., M, K] and b [K, N] of fp8 as the kernels of block scales read them: contiguous along K, with lines that begin at multiples of
    16 bytes and follow one another. An operand that lies otherwise is copied. With other scales both stay as they are. Raises LaunchError
    for scales of None: `gemm.gemm` would multiply without them."""
    refuse_missing(scale_a, "scale_a")
    if a.ndim < 2 or b.ndim != 2 or (lines_along_k(a) and lines_along_k(b.mT)) or not in_blocks(a, b, scale_a, scale_b):
        return a, b
    reads = f"with block scales its kernels read operands that are contiguous along K, with lines that begin at multiples of {LINE} bytes"
    if not lines_along_k(a):
        say_copy("scaled_gemm", "a", a, reads)
        a = _aligned(a)
    if not lines_along_k(b.mT):
        say_copy("scaled_gemm", "b", b, reads)
        b = _aligned(b.mT).mT
    return a, b


def in_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any) -> bool:
    """Whether the scales of a [.., M, K] and b [K, N] are block scales. Of a batch those of one block are scales of rows."""
    rows, batch, seen = math.prod(a.shape[:-1]), len(a.shape) > 2, tuple(scale_a.shape)
    seen = (rows, seen[-1]) if batch and seen[:-1] == tuple(a.shape[:-1]) else seen
    blocks = not batch or math.prod(scale_b.shape) > 1
    return scale_kind(seen, tuple(scale_b.shape), rows, b.shape[1], a.shape[-1], blocks=blocks) == "block"


def lines_along_k(x: Any) -> bool:
    """Whether the rows of an fp8 matrix [lines, K], or of a batch that is one, are contiguous and begin at multiples of 16 bytes."""
    together = all(x.stride(i) == x.shape[i + 1] * x.stride(i + 1) for i in range(x.ndim - 2))
    return together and x.stride(-1) == 1 and not x.stride(-2) % LINE and not x.data_ptr() % LINE


def _aligned(x: Any) -> Any:
    """A copy of fp8 matrices whose rows begin at multiples of 16 bytes."""
    *rows, k = x.shape
    return x.new_empty((*rows, -(-k // LINE) * LINE))[..., :k].copy_(x)


# ---------------------------------------------------------------------------------------------------------- on the CPU


def gemm_on_cpu(a: Any, b: Any, bias: Any = None, residual: Any = None, c: Any = None, alpha: float = 1.0, beta: float = 0.0,
                activation: str | None = None, out_dtype: Any = None, batch_invariant: bool = False, *, out: Any = None) -> Any:
    """`gemm` on the CPU device."""
    cpu.require()
    check_out(out, out_dtype) if out is not None else None
    out = empty(a, b, out_dtype) if out is None else out
    cpu.dense(a, b, out, c=c, alpha=alpha, beta=beta, bias=bias, activation=activation, residual=residual, batch_invariant=batch_invariant)
    return out


def scaled_gemm_on_cpu(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, use_fast_accum: bool = False,
                       residual: Any = None, activation: str | None = None, batch_invariant: bool = False, *, out: Any = None) -> Any:
    """`scaled_gemm` on the CPU device."""
    cpu.require()
    check_out(out, out_dtype) if out is not None else None
    a, b = lines_of_blocks(a, b, scale_a, scale_b)
    out = empty(a, b, out_dtype) if out is None else out
    cpu.dense(a, b, out, bias=bias, residual=residual, activation=activation, a_scale=scale_a, b_scale=scale_b, fast_accum=use_fast_accum,
              batch_invariant=batch_invariant)
    return out


# ------------------------------------------------------------------------------------------------------------- groups


def cu_seqlens(offs: Any, groups: int) -> Any:
    """Where groups begin, and the end of the last, of `offs`: those as they are, or torch's ends of the groups with a 0 before them."""
    return offs if offs.shape[0] == groups + 1 else torch.nn.functional.pad(offs, (1, 0))


def lies_along_n(b: Any) -> bool:
    """Whether the kernels read weights [G, K, N] that are contiguous along N as they lie: their rows begin at multiples of 16 bytes."""
    return b.dtype.itemsize == 2 and b.stride(-1) == 1 and not any(b.stride(axis) % 8 for axis in (0, 1) if b.shape[axis] > 1)


def weights(b: Any, *, along_n: bool = False) -> Any:
    """Weights [G, K, N] as the kernels read them: [G, N, K] with contiguous K, or `along_n` with contiguous N. Others are copied, which is
    said once a shape."""
    turned = b.mT
    if turned.stride(-1) == 1 or turned.shape[-1] == 1 or (along_n and lies_along_n(b) and b.data_ptr() % 16 == 0):
        return turned
    say_copy("grouped_gemm", "b", b, "its kernels read weights that are contiguous along K, such as w.mT of w [G, N, K]")
    return turned.contiguous()


def lined(a: Any, b: Any) -> tuple[Any, Any]:
    """Rows a [M, K] of 16 bits and weights b [G, K, N] as the kernels read them: a with contiguous rows that begin at multiples of 16
    bytes, both with further zeros of K up to a multiple of 8. An `a` that lies otherwise is copied, which is said once a shape."""
    missing = -a.shape[1] % UNIT if b.shape[1] == a.shape[1] else 0
    if a.dtype.itemsize != 2 or not a.numel() or (not missing and reads(a)):
        return a, b
    say_copy("grouped_gemm", "a", a, f"its kernels read rows that are contiguous and begin at multiples of {UNIT} elements")
    if missing:
        return torch.nn.functional.pad(a, (0, missing)), torch.nn.functional.pad(b.mT, (0, missing)).mT
    return a.clone(memory_format=torch.contiguous_format), b


def of_groups(launch: Callable[..., Any], a: Any, b: Any, offs: Any, out: Any, out_dtype: Any, activation: str | None, clear_rest: bool,
            **more: Any) -> Any:
    """A product of groups by `launch`, into `out` or new memory."""
    rows = a if more.get("gather") is None else more["gather"]
    if b.ndim == 2:
        along_k = on_cpu if launch is launch_on_cpu else on_gpu
        return weight_gradient(along_k, a.mT, b, torch.nn.functional.pad(offs, (1, 0)), result_dtype(a, out_dtype), out)
    refuse_fp8_result(out, out_dtype)
    if out is None:
        new = a.new_zeros if clear_rest else a.new_empty
        out = new((rows.shape[0], b.shape[2] // (1 if activation is None else 2)), dtype=result_dtype(a, out_dtype))
    else:
        check_out(out, out_dtype)
        if clear_rest:
            refuse_overlap(out, a=a, b=b, offs=offs, **more)
            out.zero_()
    a, b = lined(a, b)
    launch(a, weights(b, along_n=activation is None), cu_seqlens(offs, b.shape[0]), out=out, activation=activation, **more)
    return out


def launch_on_cpu(x: Any, w: Any, lengths: Any, *, out: Any, **more: Any) -> None:
    """A product of groups on the CPU device."""
    cpu.grouped(x, w, lengths, out, **more)


def grouped(launch: Callable[..., Any]) -> Callable[..., Any]:
    """`grouped_gemm` by `launch`."""
    def grouped_gemm(a: Any, b: Any, offs: Any, bias: Any = None, out_dtype: Any = None, activation: str | None = None,
                     batch_invariant: bool = False, clear_rest: bool = False, gather: Any = None, back: Any = None, *,
                     out: Any = None) -> Any:
        if launch is launch_on_cpu:
            cpu.require()
        refuse_groups(a, b, offs, bias, activation)
        refuse_gather(a, b, gather, back)
        return of_groups(launch, a, b, offs, out, out_dtype, activation, clear_rest, batch_invariant=batch_invariant, gather=gather)

    return grouped_gemm


def gated(launch: Callable[..., Any]) -> Callable[..., Any]:
    """`gated_gemm` by `launch`: a product of one group, since the kernels of groups have the gate in their epilogue."""
    def gated_gemm(a: Any, b: Any, out_dtype: Any = None, *, out: Any = None) -> Any:
        if launch is launch_on_cpu:
            cpu.require()
        refuse_gated(a, b)
        refuse_fp8_result(out, out_dtype)
        shape = *a.shape[:-1], b.shape[1] // 2
        if out is None:
            out = a.new_empty(shape, dtype=result_dtype(a, out_dtype))
        elif out.shape != shape or not out.is_contiguous():
            raise LaunchError(f"out has shape {tuple(out.shape)} and strides {out.stride()}: it is {shape}, row-major without gaps")
        else:
            check_out(out, out_dtype)
        count = math.prod(a.shape[:-1])
        rows, w = lined(a.reshape(count, a.shape[-1]), b[None])
        lengths = torch.arange(2, dtype=torch.int32, device=a.device) * count
        launch(rows, weights(w), lengths, out=out.view(count, shape[-1]), activation="silu_and_mul")
        return out

    return gated_gemm


def refuse_gated(a: Any, b: Any) -> None:
    """Raise LaunchError for shapes that `gated_gemm` does not take."""
    if a.ndim < 1 or b.ndim != 2 or a.shape[-1] != b.shape[0] or b.shape[1] % 2:
        raise LaunchError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: a is [..., K] and b [K, 2 N], the gate and then the up "
                          "projection; pass a weight w of shape [2 N, K] as w.T")


def scaled_grouped(launch: Callable[..., Any]) -> Callable[..., Any]:
    """`scaled_grouped_gemm` by `launch`."""
    def scaled_grouped_gemm(a: Any, b: Any, scale_a: Any, scale_b: Any, offs: Any, bias: Any = None, out_dtype: Any = None,
                            use_fast_accum: bool = False, activation: str | None = None, batch_invariant: bool = False,
                            clear_rest: bool = False, *, out: Any = None) -> Any:
        if launch is launch_on_cpu:
            cpu.require()
        refuse_groups(a, b, offs, bias, activation)
        if b.ndim == 2:
            raise LaunchError(f"b has shape {tuple(b.shape)}: scaled groups have weights [G, K, N]; groups along K are grouped_gemm's")
        return of_groups(launch, a, b, offs, out, out_dtype, activation, clear_rest, x_scale=scale_a, w_scale=group_scale(scale_b),
                       fast_accum=use_fast_accum, batch_invariant=batch_invariant)

    return scaled_grouped_gemm


def group_scale(scale: Any) -> Any:
    """The scales of weights as the kernels read them: blocks [G, K/128, N/128] lie as [G, N/128, K/128]."""
    return scale.mT if scale.ndim == 3 else scale


def refuse_groups(a: Any, b: Any, offs: Any, bias: Any, activation: str | None) -> None:
    """Raise LaunchError for what no product of groups takes, before `ptxkit.gemm` looks at the rest."""
    if bias is not None:
        raise LaunchError("bias: the kernels of groups add none; add it to the result")
    if a.ndim != 2 or b.ndim not in (2, 3):
        raise LaunchError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: groups of rows are a [M, K] and b [G, K, N], groups along "
                          "K a [M, K] and b [K, N]; a batch of products is torch.ops.ptxkit.gemm")
    if offs.ndim != 1:
        raise LaunchError(f"offs has shape {tuple(offs.shape)}: it is int32 [G], where each group ends, or [G + 1] that begins with 0")
    if offs.dtype is not torch.int32:
        raise LaunchError(f"offs has elements of {offs.dtype}: it is int32; pass offs.int()")
    if b.ndim == 2 and activation is not None:
        raise LaunchError(f"activation={activation!r}: groups along K have none; apply it to the result")
    if activation not in (None, "silu_and_mul"):
        raise LaunchError(f"activation={activation!r}: it is 'silu_and_mul' or None")
    if b.ndim == 3 and offs.shape[0] not in (b.shape[0], b.shape[0] + 1):
        raise LaunchError(f"offs has shape {tuple(offs.shape)}: for {b.shape[0]} groups it is ({b.shape[0]},), where each group ends, or "
                          f"({b.shape[0] + 1},) that begins with 0")


def refuse_fp8_result(out: Any, out_dtype: Any) -> None:
    """Raise LaunchError for a result that has scales, which no operator returns."""
    dtype = out_dtype if out is None else out.dtype
    if dtype is not None and dtype.itemsize == 1:
        refuse_scaled_result(f"{'out_dtype is' if out is None else 'out has elements of'} {dtype}")


def refuse_gather(a: Any, b: Any, gather: Any, back: Any) -> None:
    """Raise LaunchError for numbers of rows that no product of groups takes, as far as `ptxkit.gemm` does not."""
    if gather is None and back is not None:
        raise LaunchError("back says which rows of gather take each row of a: give gather as well")
    if gather is not None and (b.ndim == 2 or gather.ndim != 1):
        raise LaunchError(f"gather has shape {tuple(gather.shape)} and b {tuple(b.shape)}: it is int32 [M], the row of a for each row of "
                          "the result of weights [G, K, N]")
    if back is not None:
        refuse_back(a, back)


gated_gemm, gated_gemm_on_cpu = gated(launch_on_gpu), gated(launch_on_cpu)
grouped_gemm, scaled_grouped_gemm = grouped(launch_on_gpu), scaled_grouped(launch_on_gpu)
grouped_gemm_on_cpu, scaled_grouped_gemm_on_cpu = grouped(launch_on_cpu), scaled_grouped(launch_on_cpu)

__all__ = ["check_out", "cu_seqlens", "empty", "gated_gemm", "gated_gemm_on_cpu", "gemm", "gemm_on_cpu", "gemm_out", "group_scale",
           "grouped_gemm", "grouped_gemm_on_cpu", "launch_on_cpu", "launch_on_gpu", "lies_along_n", "lined", "of_groups",
           "refuse_fp8_result", "refuse_gated", "refuse_gather", "refuse_groups", "result_dtype", "scaled_gemm", "scaled_gemm_on_cpu",
           "scaled_gemm_out", "scaled_grouped_gemm", "scaled_grouped_gemm_on_cpu", "weights"]
