"""Products of groups whose operands are quantised to e4m3 on the way: activations in blocks of 1 x 128, weights in blocks of 128 x 128."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ptxkit.errors import LaunchError
from ptxkit.gemm.launch.quantize import Kind, scale_shape, simulate
from ptxkit.gemm.launch.quantize import quantize as launch_quantize

from . import cpu, fake
from .framework import torch
from .products import launch_on_cpu, launch_on_gpu, of_groups, refuse_groups, weights
from .views import with_contiguous_rows

BLOCK = 128
KINDS = ("1x128", "128x128")
SOURCES = (torch.bfloat16, torch.float16, torch.float32)


class Quantised(NamedTuple):
    """A matrix [M, K], or matrices [G, N, K], in e4m3, and their scales."""

    q: Any
    scale: Any


Quantiser = Callable[[Any, Kind], Quantised]


def quantised(x: Any, kind: Kind, quantise: Quantiser) -> Quantised:
    """x in e4m3 with scales of blocks. Of [G, N, K] every matrix has its own blocks; where N is a multiple of 128 that is one launch."""
    if x.ndim == 2:
        return quantise(x, kind)
    groups, lines, depth = x.shape
    if kind == "1x128" or lines % BLOCK == 0:
        q, scale = quantise(x.reshape(groups * lines, depth), kind)
        return Quantised(q.view(x.shape), scale.unflatten(0, (groups, -1)))
    each = [quantise(matrix, kind) for matrix in x]
    return Quantised(*(torch.stack(parts) for parts in zip(*each, strict=True)))


def _empty(x: Any, kind: Kind) -> Quantised:
    """Memory for the quantised matrix. Scales of 1 x 128 lie as products read them fastest: contiguous along the rows."""
    rows, columns = scale_shape(kind, *x.shape)
    if kind == "1x128":
        scale = x.new_empty((columns, -(-rows // 4) * 4), dtype=torch.float32).T[:rows]
    else:
        scale = x.new_empty((rows, columns), dtype=torch.float32)
    return Quantised(x.new_empty(x.shape, dtype=torch.float8_e4m3fn), scale)


def on_gpu(x: Any, kind: Kind) -> Quantised:
    """A matrix, quantised on a GPU."""
    found = _empty(x, kind)
    launch_quantize(x, kind, out=found.q, out_scale=found.scale)
    return found


def on_cpu(x: Any, kind: Kind) -> Quantised:
    """A matrix, quantised on the CPU device."""
    found = _empty(x, kind)
    out = {"out": cpu.array(found.q, "q"), "out_scale": cpu.array(found.scale, "scale")}
    for report in simulate(cpu.array(x, "a"), kind, **out, check=cpu.checks()):
        cpu.judge(report)
    return found


def dequantised(found: Quantised, kind: Kind, dtype: Any) -> Any:
    """q times its scales, in this type."""
    scale = found.scale.repeat_interleave(BLOCK, -1)[..., :found.q.shape[-1]]
    scale = scale.repeat_interleave(BLOCK, -2)[..., :found.q.shape[-2], :] if kind != "1x128" else scale
    return (found.q.float() * scale).to(dtype)


def grouped(launch: Callable[..., Any], quantise: Quantiser) -> Callable[..., Any]:
    """`quantized_grouped_gemm` by a quantiser and a launch."""
    def quantized_grouped_gemm(a: Any, b: Any, offs: Any, out_dtype: Any = None, activation: str | None = None,
                               batch_invariant: bool = False, clear_rest: bool = False, *, out: Any = None) -> Any:
        if quantise is on_cpu:
            cpu.require()
        _refuse(a, b, offs, activation)
        (x, x_scale), (w, w_scale) = quantised(a, "1x128", quantise), quantised(weights(b), "128x128", quantise)
        return of_groups(launch, x, w.mT, offs, out, out_dtype or a.dtype, activation, clear_rest, x_scale=x_scale, w_scale=w_scale,
                         batch_invariant=batch_invariant)

    return quantized_grouped_gemm


def rounded(quantise: Quantiser) -> Callable[..., Any]:
    """`rounded_to_blocks` by a quantiser: x in its own type, with the values that its quantised form has."""
    def rounded_to_blocks(x: Any, kind: Kind) -> Any:
        if quantise is on_cpu:
            cpu.require("x")
        _refuse_kind(x, kind)
        return dequantised(quantised(with_contiguous_rows(x), kind, quantise), kind, x.dtype)

    return rounded_to_blocks


def grouped_fake(a: Any, b: Any, offs: Any, out_dtype: Any = None, activation: str | None = None, batch_invariant: bool = False,
                 clear_rest: bool = False, *, out: Any = None) -> Any:
    """`quantized_grouped_gemm` of tensors without memory."""
    _refuse(a, b, offs, activation)
    x, w = (each.new_empty(shape, dtype=torch.float8_e4m3fn) for each, shape in ((a, a.shape), (b, b.mT.shape)))
    depth, lines = -(-a.shape[1] // BLOCK), -(-b.shape[2] // BLOCK)
    scale_a, scale_b = a.new_empty((a.shape[0], depth), dtype=torch.float32), b.new_empty((b.shape[0], depth, lines), dtype=torch.float32)
    return fake.scaled_grouped_gemm(x, w.mT, scale_a, scale_b, offs, out_dtype=out_dtype or a.dtype, activation=activation,
                                    batch_invariant=batch_invariant, out=out)


def _refuse(a: Any, b: Any, offs: Any, activation: str | None) -> None:
    refuse_groups(a, b, offs, None, activation)
    if b.ndim == 2:
        raise LaunchError(f"b has shape {tuple(b.shape)}: quantised groups have weights [G, K, N]; groups along K are grouped_gemm's")
    for name, each in (("a", a), ("b", b)):
        if each.dtype not in SOURCES:
            raise LaunchError(f"{name} has elements of {each.dtype}: quantized_grouped_gemm quantises bfloat16, float16 and float32; "
                              "operands in fp8 and their scales are scaled_grouped_gemm's")


def rounded_fake(x: Any, kind: Kind) -> Any:
    """`rounded_to_blocks` of tensors without memory."""
    _refuse_kind(x, kind)
    return x.new_empty(x.shape)


def _refuse_kind(x: Any, kind: Kind) -> None:
    if kind not in KINDS or x.ndim not in (2, 3) or x.dtype not in SOURCES:
        raise LaunchError(f"kind={kind!r} and x {x.dtype} {tuple(x.shape)}: it is {' or '.join(KINDS)}, of [M, K] or [G, N, K] in "
                          "bfloat16, float16 or float32")


quantized_grouped_gemm, quantized_grouped_gemm_on_cpu = grouped(launch_on_gpu, on_gpu), grouped(launch_on_cpu, on_cpu)
rounded_to_blocks, rounded_to_blocks_on_cpu = rounded(on_gpu), rounded(on_cpu)

__all__ = ["Quantised", "dequantised", "grouped_fake", "on_cpu", "on_gpu", "quantised", "quantized_grouped_gemm",
           "quantized_grouped_gemm_on_cpu", "rounded_fake", "rounded_to_blocks", "rounded_to_blocks_on_cpu"]
