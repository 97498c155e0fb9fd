"""The card of a device: a known one, or one that its driver describes and `python -m ptxkit.gemm probe` has measured. What was measured is
kept in the cache directory."""

from __future__ import annotations

import logging
from pathlib import Path

from ptxkit.cards import Card, known, of_device, read_probe
from ptxkit.files import folder_of
from ptxkit.settings import settings
from ptxkit.tuning.names import file_name


def probe_path(device: str) -> Path | None:
    """Where the measurement of a card of this name is kept; None when the cache is off, or is not this user's own."""
    folder = folder_of(settings().cache_dir, "cards")
    return folder and folder / file_name(device)


def card(name: str, sms: int, memory_gbs: float = 0.0, clock_mhz: float = 0.0, l2_mib: float = 0.0) -> Card:
    """The card of a device of which the driver says this. Of one that is not known it is said once that it can be measured."""
    path = probe_path(name)
    probed = read_probe(path) if path is not None and known(name) is None else None
    found = of_device(name, sms, memory_gbs=memory_gbs, clock_mhz=clock_mhz, l2_mib=l2_mib, probed=probed)
    if known(name) is None and probed is None and " MIG " not in name:
        logging.getLogger("ptxkit").warning(
            "%s is no card that ptxkit knows: %d SMs, %.0f MHz and %.0f GB/s are its driver's, its tensor cores are taken for those of %s; "
            "`ptxkit gemm probe` measures them in about a second and keeps that", name, sms, found.clock_mhz, found.memory_gbs,
            "an H100" if found.tensor == 1 else "an H20")
    return found


__all__ = ["card", "probe_path"]
