"""A step of attention's ladder for the harness: a kernel, its tile, and its idea."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptxkit import Kernel
from ptxkit.errors import PtxkitError


class ShapeError(PtxkitError, ValueError):
    """Attention that a step cannot compute: the steps need whole tiles."""


HEAD, KEYS = 128, 128
"""The head dim and the keys of a block on a card."""


@dataclass(frozen=True)
class Rung:
    """A kernel with the arguments (q, k, v, o, rows) and the compile-time parameters HEAD, BN and causal.

    q, k, v and o are bf16 [heads, rows, HEAD], contiguous, as many keys as queries. A CTA has BM queries of one head. It goes over the keys
    BN at a time. Its marks are spans of the phases.
    """

    step: int
    kernel: Kernel[...]
    BM: int
    idea: str

    @property
    def name(self) -> str:
        return self.kernel.name

    def problem(self, rows: int, BN: int) -> str | None:
        """The reason if this step cannot compute so many rows in blocks of BN keys, else None."""
        for what, unit in (("queries", self.BM), ("keys", BN)):
            if rows < 1 or rows % unit:
                below, above = rows // unit * unit, (rows // unit + 1) * unit
                return (f"step {self.step} ({self.name}) works on whole tiles: {rows} rows are not a multiple of its {unit} {what}, take "
                        f"{f'{below} or {above}' if below > 0 else above}")
        return None

    def require(self, rows: int, BN: int) -> None:
        """Raise ShapeError where `problem` finds a reason."""
        if sentence := self.problem(rows, BN):
            raise ShapeError(sentence)

    def grid(self, heads: int, rows: int) -> tuple[int, int]:
        """The grid in CTAs."""
        return rows // self.BM, heads

    def arguments(self, q: Any, k: Any, v: Any, o: Any) -> tuple[Any, ...]:
        """The kernel's arguments for arrays of [heads, rows, HEAD]."""
        return q, k, v, o, int(q.shape[1])
