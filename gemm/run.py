"""One product from the command line: on the GPU with a check and a time, or on the CPU device with its checker."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ptxkit.arrays import ArrayView

from . import reference
from .config import Config
from .dense import gemm as kernel
from .heuristic import heuristic
from .problem import Arrays, Problem


@dataclass(frozen=True, slots=True)
class Product:
    """D[m, n] = A[m, k] B[k, n]. `layout` is BLAS's: A then B, n row-major and t column-major, so that "nt" has K contiguous in both."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    out: str = "bf16"
    layout: str = "nt"

    def config(self) -> Config:
        def matrix(rows: int, columns: int, dtype: str, letter: str) -> ArrayView:
            return ArrayView(0, (rows, columns), (columns, 1) if letter == "n" else (1, rows), dtype, 0, "other")

        a, b = matrix(self.m, self.k, self.dtype, self.layout[0]), matrix(self.k, self.n, self.dtype, self.layout[1])
        return heuristic(Problem(Arrays(a, b, matrix(self.m, self.n, self.out, "n"))))

    def __str__(self) -> str:
        return f"hgemm {self.m} x {self.n} x {self.k} {self.dtype} {self.layout} -> {self.out}"


def resources(product: Product) -> tuple[list[str], dict[str, object]]:
    """What ptxas makes of the kernel that this product runs, as lines and as a table; only its plan where there is no ptxas."""
    from ptxkit.errors import NoToolError
    from ptxkit.inspect import report
    from ptxkit.toolchain import disassemble

    config = product.config()
    traced = kernel.trace(**config.parameters)
    lines = [f"{product}: {config}"]
    try:
        assembly = kernel.assemble(**config.parameters)
    except NoToolError as error:
        return [*lines, f"not assembled: {error}", traced.shared.table()], {}
    try:
        sass = disassemble(assembly.cubin)
    except NoToolError:
        sass = ""
    (entry,) = report(traced.module, assembly.resources, sass=sass, log=assembly.log)
    lines += [f"assembled with ptxas {assembly.tool.version}", *(f"{what:<32}{value}" for what, value in entry.rows())]
    return [*lines, traced.shared.table(), *map(str, assembly.findings)], dict(entry.rows())


def simulated(product: Product, *, schedule: str = "fifo", seed: int = 0, check: bool = True) -> dict[str, Any]:
    """Run it on the CPU device, check the numbers against float64 and the protocol by the simulator's rules."""
    from .simulate import simulate

    lines, table = resources(product)
    (a, a_value), (b, b_value) = _random(product)
    kinds: dict[str, type[np.generic]] = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
    d = np.full((product.m, product.n), 0x7FC0 if product.out == "bf16" else np.nan, kinds[product.out])
    begin = time.perf_counter()
    report = simulate(a, b, d, dtype=product.dtype, out_dtype=product.out, schedule=schedule, seed=seed, check=check)
    seconds = time.perf_counter() - begin
    exact, magnitude = reference.product(a_value, b_value)
    actual = _widened(d, product.out)
    share = reference.worst(actual, exact, magnitude, product.k, product.out)
    wrong = not share <= 1
    error = float(np.abs(actual - exact).max())
    lines.append(f"executed on the CPU device, not a GPU, in {seconds:.2f} s: {_verdict(error, share, wrong)}")
    lines.append(f"verdict: {report}")
    bad = ("error", "incomplete") if check else ("error",)
    return {**asdict(product), "executed": True, "device": "sim", "wrong": int(wrong or report.verdict in bad),
            "seconds": seconds, "error_share": share, "verdict": report.verdict, "findings": [str(f) for f in report.findings],
            "resources": table, "lines": lines}


def _verdict(error: float, share: float, wrong: bool) -> str:
    return f"largest error {error:.3g}, {share:.2f} of what fp32 accumulation and rounding allow: {'WRONG' if wrong else 'right'}"


