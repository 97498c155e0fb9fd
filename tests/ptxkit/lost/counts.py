"""A class of another module than the kernels that bind its attributes."""

from __future__ import annotations

from typing import Any


class Counts:
    total: Any = None
