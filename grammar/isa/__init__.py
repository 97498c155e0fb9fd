"""The instruction table: one module per chapter of the manual, each a tuple of rows."""

from __future__ import annotations

from ..schema import Form
from . import (
    atomic,
    barrier,
    bulk,
    cluster,
    compare,
    control,
    floating,
    half,
    integer,
    logic,
    matrix,
    mbarrier,
    memory,
    mma,
    move,
    multimem,
    tensormap,
    texture,
    video,
    warp,
    wgmma,
    wmma,
)

FORMS: tuple[Form, ...] = (
    *integer.FORMS,
    *floating.FORMS,
    *half.FORMS,
    *compare.FORMS,
    *logic.FORMS,
    *move.FORMS,
    *memory.FORMS,
    *atomic.FORMS,
    *multimem.FORMS,
    *bulk.FORMS,
    *tensormap.FORMS,
    *barrier.FORMS,
    *mbarrier.FORMS,
    *cluster.FORMS,
    *warp.FORMS,
    *matrix.FORMS,
    *mma.FORMS,
    *wmma.FORMS,
    *wgmma.FORMS,
    *control.FORMS,
    *texture.FORMS,
    *video.FORMS,
)
