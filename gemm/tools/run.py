"""One product from the command line: on the GPU with a check and a time, or on the CPU device with its checker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxkit.cards import H200, Card
from ptxkit.errors import LaunchError
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..heuristic.dense import heuristic
from ..launch.dense import check_config
from ..launch.grid import Grid, kernel_of
from . import reference
from .bench.operands import TORCH_NAMES
from .problems import asked

if TYPE_CHECKING:
    from ptxkit.sim import Report


@dataclass(frozen=True, slots=True)
class Product:
    """D[m, n] = A[m, k] B[k, n], or `batch` of them. `layout` is BLAS's: A then B, n row-major and t column-major, so that "nt" has K
    contiguous in both. `b` None is the type of A; `out` None is it too, or bf16 for 8-bit types."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    out: str = ""
    layout: str = "nt"
    batch: int | None = None
    b: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", self.out or ("bf16" if TYPES[self.dtype].bits == 8 else self.dtype))
        object.__setattr__(self, "b", self.b or self.dtype)

    @property
    def multiplications(self) -> int:
        return self.m * self.n * self.k * (self.batch or 1)

    @property
    def outer(self) -> tuple[int, ...]:
        return () if self.batch is None else (self.batch,)

    def config(self, card: Card = H200, changes: Mapping[str, str] | None = None) -> DenseConfig:
        """The configuration that this card gives it, with the fields at these paths changed. Raises one sentence for changes with which no
        kernel can do this product."""
        problem = asked(self.m, self.n, self.k, self.dtype, self.b, self.out, self.layout, self.batch)
        found = heuristic(problem, card)
        if changes:
            found = found.with_(changes)
            check_config(found, problem)
            Grid.of(problem, found, 1)
        return found

    def __str__(self) -> str:
        batch = "" if self.batch is None else f"{self.batch} x "
        types = self.dtype if self.b == self.dtype else f"{self.dtype} x {self.b}"
        return f"gemm {batch}{self.m} x {self.n} x {self.k} {types} {self.layout} -> {self.out}"


def resources(product: Product, config: DenseConfig) -> tuple[list[str], dict[str, object]]:
    """What ptxas makes of the kernel that this product runs, as lines and as a table; only its plan where there is no ptxas."""
    from ptxkit.errors import NoToolError
    from ptxkit.inspect import report
    from ptxkit.runtime.toolchain import disassemble

    kernel = kernel_of(config)
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


def simulated(product: Product, config: DenseConfig | None = None, *, card: Card = H200, schedule: str = "fifo", seed: int = 0,
              check: bool = True) -> dict[str, Any]:
    """Run it on the CPU device as a card would, check the numbers against float64 and the protocol by the simulator's rules."""
    from ..launch.simulate import simulate

    config = config or product.config(card)
    lines, table = resources(product, config)
    (a, a_value), (b, b_value) = _random(product)
    d = np.full((*product.outer, product.m, product.n), -1, f"i{TYPES[product.out].bits // 8}").view(_HELD[product.out])
    begin = time.perf_counter()
    report = simulate(_typed(a, product.dtype), _typed(b, product.b), _typed(d, product.out), dtype=product.dtype, out_dtype=product.out,
                      config=config, card=card, schedule=schedule, seed=seed, check=check)
    seconds = time.perf_counter() - begin
    error, share = _compared(product, _widened(d, product.out), a_value, b_value)
    wrong = not share <= 1
    lines.append(f"executed on the CPU device, not a GPU, in {seconds:.2f} s: {_verdict(error, share, wrong)}")
    lines.append(f"verdict: {report}")
    return {**asdict(product), "executed": True, "device": "sim", "wrong": int(wrong or faulty(report)),
            "seconds": seconds, "error_share": share, "verdict": report.verdict, "findings": [str(f) for f in report.findings],
            "resources": table, "lines": lines}


def faulty(report: Report) -> bool:
    """Whether the checker found something, but for what depends on when other CTAs come, as tickets do, and has no certificate for that."""
    return report.verdict == "error" or (report.checked and report.verdict != "clean"
                                         and not (report.verdict == "incomplete" and report.findings == report.reasons))


def _compared(product: Product, actual: Any, a: Any, b: Any) -> tuple[float, float]:
    """The largest error, also as a share of what is allowed."""
    exact, magnitude = reference.product(a, b)
    return (float(np.abs(actual - exact).max()),
            reference.worst(actual, exact, magnitude, product.k, product.out, product.dtype))


def _verdict(error: float, share: float, wrong: bool) -> str:
    return f"largest error {error:.3g}, {share:.2f} of what accumulation and rounding allow: {'WRONG' if wrong else 'right'}"


