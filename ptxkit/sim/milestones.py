"""How far an asynchronous operation has come."""

from __future__ import annotations

ISSUED, READ, DONE = 0, 1, 2
"""It is in flight; its sources have been read; its destination has been written."""
