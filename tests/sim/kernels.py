"""Small PTX kernels for the tests of the engine."""

from __future__ import annotations

from typing import Any

from ptxkit import sim

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
DECLARE = """\t.reg .pred %p<16>;
\t.reg .b16 %h<16>;
\t.reg .b32 %r<64>;
\t.reg .f32 %f<16>;
\t.reg .b64 %rd<32>;
\t.reg .f64 %fd<8>;
"""


def kernel(body: str, parameters: str = ".param .u64 out", *, before: str = "", directives: str = "") -> str:
    """A module with one entry `k`: the body between its registers and `ret`."""
    lines = "\n".join(line if line.rstrip().endswith(":") else "\t" + line.strip() for line in body.strip().splitlines())
    return f"{HEAD}{before}\n.visible .entry k({parameters})\n{directives}\n{{\n{DECLARE}{lines}\n\tret;\n}}\n"


def run(body: str, *args: Any, parameters: str = ".param .u64 out", before: str = "", directives: str = "", grid: Any = 1, block: Any = 32,
        check: bool = False, **options: Any) -> sim.Report:
    text = kernel(body, parameters, before=before, directives=directives)
    return sim.run(text, grid=grid, block=block, args=args, check=check, **options)


OUT = """ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
shl.b32 %r63, %r0, 2;
cvt.u64.u32 %rd1, %r63;
add.u64 %rd1, %rd0, %rd1;
"""
"""%rd0 the output, %r0 the thread, %rd1 the address of its own word there."""