def on_gpu(product: Product, config: DenseConfig | None = None, *, check: bool, repeat: int) -> dict[str, Any]:
    """Run it on the current device, and cuBLAS too when torch can be imported. Without a configuration it has the one of `gemm.gemm`."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        found = _with_numpy(product, config, check=check, repeat=repeat)
    else:
        found = _with_torch(torch, product, config, check=check, repeat=repeat)
    work = 2e-6 * product.m * product.n * product.k * (product.batch or 1)
    us, share, cublas = found["us"], found.get("error_share"), found.get("cublas_us")
    lines = [f"{product}: {us:.2f} us, {work / us:.1f} TFLOP/s"]
    wrong = share is not None and not share <= 1
    if share is not None:
        lines.append(_verdict(found["error"], share, wrong))
    if cublas is not None:
        lines.append(f"cuBLAS {cublas:.2f} us, {work / cublas:.1f} TFLOP/s: ptxkit runs at {cublas / us:.3f} of its speed")
    return {**asdict(product), "executed": True, "wrong": int(wrong), "tflops": work / us, **found, "lines": lines}


def operands(torch: Any, product: Product) -> tuple[Any, Any]:
    """Normally distributed A [M, K] and B [K, N], or batches of them, with the strides of the layout; f32 with the 10 bits of fraction
    that tf32 has, so that nothing is lost before the product."""
    found = []
    shapes = (product.m, product.k), (product.k, product.n)
    for (rows, columns), word, letter in zip(shapes, (product.dtype, product.b), product.layout, strict=True):
        shape = (rows, columns) if letter == "n" else (columns, rows)
        values = torch.randn((*product.outer, *shape), device="cuda").half().to(getattr(torch, TORCH_NAMES[word]))
        found.append(values if letter == "n" else values.transpose(-1, -2))
    return found[0], found[1]


def _with_torch(torch: Any, product: Product, config: DenseConfig | None, *, check: bool, repeat: int) -> dict[str, Any]:
    from .. import gemm

    a, b = operands(torch, product)
    d = torch.full((*product.outer, product.m, product.n), -1, device="cuda", dtype=getattr(torch, f"int{TYPES[product.out].bits}"))
    d = d.view(getattr(torch, TORCH_NAMES[product.out]))
    gemm(a, b, d, config=config)
    found: dict[str, Any] = {}
    if check:
        wide = a.float().double(), b.float().double()
        exact, magnitude = wide[0] @ wide[1], wide[0].abs() @ wide[1].abs()
        found["error"] = float((d.float() - exact).abs().max())
        host = [x.double().cpu().numpy() for x in (d.float(), exact, magnitude)]
        found["error_share"] = reference.worst(host[0], host[1], host[2], product.k, product.out, product.dtype)
    found["us"] = _time(torch, lambda: gemm(a, b, d, config=config), repeat)
    if TYPES[product.dtype].bits > 8:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        found["cublas_us"] = _time(torch, lambda: torch.matmul(a, b), repeat)
        torch.backends.cuda.matmul.allow_tf32 = before
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


def _with_numpy(product: Product, config: DenseConfig | None, *, check: bool, repeat: int) -> dict[str, Any]:
    from ptxkit import device_array
    from ptxkit.runtime import driver
    from ptxkit.runtime.arrays import view

    from .. import gemm

    rounded = _random(product)
    held, views = [], []
    for (bits, _), letter, word in zip(rounded, product.layout, (product.dtype, product.b), strict=True):
        held.append(device_array(bits if letter == "n" else np.swapaxes(bits, -1, -2), word))
        seen = view(held[-1])
        turned = [(*extents[:-2], extents[-1], extents[-2]) for extents in (seen.shape, seen.strides)]
        views.append(seen if letter == "n" else seen._replace(shape=turned[0], strides=turned[1]))
    d = device_array(np.zeros((*product.outer, product.m, product.n), f"u{TYPES[product.out].bits // 8}"), product.out)
    gemm(views[0], views[1], d, config=config)
    driver.synchronize()
    found: dict[str, Any] = {}
    if check:
        found["error"], found["error_share"] = _compared(product, _widened(d.numpy(), product.out), rounded[0][1], rounded[1][1])
    begin = time.perf_counter()
    for _ in range(repeat):
        gemm(views[0], views[1], d, config=config)
    driver.synchronize()
    found["us"] = 1e6 * (time.perf_counter() - begin) / repeat
    return found


_HELD: dict[str, Any] = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "e4m3": np.uint8, "e5m2": np.uint8}


def _random(product: Product) -> list[tuple[Any, Any]]:
    """(bits, value) of normally distributed A [M, K] and B [K, N], the bits with the strides of the layout."""
    generator = np.random.default_rng()
    found = []
    shapes = (product.m, product.k), (product.k, product.n)
    for shape, letter, word in zip(shapes, product.layout, (product.dtype, product.b), strict=True):
        bits, value = _rounded(generator.standard_normal((*product.outer, *shape), dtype=np.float32), word)
        if letter == "t":
            bits = np.swapaxes(np.ascontiguousarray(np.swapaxes(bits, -1, -2)), -1, -2)
        found.append((bits, value))
    return found


def _rounded(array: Any, dtype: str) -> tuple[Any, Any]:
    """(bits, value) of float32 rounded to nearest even; f32 to the 10 bits of fraction that tf32 has."""
    if dtype == "f16":
        half = array.astype(np.float16)
        return half, half.astype(np.float32)
    if dtype == "f32":
        cut = array.astype(np.float16).astype(np.float32)
        return cut, cut
    if dtype in reference.EIGHT_BITS:
        small = array.astype(_float8(dtype))
        return small.view(np.uint8), small.astype(np.float32)
    bits = array.view(np.uint32)
    bf16 = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return bf16, (bf16.astype(np.uint32) << 16).view(np.float32)


def _float8(dtype: str) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        raise LaunchError(f"NumPy needs the package ml_dtypes for {dtype}: `pip install 'ptxkit[dtypes]'`") from None
    return getattr(ml_dtypes, {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[dtype])


def _typed(bits: Any, dtype: str) -> Any:
    """The bits of an 8-bit float as ml_dtypes' type; others as they are."""
    return bits.view(_float8(dtype)) if dtype in reference.EIGHT_BITS and bits.dtype == np.uint8 else bits


def _widened(array: Any, dtype: str) -> Any:
    if dtype == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return _typed(array, dtype).astype(np.float64)


__all__ = ["Product", "faulty", "on_gpu", "operands", "resources", "simulated"]
