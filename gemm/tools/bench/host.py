"""What ptxkit and a call of the product cost on the host."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from ptxkit import Reg, kernel
from ptxkit.types import u32

from . import operands
from .baselines import Launch, our_launch
from .ceilings import stream
from .shapes import Problem


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


__all__ = ["calls", "imports"]
