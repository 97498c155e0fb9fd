"""The instruction table: one chapter per group of the manual, each a tuple of rows."""

from __future__ import annotations

from ..schema import Form
from . import barrier, bulk, cluster, compare, integer, logic, matrix, mbarrier, memory, move, tensormap, wgmma

FORMS: tuple[Form, ...] = (
    *integer.FORMS,
    *compare.FORMS,
    *logic.FORMS,
    *move.FORMS,
    *memory.FORMS,
    *bulk.FORMS,
    *tensormap.FORMS,
    *barrier.FORMS,
    *mbarrier.FORMS,
    *cluster.FORMS,
    *matrix.FORMS,
    *wgmma.FORMS,
)
