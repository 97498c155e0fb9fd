"""Tile schedulers, device side: which output tile a CTA works on next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ptxkit import Reg, cluster_ctarank, clusterid, ctaid, for_range, nclusterid, nctaid
from ptxkit.ptx import min as min_
from ptxkit.ptx import mov
from ptxkit.types import u32


@contextmanager
def grouped(m_tiles: Reg[u32], n_tiles: Reg[u32], *, GROUP: int, CLUSTER: int) -> Iterator[tuple[Reg[u32], Reg[u32]]]:
    """Static persistent schedule: a loop over this CTA's (m, n) tiles.

    A unit is one column of `CLUSTER` tiles along M, one per CTA of the cluster. Units go down GROUP rows, then on to the next
    column of the group, so that the units in flight touch few rows of A and few columns of B and both stay in L2. The last group
    has the rows that are left. A cluster's second CTA may get a tile past the last row of D: its copies are out of bounds,
    which reads zeros and writes nothing.
    """
    if CLUSTER == 1:
        units, start, step = m_tiles, mov.u32(ctaid.x), mov.u32(nctaid.x)
    else:
        units, start, step = (m_tiles + (CLUSTER - 1)) >> (CLUSTER.bit_length() - 1), mov.u32(clusterid.x), mov.u32(nclusterid.x)
    rank = mov.u32(cluster_ctarank) if CLUSTER > 1 else None
    group_units = n_tiles * GROUP
    with for_range(units * n_tiles, start=start, step=step) as unit:
        group = unit // group_units
        first = group * GROUP
        within = unit - group * group_units
        rows = min_.u32(units - first, GROUP)
        n = within // rows
        row = first + (within - n * rows)
        yield (row if rank is None else row * CLUSTER + rank), n
