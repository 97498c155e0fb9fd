"""The tile order of steps 7 to 11: groups of rows, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptxkit import Reg, cluster_ctarank, clusterid, ctaid, for_range, nclusterid, nctaid
from ptxkit.ptx import min as min_
from ptxkit.ptx import mov
from ptxkit.types import u32


@contextmanager
def grouped(rows: Reg[u32], columns: Reg[u32], *, GROUP: int, CLUSTER: int = 1) -> Iterator[tuple[Reg[u32], Reg[u32]]]:
    """`with grouped(rows, columns, GROUP=g) as (row, column):` loops over this CTA's tiles of `rows` x `columns` in a persistent grid.

    Tiles are dealt to the CTAs (or clusters, whose CTAs have vertically adjacent tiles) in turn. Their order goes through groups of GROUP
    rows, column by column. The tiles in flight thus touch few rows of A and few columns of B, which stay in L2.
    """
    first, step = (mov.u32(ctaid.x), mov.u32(nctaid.x)) if CLUSTER == 1 else (mov.u32(clusterid.x), mov.u32(nclusterid.x))
    units = rows // CLUSTER
    with for_range(units * columns, start=first, step=step) as unit:
        group = unit // (columns * GROUP)
        top = group * GROUP
        within = unit - top * columns
        height = min_.u32(units - top, GROUP)
        column = within // height
        row = top + (within - column * height)
        yield (row if CLUSTER == 1 else row * CLUSTER + cluster_ctarank), column


__all__ = ["grouped"]
