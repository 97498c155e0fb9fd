"""Layer 3: the roles of a CTA's warpgroups. Warpgroup 0 is the producer warpgroup; the others are mma warpgroups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Reg, if_, laneid, role
from ptxkit.flow import else_
from ptxkit.idioms import cluster_start
from ptxkit.ptx import bar, griddepcontrol, mov, setmaxnreg
from ptxkit.types import u32

from ..config.parts import Overlap, Pingpong, Schedule, shares_columns
from .atoms import ROWS, WARPGROUP
from .mainloop import REGISTERS


def start(cluster: bool, overlap: Overlap = "start") -> None:
    """In all threads: wait until the mbarriers of every CTA of the cluster are initialised and the previous kernel's results are visible.
    Then allow the next kernel to launch, if it may overlap all of this one (`overlap` "start")."""
    if cluster:
        cluster_start()
    else:
        bar.sync(0)
    griddepcontrol.wait()
    if overlap == "start":
        griddepcontrol.launch_dependents()


def loaded(overlap: Overlap) -> None:
    """In the threads that copy operands, after their last copy: allow the next kernel to launch, if it may overlap what follows the loads.
    The first thread of a CTA counts. A kernel that waits for the end is allowed to by nobody."""
    if overlap == "loads":
        griddepcontrol.launch_dependents()


@contextmanager
def producer_warpgroup(thread: Reg[u32], mma_warpgroups: int, *, keep: bool = False) -> Iterator[None]:
    """The threads of warpgroup 0. They give up registers, unless all threads `keep` those that they have at entry. `mma_threads` must
    follow."""
    with if_(thread < WARPGROUP):
        if mma_warpgroups in REGISTERS and not keep:
            setmaxnreg.dec.sync.aligned.u32(REGISTERS[mma_warpgroups][0])
        yield


@dataclass(frozen=True, slots=True)
class MmaThread:
    """A thread of an mma warpgroup. `thread` and `warp` are indices in the warpgroup. `row` in an m64 block and `column` in a block of 8
    are the place of its first accumulator.

    The warpgroup has `m64_blocks` blocks of the tile, from block `first` on, and its columns from `first_column` on.
    """

    warpgroup: Reg[u32]
    thread: Reg[u32]
    lane: Reg[u32]
    warp: Reg[u32]
    row: Reg[u32]
    column: Reg[u32]
    m64_blocks: int
    first: Reg[u32] | int
    first_column: Reg[u32] | int = 0

    @property
    def shares_rows(self) -> bool:
        """Whether warpgroups share the rows of a tile. A warpgroup may then have no rows of a group's last tile."""
        return not isinstance(self.first, int)

    @property
    def first_row(self) -> Reg[u32] | int:
        """The warpgroup's first row in a tile."""
        return 0 if isinstance(self.first, int) else self.first * ROWS

    def tile_row(self, row: Reg[u32]) -> Reg[u32]:
        """The warpgroup's first row of the result, in a tile that begins at `row`."""
        return row if isinstance(self.first, int) else row + self.first * ROWS

    def tile_column(self, column: Reg[u32]) -> Reg[u32]:
        """The warpgroup's first column of the result, in a tile that begins at `column`."""
        return column if isinstance(self.first_column, int) else column + self.first_column


@contextmanager
def mma_threads(thread: Reg[u32], warpgroup: Reg[u32], mma_warpgroups: int, m64_blocks: int, schedule: Schedule, *,
                keep: bool = False, columns: int = 0) -> Iterator[MmaThread]:
    """The threads of the mma warpgroups. They take over registers, unless all threads `keep` their own. With `Pingpong` each warpgroup has
    a whole tile to itself. `columns`: how many columns of a tile each warpgroup has, if they share its columns."""
    with else_():
        role("consumer")
        if mma_warpgroups in REGISTERS and not keep:
            setmaxnreg.inc.sync.aligned.u32(REGISTERS[mma_warpgroups][1])
        index = warpgroup - 1
        thread = thread & (WARPGROUP - 1)
        lane, warp = mov.u32(laneid), thread >> 5
        row, column = warp * 16 + (lane >> 2), (lane & 3) * 2
        rows = not isinstance(schedule, Pingpong) and mma_warpgroups > 1 and not shares_columns(schedule)
        yield MmaThread(index, thread, lane, warp, row, column, m64_blocks, index * m64_blocks if rows else 0,
                        index * columns if shares_columns(schedule) else 0)


__all__ = ["MmaThread", "loaded", "mma_threads", "producer_warpgroup", "start"]
