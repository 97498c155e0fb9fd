"""The instruction table: one chapter per group of the manual, each a tuple of rows."""

from __future__ import annotations

from ..schema import Form
from . import wgmma

FORMS: tuple[Form, ...] = (
    *wgmma.FORMS,
)
