"""The plan of a kernel's shared memory: its allocations and their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import TraceError
from ..grammar import tree
from .allocation import Allocation, called
from .source import user_position

if TYPE_CHECKING:
    from ..smem import MBarriers, Shared, Tile

SHARED_LIMIT = 232_448
"""Bytes of shared memory that one CTA of sm_90 may use (227 KiB)."""
STATIC_LIMIT = 49_152
"""Bytes of shared memory that a CTA may declare statically. A larger plan is dynamic, and the launch asks for it."""


class SharedPlan:
    """The allocations of one kernel, in order. One symbol stands for all of them."""

    def __init__(self, symbol: str, limit: int = SHARED_LIMIT, dynamic: bool | None = None) -> None:
        self.symbol = symbol
        self.limit = limit
        self.allocations: list[Allocation] = []
        self.barriers: list[MBarriers] = []
        self.contents: list[tuple[Allocation, Tile[Any] | Shared[Any]]] = []
        """The tiles and arrays."""
        self._dynamic = dynamic

    @property
    def total(self) -> int:
        return max((a.offset + a.bytes for a in self.allocations), default=0)

    @property
    def align(self) -> int:
        return max((a.align for a in self.allocations), default=16)

    @property
    def dynamic(self) -> bool:
        """Whether the launch must ask for the memory (over 48 KiB, or the kernel says so)."""
        return self.total > STATIC_LIMIT if self._dynamic is None else self._dynamic

    def allocate(self, bytes: int, align: int, what: str, name: str | None, element: str = "") -> Allocation:
        offset = -(-self.total // align) * align
        allocation = Allocation(name or f"#{len(self.allocations)}", offset, bytes, align, what, element, user_position())
        self.allocations.append(allocation)
        if self.total > self.limit:
            raise TraceError(f"shared memory over the limit of {self.limit:,} bytes per CTA:\n{self.table()}")
        if self._dynamic is False and self.total > STATIC_LIMIT:
            raise TraceError(f"static shared memory over {STATIC_LIMIT:,} bytes; leave `smem=` out to make it dynamic:\n{self.table()}")
        return allocation

    def said(self, allocation: Allocation) -> str:
        """What a sentence calls an allocation."""
        return called(allocation, self.allocations)

    def table(self) -> str:
        """The plan as text: offset, bytes and purpose of each allocation."""
        rows = [f"{a.offset:>9,} {a.bytes:>9,}  {a.what}" + ("" if a.name.startswith("#") else f"  ({a.name})") for a in self.allocations]
        kind = "dynamic" if self.dynamic else "static"
        return "\n".join(["   offset     bytes  what", *rows, f"    total {self.total:>9,}  of {self.limit:,}, {kind}"])

    def _repr_html_(self) -> str:
        from ..html.layouts import plan

        return plan(self)

    def variable(self) -> tree.Variable | None:
        """The declaration of the plan's symbol."""
        if not self.allocations:
            return None
        if self.dynamic:
            return tree.Variable("shared", "b8", self.symbol, align=self.align, shape=(None,), linkage="extern")
        return tree.Variable("shared", "b8", self.symbol, align=self.align, shape=(self.total,))


__all__ = ["SHARED_LIMIT", "STATIC_LIMIT", "SharedPlan"]
