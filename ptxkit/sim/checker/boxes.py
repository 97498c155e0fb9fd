"""What tensor copies do beyond the boxes that their author means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..spaces import GLOBAL
from .base import Base

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..program import Op
    from ..tensormap import Map


class BoxRules(Base):
    """Tensor stores write whole chunks of 16 bytes."""

    def stored_beyond(self, f: Fragment, op: Op, name: str, map: Map, columns: tuple[int, int]) -> None:
        first, last = columns
        which = f"columns {first} to {last}" if last > first else f"column {first}"
        begin = map.address - GLOBAL
        end = begin + (last + 1) * map.size + sum((n - 1) * s for n, s in zip(map.dims[1:], map.strides, strict=True))
        behind = "; the last of them lie behind the end of the buffer" if f.machine.memory.allocation(begin, end) is None else ""
        self.report("tensor-padding", op, f"`{op.opcode}` of {f.warp!r} through {name} also writes {which}, with what the box has there in "
                    f"shared memory: the array's inner extent is {first} elements of {map.size} bytes, and such a copy moves whole chunks "
                    f"of 16 bytes{behind}")
