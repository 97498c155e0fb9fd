"""One product from the command line: on the GPU with a check and a time, or assembled where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxkit.types import TYPES

from . import reference
from .config import heuristic
from .hgemm import hgemm as kernel

_MAJORS: dict[str, Any] = {"n": {"a": "k", "b": "mn"}, "t": {"a": "mn", "b": "k"}}


def majors(layout: str) -> tuple[Any, Any]:
    """(major of A, major of B) of a BLAS layout: "nt" is A [M, K] row-major and B [K, N] column-major, K contiguous in both."""
    return _MAJORS[layout[0]]["a"], _MAJORS[layout[1]]["b"]


def assembled(m: int, n: int, k: int, dtype: str, out: str, layout: str, reason: str) -> dict[str, Any]:
    """Emit and assemble the kernel that this product would run; nothing is executed."""
    from ptxkit.errors import NoToolError
    from ptxkit.inspect import report
    from ptxkit.toolchain import disassemble

    config = heuristic(m, n, k, TYPES[dtype], TYPES[out], *majors(layout))
    traced = kernel.trace(**config.parameters)
    assembly = kernel.assemble(**config.parameters)
    try:
        sass = disassemble(assembly.cubin)
    except NoToolError:
        sass = ""
    (entry,) = report(traced.module, assembly.resources, sass=sass, log=assembly.log)
    lines = [
        f"hgemm {m} x {n} x {k} {dtype} {layout} -> {out}: tile 128 x {config.BN} x 64, {config.STAGES} stages, cluster {config.CLUSTER}",
        *(f"{what:<32}{value}" for what, value in entry.rows()), "shared memory", traced.shared.table(), *map(str, assembly.findings),
        f"assembled with ptxas {assembly.tool.version}; not executed: {reason}",
    ]
    return {"m": m, "n": n, "k": k, "dtype": dtype, "executed": False, "wrong": 0, "lines": lines}


def on_gpu(m: int, n: int, k: int, dtype: str, out: str, layout: str, *, check: bool, repeat: int) -> dict[str, Any]:
    """Run it on the current device; beside cuBLAS when torch can be imported."""
    try:
        import torch
    except ImportError:
        return _with_numpy(m, n, k, dtype, out, layout, check=check, repeat=repeat)
    return _with_torch(torch, m, n, k, dtype, out, layout, check=check, repeat=repeat)


def _report(m: int, n: int, k: int, dtype: str, out: str, layout: str, us: float, share: float | None, error: float | None,
            cublas_us: float | None) -> dict[str, Any]:
    tflops = 2e-6 * m * n * k / us
    lines = [f"hgemm {m} x {n} x {k} {dtype} {layout} -> {out}: {us:.2f} us, {tflops:.1f} TFLOP/s"]
    wrong = 0
    if share is not None:
        wrong = int(not share <= 1)
        lines.append(f"largest error {error:.3g}, {share:.2f} of what fp32 accumulation and rounding allow: {'WRONG' if wrong else 'right'}")
    if cublas_us is not None:
        lines.append(f"cuBLAS {cublas_us:.2f} us, {2e-6 * m * n * k / cublas_us:.1f} TFLOP/s: ptxkit runs at {cublas_us / us:.3f} of its speed")
    return {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout, "out": out, "executed": True, "wrong": wrong, "us": us, "tflops": tflops,
            "error": error, "error_share": share, "cublas_us": cublas_us, "lines": lines}


def operands(torch: Any, m: int, n: int, k: int, dtype: str, layout: str) -> tuple[Any, Any]:
    """Normally distributed A [M, K] and B [K, N] with the strides of the layout."""
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    a = torch.randn((m, k) if layout[0] == "n" else (k, m), device="cuda", dtype=kind)
    b = torch.randn((k, n) if layout[1] == "n" else (n, k), device="cuda", dtype=kind)
    return (a if layout[0] == "n" else a.T), (b if layout[1] == "n" else b.T)


def _with_torch(torch: Any, m: int, n: int, k: int, dtype: str, out: str, layout: str, *, check: bool, repeat: int) -> dict[str, Any]:
    from . import hgemm

    a, b = operands(torch, m, n, k, dtype, layout)
    d = torch.full((m, n), float("nan"), device="cuda", dtype={"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[out])
    hgemm(a, b, d)
    share = error = None
    if check:
        exact, magnitude = a.float() @ b.float(), a.float().abs() @ b.float().abs()
        share = reference.worst(d.float().cpu().numpy(), exact.cpu().numpy(), magnitude.cpu().numpy(), k, out)
        error = float((d.float() - exact).abs().max())
    us = _time(torch, lambda: hgemm(a, b, d), repeat)
    cublas_us = _time(torch, lambda: torch.matmul(a, b), repeat)
    return _report(m, n, k, dtype, out, layout, us, share, error, cublas_us)


def _time(torch: Any, call: Any, repeat: int) -> float:
    """Median microseconds of one launch, by events."""
    for _ in range(3):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeat)]
    for start, end in events:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return float(np.median([1e3 * start.elapsed_time(end) for start, end in events]))


def _with_numpy(m: int, n: int, k: int, dtype: str, out: str, layout: str, *, check: bool, repeat: int) -> dict[str, Any]:
    import time

    from ptxkit import device_array, driver

    from ptxkit.arrays import view

    from .device import hgemm

    generator = np.random.default_rng()
    host = [generator.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n))]
    rounded = [_rounded(array, dtype) for array in host]
    held = [device_array(np.ascontiguousarray(bits if letter == "n" else bits.T), dtype) for (bits, _), letter in zip(rounded, layout, strict=True)]
    views = [seen if letter == "n" else seen._replace(shape=seen.shape[::-1], strides=seen.strides[::-1])
             for seen, letter in zip(map(view, held), layout, strict=True)]
    d = device_array(np.zeros((m, n), np.uint32 if out == "f32" else np.uint16), out)
    hgemm(*views, d)
    driver.synchronize()
    share = error = None
    if check:
        exact, magnitude = reference.product(rounded[0][1], rounded[1][1])
        actual = d.numpy().astype(np.float64) if d.numpy().dtype.kind == "f" else _widened(d.numpy(), out)
        share, error = reference.worst(actual, exact, magnitude, k, out), float(np.abs(actual - exact).max())
    begin = time.perf_counter()
    for _ in range(repeat):
        hgemm(*views, d)
    driver.synchronize()
    return _report(m, n, k, dtype, out, layout, 1e6 * (time.perf_counter() - begin) / repeat, share, error, None)


def _rounded(array: Any, dtype: str) -> tuple[Any, Any]:
    """(bits, value) of float32 rounded to f16 or bf16 (to nearest even)."""
    if dtype == "f16":
        half = array.astype(np.float16)
        return half, half.astype(np.float32)
    bits = array.view(np.uint32)
    bf16 = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return bf16, (bf16.astype(np.uint32) << 16).view(np.float32)


def _widened(bits: Any, dtype: str) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) if dtype == "bf16" else bits.astype(np.float64)
