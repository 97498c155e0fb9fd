"""The checker of a run with marks: what they write is no result of the program, so that it is neither compared nor followed.

Marks write through registers of their own. An instruction that is seen to write elsewhere through one is checked as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dsl.marks import AT, CURSOR
from ..operand import Address, Register
from ..values import indices
from .life import Checker

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..machine import Machine
    from ..memory import Allocation, Memory, Places
    from ..program import Op
    from ..slices import Slices


class MarkedChecker(Checker):
    """`outside` is the buffer of the marks."""

    def __init__(self, outside: Allocation) -> None:
        super().__init__()
        self.outside = outside
        self._marks: set[int] = set()

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        self._marks = {op.index for op in machine.program.ops if op.tokens[0] in ("st", "red") and _of_marks(op)}

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        if op.index in self._marks:
            at = [places] if isinstance(places, int) else places[indices(mask)].tolist()
            if memory.space == "global" and self.outside.start <= min(at) and max(at) + size <= self.outside.stop:
                return
            self._marks.discard(op.index)
        super().access(f, mask, op, mode, memory, places, size, strong, values)

    @property
    def slices(self) -> Slices:
        found = super().slices
        found.outside = frozenset(self._marks)
        return found


def _of_marks(op: Op) -> bool:
    """Whether an instruction writes through a register of the marks."""
    return any(isinstance(o, Address) and isinstance(o.base, Register) and op.routine.names[o.base.index] in (CURSOR, AT)
               for o in op.operands if o is not None)
