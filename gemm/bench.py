"""HGEMM beside cuBLAS, interleaved in one run, and what a call costs on the host. Timing decides no test; it is recorded."""

from __future__ import annotations

import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ptxkit import driver
from ptxkit.types import bf16

from .config import Config
from .hgemm import hgemm as kernel
from .run import operands

SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512), (4096, 4096, 1024))
BURST_MS = 8.0      # of work between two events: long enough for the events not to count, short enough to stay cool


def run(rounds: int) -> dict[str, Any]:
    """Host costs; with torch and a GPU also the products."""
    results: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "host": host()}
    if driver.available():
        import torch  # pyright: ignore[reportMissingImports]

        results["device"] = describe(torch)
        results["launch"] = launches(torch)
        results["products"] = [product(torch, *shape, dtype, layout, rounds) for shape in SHAPES for dtype in ("bf16", "f16")
                               for layout in (("nt", "nn", "tn", "tt") if shape == (4096, 4096, 4096) else ("nt",))]
    return results


def describe(torch: Any) -> dict[str, Any]:
    this = driver.device(driver.current_device())
    return {"name": this.name, "multiprocessors": this.multiprocessors, "driver": ".".join(map(str, driver.driver_version())),
            "torch": torch.__version__, "cublas": torch.version.cuda, **clocks()}


def clocks() -> dict[str, Any]:
    """SM clock, power and temperature now, as nvidia-smi reads them."""
    fields = "clocks.sm,power.draw,temperature.gpu"
    try:
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=20)
        mhz, watts, celsius = said.stdout.strip().splitlines()[0].split(",")
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return {}
    return {"sm_mhz": float(mhz), "watts": float(watts), "celsius": float(celsius)}


def product(torch: Any, m: int, n: int, k: int, dtype: str, layout: str, rounds: int) -> dict[str, Any]:
    """Median microseconds of ptxkit and cuBLAS, bursts of equal length in random order."""
    from . import hgemm

    a, b = operands(torch, m, n, k, dtype, layout)
    d = torch.empty((m, n), device="cuda", dtype=a.dtype)
    contestants: dict[str, Callable[[], Any]] = {"ptxkit": lambda: hgemm(a, b, d), "cublas": lambda: torch.matmul(a, b, out=d)}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    estimate = max(2e-6 * m * n * k / 600, 4.0)
    count = max(1, int(1e3 * BURST_MS / estimate))
    graphs = {name: _graph(torch, call, count) for name, call in contestants.items()}
    order = list(contestants)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            times[name].append(1e3 * start.elapsed_time(end) / count)
    found: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": dtype, "layout": layout, "launches": count}
    for name, seen in times.items():
        ordered = sorted(seen)
        found[name] = {"us": statistics.median(seen), "p10": ordered[len(seen) // 10], "p90": ordered[-1 - len(seen) // 10],
                       "tflops": 2e-6 * m * n * k / statistics.median(seen)}
    found["ratio"] = statistics.median(c / p for c, p in zip(times["cublas"], times["ptxkit"], strict=True))
    return {**found, **clocks()}


def _graph(torch: Any, call: Callable[[], Any], count: int) -> Any:
    """`count` launches captured in a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def host() -> dict[str, float]:
    """Milliseconds: import in a fresh process, and trace + emit of the kernel (the median of several configurations)."""
    code = "import time; t = time.perf_counter(); import ptxkit; print(1e3 * (time.perf_counter() - t))"
    imports = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(7)]
    traces = []
    for i in range(9):
        config = Config(bf16, bf16, STAGES=3, GROUP=3 + i)
        begin = time.perf_counter()
        kernel.ptx(**config.parameters)
        traces.append(1e3 * (time.perf_counter() - begin))
    return {"import_ms": statistics.median(imports), "trace_emit_ms": statistics.median(traces), "first_trace_emit_ms": traces[0]}


def launches(torch: Any) -> dict[str, float]:
    """Microseconds on the host of a warm `hgemm(a, b, out)`: the same tensors, and tensors it has not seen."""
    from . import hgemm

    def tensors() -> tuple[Any, Any, Any]:
        a, b = operands(torch, 128, 128, 64, "bf16", "nt")
        return a, b, torch.empty((128, 128), device="cuda", dtype=torch.bfloat16)

    sets = [tensors() for _ in range(400)]
    hgemm(*sets[0])
    torch.cuda.synchronize()
    fresh = []
    for some in sets[1:]:
        begin = time.perf_counter()
        hgemm(*some)
        fresh.append(1e6 * (time.perf_counter() - begin))
    torch.cuda.synchronize()
    warm = []
    for _ in range(400):
        begin = time.perf_counter()
        hgemm(*sets[0])
        warm.append(1e6 * (time.perf_counter() - begin))
    torch.cuda.synchronize()
    return {"same_tensors_us": statistics.median(warm), "new_pointers_us": statistics.median(fresh)}


def table(results: dict[str, Any]) -> str:
    """The results as text."""
    lines = [", ".join(f"{name} {value:.1f}" for name, value in results["host"].items())]
    if "launch" in results:
        lines.append(", ".join(f"{name} {value:.1f}" for name, value in results["launch"].items()))
        lines.append(f"{'M':>6} {'N':>6} {'K':>6} type layout    ptxkit    cuBLAS  TFLOP/s ratio")
        for p in results["products"]:
            lines.append(f"{p['m']:>6} {p['n']:>6} {p['k']:>6} {p['dtype']:>4} {p['layout']:>6} {p['ptxkit']['tflops']:>9.1f} "
                         f"{p['cublas']['tflops']:>9.1f}  {p['ratio']:>12.3f}")
    return "\n".join(lines)
