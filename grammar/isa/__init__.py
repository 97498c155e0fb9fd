"""The instruction table: one chapter per group of the manual, each a tuple of rows."""

from __future__ import annotations

from ..schema import Form
from . import barrier, bulk, cluster, matrix, mbarrier, tensormap, wgmma

FORMS: tuple[Form, ...] = (
    *barrier.FORMS,
    *bulk.FORMS,
    *tensormap.FORMS,
    *mbarrier.FORMS,
    *cluster.FORMS,
    *matrix.FORMS,
    *wgmma.FORMS,
)
