"""What ptxkit and a call of the product cost on the host."""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Sequence
from typing import Any

from ptxkit import Reg, kernel
from ptxkit.cards import H200
from ptxkit.runtime.toolchain import has_ptxas
from ptxkit.types import u32

from ...heuristic import dense as choice
from ...heuristic.dense import heuristic
from ...heuristic.tuned import tuned
from ...kernels.dense import gemm as dense_kernel
from ...kernels.dense_split_k import gemm_split_k as split_k_kernel
from ...launch.dense import gemm, hgemm
from ...problem.dense import Problem as Asked
from ..problems import described
from . import operands, stub
from .baselines import Launch, our_launch
from .ceilings import stream
from .shapes import Problem, drawn


def imports(repeat: int = 7) -> dict[str, float]:
    """Milliseconds of `import ptxkit` in a fresh process, and of trace + emit of a small kernel (the streaming read)."""
    code = "import time; t = time.perf_counter(); import ptxkit; print(1e3 * (time.perf_counter() - t))"
    seen = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(repeat)]
    traces = []
    for stages in range(2, 11):
        begin = time.perf_counter()
        stream.ptx(STAGES=stages)
        traces.append(1e3 * (time.perf_counter() - begin))
    return {"import_ms": statistics.median(seen), "trace_emit_ms": statistics.median(traces), "first_trace_emit_ms": traces[0]}


def stubbed(repeat: int = 4000) -> dict[str, float]:
    """What calls cost the host but for the driver, in microseconds: with a driver that does nothing (`stub`), in arrays of this library.
    And in milliseconds: the choice for a shape of a new kind of operands and for a new shape, and a new configuration out of the cache of
    cubins (without an assembler nothing is said of that)."""
    with stub.installed():
        a, b, out = stub.array("bf16", 128, 64), stub.array("bf16", 64, 128), stub.array("bf16", 128, 128)
        x, w, y = stub.array("e4m3", 128, 128), stub.array("e4m3", 128, 128), stub.array("bf16", 128, 128)
        w.strides = 1, 128
        scale = stub.array("f32", 1)
        found = {"same_arrays_us": _each(lambda: gemm(a, b, out), repeat),
                 "hgemm_us": _each(lambda: hgemm(a, b, out), repeat),
                 "scales_us": _each(lambda: gemm(x, w, y, a_scale=scale, b_scale=scale), repeat)}
        sets = [(stub.array("bf16", 128, 64), stub.array("bf16", 64, 128), stub.array("bf16", 128, 128)) for _ in range(repeat // 8)]
        found["new_pointers_us"] = 1e6 * statistics.median(_seconds(functools.partial(gemm, *each)) for each in sets)
    return {**found, **_choices(), **_configurations()}


def _each(launch: Launch, repeat: int, turns: int = 7) -> float:
    """The least mean of several turns: what it takes when nothing else runs."""
    launch()
    return 1e6 * min(timeit.repeat(launch, number=repeat, repeat=turns)) / repeat


def _seconds(launch: Launch) -> float:
    begin = time.perf_counter()
    launch()
    return time.perf_counter() - begin


def _choices() -> dict[str, float]:
    """Of a kind of operands that is new, all else known; and of a shape that is new."""
    problems = [described(problem) for problem in drawn(1, 120)]
    for problem in problems[:10]:
        heuristic(problem, H200)
    kinds = []
    for problem in problems[:40]:
        choice._candidates.cache_clear()
        kinds.append(_seconds(functools.partial(_chosen, problem)))
    shapes = [_seconds(functools.partial(_chosen, problem)) for problem in problems]
    return {"choice_new_kind_ms": 1e3 * statistics.median(kinds), "choice_new_shape_ms": 1e3 * statistics.median(shapes)}


def _chosen(problem: Asked) -> Any:
    return tuned(problem, H200) or heuristic(problem, H200)


def _configurations() -> dict[str, float]:
    """The first call of a configuration whose cubin is in the cache: all that a process has not kept."""
    if not has_ptxas():
        return {}
    times = []
    for turn in range(2):                       # the first brings cubins into the cache
        with stub.installed():
            for m, n, k in ((512, 4096, 512), (304, 1024, 4096), (1536, 1536, 1536), (16, 4096, 4096)):
                given = stub.array("bf16", m, k), stub.array("bf16", k, n), stub.array("bf16", m, n)
                taken = _seconds(functools.partial(gemm, *given))
                times += [taken] * turn
        for traced in (dense_kernel, split_k_kernel):
            traced._traced.results.clear()
    return {"configuration_ms": 1e3 * statistics.median(times)}


def calls(torch: Any, repeat: int = 400) -> dict[str, float]:
    """Microseconds on the host of a warm call with `out` given: the same tensors, and tensors that it has not seen; and of an empty
    launch by itself (a kernel of one thread), which is what the driver takes of each."""
    problem = Problem(128, 128, 64)
    launches = [our_launch(problem, data) for data in operands.make(torch, problem, repeat)]
    launches[0]()
    torch.cuda.synchronize()
    fresh = _times(torch, launches[1:])
    return {"same_tensors_us": _times(torch, launches[:1] * repeat), "new_pointers_us": fresh,
            "launch_us": _times(torch, [_bare(torch)] * repeat)}


def _times(torch: Any, launches: Sequence[Launch]) -> float:
    seen = []
    for launch in launches:
        begin = time.perf_counter()
        launch()
        seen.append(1e6 * (time.perf_counter() - begin))
    torch.cuda.synchronize()
    return statistics.median(seen)


def _bare(torch: Any) -> Launch:
    """A prepared launch of a kernel that ends at once, by this package's own launcher."""
    from ptxkit.runtime.compiled import Compiled

    @kernel(block=32)
    def nothing(n: Reg[u32]) -> None:
        """Ends at once."""

    launcher = Compiled(nothing.trace()).launcher()
    stream_handle = torch.cuda.current_stream().cuda_stream
    return lambda: launcher(stream_handle, (1, 1, 1), (0,), ())


__all__ = ["calls", "imports", "stubbed"]
