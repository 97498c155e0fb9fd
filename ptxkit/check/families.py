"""The families of protocol rules, in the order of the documentation."""

from __future__ import annotations

from . import arrivals, bulk, cluster, convergence, order, proxies, races, reads, registers, startup, tensormaps, transactions, wgmma

FAMILIES = (startup, arrivals, transactions, order, reads, races, proxies, tensormaps, bulk, wgmma, cluster, convergence, registers)
