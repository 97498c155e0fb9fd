"""The families of protocol rules, in the order of the documentation."""

from __future__ import annotations

from . import arrivals, bulk, cluster, convergence, proxies, registers, startup, tensormaps, transactions, wgmma

FAMILIES = (startup, arrivals, transactions, proxies, tensormaps, bulk, wgmma, cluster, convergence, registers)