def on_gpu(product: Product, *, check: bool, repeat: int) -> dict[str, Any]:
    """Run it on the current device; beside cuBLAS when torch can be imported."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        found = _with_numpy(product, check=check, repeat=repeat)
    else:
        found = _with_torch(torch, product, check=check, repeat=repeat)
    work = 2e-6 * product.m * product.n * product.k
    us, share, cublas = found["us"], found.get("error_share"), found.get("cublas_us")
    lines = [f"{product}: {us:.2f} us, {work / us:.1f} TFLOP/s"]
    wrong = share is not None and not share <= 1
    if share is not None:
        lines.append(_verdict(found["error"], share, wrong))
    if cublas is not None:
        lines.append(f"cuBLAS {cublas:.2f} us, {work / cublas:.1f} TFLOP/s: ptxkit runs at {cublas / us:.3f} of its speed")
    return {**asdict(product), "executed": True, "wrong": int(wrong), "tflops": work / us, **found, "lines": lines}


def operands(torch: Any, m: int, n: int, k: int, dtype: str, layout: str) -> tuple[Any, Any]:
    """Normally distributed A [M, K] and B [K, N] with the strides of the layout."""
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    a = torch.randn((m, k) if layout[0] == "n" else (k, m), device="cuda", dtype=kind)
    b = torch.randn((k, n) if layout[1] == "n" else (n, k), device="cuda", dtype=kind)
    return (a if layout[0] == "n" else a.T), (b if layout[1] == "n" else b.T)


def _with_torch(torch: Any, product: Product, *, check: bool, repeat: int) -> dict[str, Any]:
    from . import hgemm

    a, b = operands(torch, product.m, product.n, product.k, product.dtype, product.layout)
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[product.out]
    d = torch.full((product.m, product.n), float("nan"), device="cuda", dtype=kind)
    hgemm(a, b, d)
    found: dict[str, Any] = {}
    if check:
        exact, magnitude = a.float() @ b.float(), a.float().abs() @ b.float().abs()
        found["error"] = float((d.float() - exact).abs().max())
        host = [x.float().cpu().numpy() for x in (d, exact, magnitude)]
        found["error_share"] = reference.worst(host[0], host[1], host[2], product.k, product.out)
    found["us"] = _time(torch, lambda: hgemm(a, b, d), repeat)
    found["cublas_us"] = _time(torch, lambda: torch.matmul(a, b), repeat)
    return found


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


def _with_numpy(product: Product, *, check: bool, repeat: int) -> dict[str, Any]:
    from ptxkit import device_array, driver
    from ptxkit.arrays import view

    from . import hgemm

    m, n, k = product.m, product.n, product.k
    rounded = _random(product)
    held, views = [], []
    for (bits, _), letter in zip(rounded, product.layout, strict=True):
        held.append(device_array(bits if letter == "n" else bits.T, product.dtype))
        seen = view(held[-1])
        views.append(seen if letter == "n" else seen._replace(shape=seen.shape[::-1], strides=seen.strides[::-1]))
    d = device_array(np.zeros((m, n), np.uint32 if product.out == "f32" else np.uint16), product.out)
    hgemm(views[0], views[1], d)
    driver.synchronize()
    found: dict[str, Any] = {}
    if check:
        exact, magnitude = reference.product(rounded[0][1], rounded[1][1])
        actual = _widened(d.numpy(), product.out)
        found["error"] = float(np.abs(actual - exact).max())
        found["error_share"] = reference.worst(actual, exact, magnitude, k, product.out)
    begin = time.perf_counter()
    for _ in range(repeat):
        hgemm(views[0], views[1], d)
    driver.synchronize()
    found["us"] = 1e6 * (time.perf_counter() - begin) / repeat
    return found


def _random(product: Product) -> list[tuple[Any, Any]]:
    """(bits, value) of normally distributed A [M, K] and B [K, N], the bits with the strides of the layout."""
    generator = np.random.default_rng()
    found = []
    for shape, letter in zip(((product.m, product.k), (product.k, product.n)), product.layout, strict=True):
        bits, value = _rounded(generator.standard_normal(shape, dtype=np.float32), product.dtype)
        found.append((bits if letter == "n" else np.ascontiguousarray(bits.T).T, value))
    return found


def _rounded(array: Any, dtype: str) -> tuple[Any, Any]:
    """(bits, value) of float32 rounded to f16 or bf16 (to nearest even)."""
    if dtype == "f16":
        half = array.astype(np.float16)
        return half, half.astype(np.float32)
    bits = array.view(np.uint32)
    bf16 = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return bf16, (bf16.astype(np.uint32) << 16).view(np.float32)


def _widened(array: Any, dtype: str) -> Any:
    if dtype == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)
