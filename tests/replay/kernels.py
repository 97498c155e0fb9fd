"""Kernels that fail: in every schedule, or only in some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ptxkit.proof.given import given
from ptxkit.replay import Trial
from tests.sim.kernels import OUT, kernel


def trial(source: Any, grid: Any, *more: Any, args: Sequence[Any] = (), entry: str | None = None, block: Any = None, cluster: Any = None,
          dynamic_smem: int | None = None, max_steps: int | None = None) -> Trial:
    shape = {"entry": entry, "block": block, "cluster": cluster, "dynamic_smem": dynamic_smem}
    return Trial.of(given(source, grid, (*args, *more), shape, {}), max_steps)


RACE = kernel(OUT + """st.shared.u32 [data], %r0;
ld.shared.u32 %r3, [data];
st.global.u32 [%rd1], %r3;""", before=".shared .align 4 .b32 data;\n")
"""All threads write their number into one word, read it, and store what they read."""

NEIGHBOUR = kernel(OUT + """mov.u64 %rd2, data;
cvt.u32.u64 %r4, %rd2;
add.u32 %r5, %r4, %r63;
st.shared.u32 [%r5], %r0;
xor.b32 %r6, %r63, 128;
add.u32 %r6, %r4, %r6;
bar.warp.sync -1;
ld.shared.u32 %r7, [%r6];
st.global.u32 [%rd1], %r7;""", before=".shared .align 4 .b8 data[256];\n")
"""Two warps swap their numbers through shared memory with no barrier of the CTA."""

LATE = kernel("""ld.param.u64 %rd0, [out];
mov.u32 %r0, %ctaid.x;
setp.eq.u32 %p0, %r0, 1;
@%p0 bra READER;
mov.u32 %r1, 7;
st.relaxed.gpu.global.u32 [%rd0], %r1;
ret;
READER:
ld.relaxed.gpu.global.u32 %r2, [%rd0];
st.global.u32 [%rd0+4], %r2;""")
"""CTA 1 reads a word that CTA 0 writes: what it stores depends on who comes first."""

BARRIERS = ".shared .align 8 .b64 one;\n.shared .align 8 .b64 two;\n"
INIT = """mov.u32 %r0, %tid.x;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [one], 1;
@%p0 mbarrier.init.shared.b64 [two], 1;
bar.sync 0;
"""


def waits(name: str, barrier: str, parity: int = 0) -> str:
    return f"{name}:\nmbarrier.try_wait.parity.shared.b64 %p1, [{barrier}], {parity};\n@!%p1 bra {name};\n"


CROSSED = kernel(INIT + """setp.lt.u32 %p2, %r0, 32;
and.b32 %r1, %r0, 31;
setp.eq.u32 %p3, %r1, 0;
@%p2 bra FIRST;
""" + waits("W0", "one") + "@%p3 mbarrier.arrive.shared.b64 _, [two];\nret;\nFIRST:\n" + waits("W1", "two")
    + "@%p3 mbarrier.arrive.shared.b64 _, [one];", "", before=BARRIERS)
"""Each of two warps waits for what the other does after its own wait: a deadlock in every schedule."""

OVERTAKEN = kernel("""ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [one], 1;
bar.sync 0;
setp.lt.u32 %p2, %r0, 32;
@!%p2 bra WAITER;
@%p0 mbarrier.arrive.shared.b64 _, [one];
@%p0 mbarrier.arrive.shared.b64 _, [one];
ret;
WAITER:
""" + waits("W0", "one"), before=BARRIERS)
"""One warp completes two phases of a barrier; the other waits for parity 0 and, if it is late, for ever."""
