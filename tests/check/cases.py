"""All planted mistakes."""

from __future__ import annotations

from . import barriers, groups, memory, tensors

CASES = [*barriers.STARTUP, *barriers.ARRIVALS, *memory.TRANSACTIONS, *memory.ORDER, *memory.READS, *memory.RACES, *memory.PROXIES,
         *memory.TENSORMAPS, *memory.UNDEFINED, *groups.BULK_STORES, *groups.WGMMA, *groups.RELEASES, *groups.CLUSTERS,
         *groups.MULTICASTS, *groups.THREADS, *groups.REGISTERS, *groups.LAYOUTS, *groups.DIVISIONS, *tensors.TENSORS]
