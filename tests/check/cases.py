"""All planted mistakes."""

from __future__ import annotations

from . import barriers, memory

CASES = [*barriers.STARTUP, *barriers.ARRIVALS, *memory.TRANSACTIONS, *memory.ORDER, *memory.READS, *memory.RACES, *memory.PROXIES,
         *memory.TENSORMAPS]
