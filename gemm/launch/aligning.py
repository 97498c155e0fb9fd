"""Copies of operands to lines that tensor copies can load, in the workspace: what is launched before a product with `Loads.align`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config.parts import ElementCopies
from ..kernels.align_lines import SIDE, WARPS
from ..problem.dense import Problem
from ..problem.lines import aligned, copied_batches, copied_bytes

PLACE = 256                 # bytes, of which copies begin at multiples in the workspace
CTAS = 8                    # of an SM


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of one operand ("a" or "b"), `offset` bytes after the workspace's start."""

    name: str
    offset: int
    bytes: int
    parameters: dict[str, Any]
    ctas: int                                   # at most, one for each part of the work
    sizes: dict[str, int]
    strides: dict[str, int]

    def arguments(self, operand: Any, to: Any) -> dict[str, Any]:
        """The kernel's arguments by name, for an operand and its copy at these addresses."""
        return {"source": {"pointer": operand, **self.strides}, "to": to, **self.sizes}


def copies(problem: Problem, names: str, used: int) -> tuple[Copy, ...]:
    """The copies of these operands, in a workspace of which `used` bytes are for something else."""
    found: list[Copy] = []
    size = problem.a.bits // 8
    for name in names:
        one = problem.of_a if name == "a" else problem.of_b
        inner, lines = one.lines.dims[:2]
        across = isinstance(one.copies, ElementCopies) and one.copies.across
        batches, bytes = copied_batches(one), copied_bytes(one, size)
        parts = -(-lines // SIDE) * -(-inner // SIDE) * batches if across else -(-lines * batches // WARPS)
        offset = -(-used // PLACE) * PLACE
        sizes = {"lines": lines, "inner": inner, "batches": batches, "pitch": aligned(one, size).lines.strides[0]}
        found.append(Copy(name, offset, bytes, {"size": size, "across": across}, parts, sizes,
                          dict(zip(("line", "inner", "batch"), one.strides, strict=True))))
        used = offset + bytes
    return tuple(found)


__all__ = ["CTAS", "Copy", "copies"]
