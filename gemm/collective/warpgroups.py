"""Layer 3: the roles of a CTA's warpgroups. Warpgroup 0 is the producer's; the others multiply and store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ptxkit import Reg, if_, laneid
from ptxkit.flow import else_
from ptxkit.idioms import cluster_start
from ptxkit.ptx import bar, griddepcontrol, mov, setmaxnreg
from ptxkit.types import u32

from ..config.parts import Pingpong, Schedule
from .atoms import ROWS, WARPGROUP
from .mainloop import REGISTERS


def start(cluster: bool) -> None:
    """In all threads: go on when the barriers of every CTA of the cluster are there and the kernel before has written its results; then
    the kernel behind may begin."""
    if cluster:
        cluster_start()
    else:
        bar.sync(0)
    griddepcontrol.wait()
    griddepcontrol.launch_dependents()


@contextmanager
def producer_warpgroup(thread: Reg[u32], mma_warpgroups: int) -> Iterator[None]:
    """The threads of warpgroup 0, which give registers away. `mma_threads` must follow."""
    with if_(thread < WARPGROUP):
        if mma_warpgroups in REGISTERS:
            setmaxnreg.dec.sync.aligned.u32(REGISTERS[mma_warpgroups][0])
        yield


@dataclass(frozen=True, slots=True)
class MmaThread:
    """A thread of an mma warpgroup: the warpgroup's number, the thread's own in it, its lane and warp; and where its first accumulator
    lies, by row in an m64 block and by column in a block of 8.

    The warpgroup has `m64_blocks` blocks of the tile, from block `first` on.
    """

    warpgroup: Reg[u32]
    thread: Reg[u32]
    lane: Reg[u32]
    warp: Reg[u32]
    row: Reg[u32]
    column: Reg[u32]
    m64_blocks: int
    first: Reg[u32] | int

    @property
    def shares_rows(self) -> bool:
        """Whether the rows of a tile are shared out among warpgroups, of which one may have none of a group's last tile."""
        return not isinstance(self.first, int)

    @property
    def first_row(self) -> Reg[u32] | int:
        """The row of the tile at which the warpgroup begins."""
        return 0 if isinstance(self.first, int) else self.first * ROWS

    def tile_row(self, row: Reg[u32]) -> Reg[u32]:
        """The row of the result at which the warpgroup begins in a tile that begins at `row`."""
        return row if isinstance(self.first, int) else row + self.first * ROWS


@contextmanager
def mma_threads(thread: Reg[u32], warpgroup: Reg[u32], mma_warpgroups: int, m64_blocks: int, schedule: Schedule) -> Iterator[MmaThread]:
    """The threads of the other warpgroups, which take over registers. Warpgroups that take turns begin at row 0 of a tile of their own."""
    with else_():
        if mma_warpgroups in REGISTERS:
            setmaxnreg.inc.sync.aligned.u32(REGISTERS[mma_warpgroups][1])
        index = warpgroup - 1
        thread = thread & (WARPGROUP - 1)
        lane, warp = mov.u32(laneid), thread >> 5
        row, column = warp * 16 + (lane >> 2), (lane & 3) * 2
        shares = not isinstance(schedule, Pingpong) and mma_warpgroups > 1
        yield MmaThread(index, thread, lane, warp, row, column, m64_blocks, index * m64_blocks if shares else 0)


__all__ = ["MmaThread", "mma_threads", "producer_warpgroup", "start"]
