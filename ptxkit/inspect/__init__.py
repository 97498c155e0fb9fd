"""Looking at kernels: what they use and what they are made of."""

from __future__ import annotations

from .resources import Report, count_instructions, report

__all__ = ["Report", "count_instructions", "report"]
