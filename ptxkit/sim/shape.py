"""The shape of a launch, checked against what the kernel says of itself."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..dsl.rules import entry_registers
from ..grammar import tree
from ..smem import SHARED_LIMIT
from .asked import Dim
from .errors import SimulationError
from .limits import Limits
from .operand import Immediate
from .program import Program
from .spaces import RESERVED_SHARED

if TYPE_CHECKING:
    from ..dsl.traced import Traced


def whole(value: Any, what: str) -> int:
    """A number that counts something: an int, or what stands for one (a NumPy integer)."""
    try:
        return operator.index(value)
    except TypeError:
        raise SimulationError(f"{what} is an int, not {value!r}") from None


def _directive(function: tree.Function, name: str) -> tuple[int, int, int] | None:
    for directive in function.directives:
        if directive.name == name:
            given = [a for a in directive.arguments if isinstance(a, int)]
            return (*given, 1, 1)[:3]  # type: ignore[return-value]
    return None


def _dims(value: Dim, what: str) -> tuple[int, int, int]:
    try:
        dims = tuple(map(operator.index, value if isinstance(value, tuple | list) else (value,)))
    except TypeError:
        dims = ()
    if not 1 <= len(dims) <= 3 or min(dims) < 1:
        shown = "an array" if hasattr(value, "dtype") and hasattr(value, "ndim") else repr(value)
        raise SimulationError(f"{what} is one to three positive extents, not {shown}")
    return (*dims, 1, 1)[:3]  # type: ignore[return-value]


class Shape:
    """The launch, checked against what the kernel says of itself."""

    def __init__(self, program: Program, grid: Dim, block: Dim | None, cluster: Dim | None, dynamic_smem: int | None,
                 traced: Traced | None, limits: Limits) -> None:
        function = program.entry.function
        self.grid = _dims(grid, "grid")
        required, most = _directive(function, "reqntid"), _directive(function, "maxntid")
        if block is None:
            if required is None:
                raise SimulationError(f"`{function.name}` does not say its block (.reqntid): give block=, its threads a CTA")
            self.block = required
        else:
            self.block = _dims(block, "block")
            if required is not None and self.block != required:
                raise SimulationError(f"block {self.block} conflicts with .reqntid {required} of `{function.name}`")
        if any(extent > limit for extent, limit in zip(self.grid, (2**31 - 1, 65535, 65535), strict=True)):
            raise SimulationError(f"a grid of {self.grid}: at most 2,147,483,647 x 65,535 x 65,535 CTAs")
        ctas = self.grid[0] * self.grid[1] * self.grid[2]
        if ctas > limits.ctas:
            raise SimulationError(f"a grid of {ctas:,} CTAs: {limits.says('ctas')}")
        if self.block[2] > 64:
            raise SimulationError(f"a block of {self.block}: at most 64 threads deep")
        threads = self.block[0] * self.block[1] * self.block[2]
        if threads > 1024:
            raise SimulationError(f"a block of {threads} threads: at most 1024")
        if most is not None and threads > most[0] * most[1] * most[2]:
            raise SimulationError(f"block {self.block} is more than .maxntid {most} of `{function.name}`")
        clustered = _directive(function, "reqnctapercluster")
        self.explicit = clustered is not None or cluster is not None
        if cluster is None:
            self.cluster = clustered or (1, 1, 1)
        else:
            self.cluster = _dims(cluster, "cluster")
            if clustered is not None and self.cluster != clustered:
                raise SimulationError(f"cluster {self.cluster} conflicts with .reqnctapercluster {clustered} of `{function.name}`")
        if any(g % c for g, c in zip(self.grid, self.cluster, strict=True)):
            raise SimulationError(f"the grid {self.grid} is not divisible by the cluster {self.cluster}")
        if self.cluster[0] * self.cluster[1] * self.cluster[2] > 16:
            raise SimulationError(f"a cluster of {self.cluster}: at most 16 CTAs")
        planned = 0 if traced is None else traced.dynamic_smem
        self.dynamic_smem = planned if dynamic_smem is None else whole(dynamic_smem, "dynamic_smem")
        if self.dynamic_smem < 0:
            raise SimulationError(f"dynamic_smem {self.dynamic_smem}: at least 0 bytes")
        if self.dynamic_smem < planned:
            raise SimulationError(f"dynamic_smem {self.dynamic_smem} is less than the {planned} bytes of the kernel's plan")
        layout = program.layout
        total = layout.dynamic_start + self.dynamic_smem - RESERVED_SHARED
        if total > SHARED_LIMIT:
            raise SimulationError(f"{total:,} bytes of shared memory a CTA: at most {SHARED_LIMIT:,}")


def registers_at_entry(program: Program, shape: Shape) -> tuple[int, bool]:
    """(registers a thread at entry, whether setmaxnreg is honoured: ptxas ignores it without a register cap)."""
    function = program.entry.function
    counts = [o.value for op in program.ops if op.tokens[0] == "setmaxnreg" for o in op.operands if isinstance(o, Immediate)]
    capped = _directive(function, "maxnreg")
    if capped is not None:
        return capped[0], True
    bounded = _directive(function, "minnctapersm")
    sized = _directive(function, "reqntid") or _directive(function, "maxntid")
    threads = shape.block[0] * shape.block[1] * shape.block[2]
    if bounded is None or sized is None:
        return min(255, entry_registers(threads, max(counts, default=255))), False
    return min(255, entry_registers(threads * bounded[0], max(counts, default=255))), True
