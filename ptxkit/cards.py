"""Cards: what is known of each, as one value. Kernels, heuristics and the simulator take a card as an argument; no number of one chip
stands anywhere else.

To add a card, add a value to `CARDS` and, once configurations have been tuned on it, a table in `gemm/cards`. A card that is not known is
described by what its driver says (`of_device`), and by what `ptxkit gemm probe` has measured of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import PtxkitError
from .files import WRONG_DATA, read_kept


class CardError(PtxkitError, ValueError):
    """A card that is not known."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants of the time model of the GEMM kernels, fitted to measurements on `measured_on`.

    l2: bytes a clock that the L2 gives one SM; memory: those that the memory gives all. In clocks: prologue, until the first stage arrives;
    stage_1 and stage, a stage besides its products, with one mma warpgroup and with more; epilogue, for each 64 x 8 of a warpgroup's share;
    cluster, a cluster's start; reduce_*, a reduction of a split K at once, and sums_*, bytes a clock of its partial sums. promote, overlap,
    stagger, promote_3 and promote_192: how many times as long products take with promoted sums: plain, overlapped, staggered, plain in
    three warpgroups, and plain in tiles of 128 x 192. group_bytes and group_flops_*: what a group product reads and multiplies at most in
    a microsecond, for operands of 16 and 8 bits.
    """

    measured_on: str
    l2: float
    memory: float
    prologue: float
    stage_1: float
    stage: float
    epilogue: float
    cluster: float
    reduce_cluster: float
    reduce_workspace: float
    sums_cluster: float
    sums_workspace: float
    promote: float
    overlap: float
    stagger: float
    promote_3: float
    promote_192: float
    group_bytes: float
    group_flops_16: float
    group_flops_8: float


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU. `name` is the driver's. `clusters`: CTAs at work at a time by the size of their clusters, each on an SM of its own (those of
    a cluster are on SMs of one GPC). `memory_gbs`: GB/s of the memory, `memory_gib`: its size; `clock_mhz`: the highest clock of the SMs;
    `l2_mib`: MiB of L2; `shared_bytes`: shared memory that a CTA can have. `fit`: the constants of the GEMM kernels' time model. `tensor`:
    what an SM multiplies in a clock, over what one of an H100 does (4,096 operations of bf16).
    """

    name: str
    sms: int
    clusters: tuple[tuple[int, int], ...]
    memory_gbs: float
    clock_mhz: float
    l2_mib: float
    shared_bytes: int
    fit: Fit
    memory_gib: float = 80
    tensor: float = 1.0

    def resident(self, cluster: int) -> int:
        """CTAs at work at a time, in clusters of so many."""
        known = dict(self.clusters)
        return known[cluster] if cluster in known else known[max(known)]

    def with_sms(self, sms: int) -> Card:
        """A card with so many SMs, otherwise like this one: what a simulation of a few CTAs has."""
        clusters = tuple((size, sms * ctas // self.sms // size * size) for size, ctas in self.clusters)
        return replace(self, sms=sms, clusters=clusters)

    def partition(self, name: str, sms: int, share: float) -> Card:
        """A part of this card, with so many SMs and a share of its memory and L2: a MIG instance. Its clusters are within one GPC."""
        part = replace(self.with_sms(sms), clusters=tuple((size, sms // size * size) for size, _ in self.clusters))
        return part.like(name, memory_gbs=self.memory_gbs * share, l2_mib=self.l2_mib * share, memory_gib=self.memory_gib * share)

    def like(self, name: str, *, sms: int = 0, memory_gbs: float = 0.0, clock_mhz: float = 0.0, l2_mib: float = 0.0,
             memory_gib: float = 0.0, tensor: float = 0.0) -> Card:
        """Another card: what is not given is as here, and the constants of the time model follow from those of this card. Of them those
        change that are bytes of the memory, operations, or times that do not depend on the clock."""
        base = self.with_sms(sms) if sms and sms != self.sms else self
        made = replace(base, name=name, memory_gbs=memory_gbs or self.memory_gbs, clock_mhz=clock_mhz or self.clock_mhz,
                       l2_mib=l2_mib or self.l2_mib, memory_gib=memory_gib or self.memory_gib, tensor=tensor or self.tensor)
        memory, clock = made.memory_gbs / self.memory_gbs, made.clock_mhz / self.clock_mhz
        operations = made.sms * made.tensor / (self.sms * self.tensor) * clock
        fit = self.fit
        return replace(made, fit=replace(fit, memory=fit.memory * memory / clock, prologue=fit.prologue * clock,
                                         group_bytes=fit.group_bytes * memory, group_flops_16=fit.group_flops_16 * operations,
                                         group_flops_8=fit.group_flops_8 * operations))


_H200_FIT = Fit("NVIDIA H200", l2=100.0, memory=3280.0, prologue=5300.0, stage_1=92.0, stage=44.0, epilogue=132.0, cluster=13.0,
                reduce_cluster=1190.0, reduce_workspace=3210.0, sums_cluster=6.6, sums_workspace=7.2, promote=1.45, overlap=1.15,
                stagger=1.14, promote_3=1.125, promote_192=1.125, group_bytes=4.6e6, group_flops_16=0.93e9, group_flops_8=1.8e9)

H200 = Card("NVIDIA H200", 132, ((1, 132), (2, 132), (3, 117), (4, 120), (6, 102), (8, 120)), memory_gbs=4800, clock_mhz=1980, l2_mib=50,
            shared_bytes=232_448, fit=_H200_FIT, memory_gib=141)
"""Clusters and fit were measured on this card (docs/experiments.md): some 900 launches of 43 shapes."""

H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gbs=3350, memory_gib=80)
"""SMs, clusters and clocks are those of an H200. The constants in gemm/cards/fits were measured on it, those of `fit` were not."""

CARDS = {
    "h200": H200, "h100": H100,
    "h100-pcie": H100.like("NVIDIA H100 PCIe", sms=114, memory_gbs=2039, clock_mhz=1755),
    "h100-nvl": H100.like("NVIDIA H100 NVL", memory_gbs=3938, clock_mhz=1785, memory_gib=94),
    "h200-nvl": H200.like("NVIDIA H200 NVL", clock_mhz=1785),
    "gh200": H100.like("NVIDIA GH200 480GB", memory_gbs=4023, memory_gib=96),
    "gh200-144g": H200.like("NVIDIA GH200 144G HBM3e", memory_gbs=4917, memory_gib=144),
    "h800": H100.like("NVIDIA H800"),
    "h800-pcie": H100.like("NVIDIA H800 PCIe", sms=114, memory_gbs=2039, clock_mhz=1755),
    "h20": H100.like("NVIDIA H20", sms=78, memory_gbs=4023, l2_mib=60, memory_gib=96, tensor=0.25),
    "h20-3e": H200.like("NVIDIA H20-3e", sms=78, l2_mib=60, tensor=0.25),
}
"""The known cards, by the word that `--card` takes. The first two were measured. The others have published figures: NVIDIA's data sheets of
the H100, H200 and GH200 and its white paper on the architecture; of the H800 and H20, which have no public sheet, what resellers and
driver databases say. The H20 does 148e12 operations of bf16 a second with 78 SMs at 1,980 MHz: a quarter of an H100's for each SM. What a
device's driver says of SMs, clock and memory goes first (`of_device`)."""

FARTHEST = 0.03
"""By how much a driver's clock and memory may differ from a known card's before they count: sheets round them."""
_MIG = re.compile(r"^(?P<card>.*) MIG \d+g\.(?P<gb>\d+)gb")
_EIGHTHS = 8                    # memory slices of a card


def named(word: str) -> Card:
    """The card of this word, such as "h200". Raises CardError."""
    found = CARDS.get(word.lower())
    if found is None:
        raise CardError(f"there is no card {word!r}: {', '.join(CARDS)}")
    return found


def known(name: str) -> Card | None:
    """The card that calls itself so."""
    return next((card for card in CARDS.values() if card.name == name), None)


def of_device(name: str, sms: int, *, memory_gbs: float = 0.0, clock_mhz: float = 0.0, l2_mib: float = 0.0,
              probed: Probe | None = None) -> Card:
    """The card of a device that calls itself so, has so many SMs, and whose driver says the rest (0: nothing).

    A known one is as it is written down, unless its driver says something else. A MIG instance has its share of a known card. Any other is
    described by its driver; what that does not say is as on an H100, or as `probed`.
    """
    instance = _MIG.match(name)
    whole = known(instance["card"]) if instance else None
    if instance and whole is not None:
        slices = max(1, min(_EIGHTHS, round(_EIGHTHS * int(instance["gb"]) / whole.memory_gib)))
        return whole.partition(name, sms, slices / _EIGHTHS)
    card = known(name)
    if card is None:
        told = H100.like(name, sms=sms, memory_gbs=memory_gbs, clock_mhz=clock_mhz, l2_mib=l2_mib, tensor=_family(name).tensor)
        return told if probed is None else told.like(name, memory_gbs=probed.memory_gbs, tensor=probed.tensor(sms, told.clock_mhz))
    memory, clock = (0.0 if abs(said / written - 1) <= FARTHEST else said
                     for said, written in ((memory_gbs, card.memory_gbs), (clock_mhz, card.clock_mhz)))
    if sms == card.sms and not memory and not clock:
        return card
    return card.like(name, sms=sms, memory_gbs=memory, clock_mhz=clock)


def _family(name: str) -> Card:
    """The known card whose name begins this one, such as an H20 for "NVIDIA H20-5x"; else an H100."""
    begins = [card for card in CARDS.values() if re.match(rf"{re.escape(card.name)}\b", name)]
    return max(begins, key=lambda card: len(card.name), default=H100)


@dataclass(frozen=True, slots=True)
class Probe:
    """What was measured of a card: TFLOP/s of bf16 by wgmma alone at `mhz`, and GB/s of a streaming read."""

    tflops: float
    read_gbs: float
    mhz: float

    OF_PEAK = 0.97
    """What a streaming read gets of the memory's bandwidth: 4,660 of 4,800 GB/s, measured on an H200."""

    @property
    def memory_gbs(self) -> float:
        return self.read_gbs / self.OF_PEAK

    def tensor(self, sms: int, clock_mhz: float) -> float:
        """The share of an H100's operations for each SM and clock, in steps of which cards are made: 1, a half, a quarter, an eighth."""
        share = self.tflops * 1e6 / (sms * (self.mhz or clock_mhz) * 4096)
        return min((1.0, 0.5, 0.25, 0.125), key=lambda step: abs(step / share - 1))


def read_probe(path: Path) -> Probe | None:
    """The measurement kept in a file, if there is one."""
    try:
        kept = read_kept(path)
        return Probe(float(kept["tflops"]), float(kept["read_gbs"]), float(kept["mhz"]))
    except WRONG_DATA:
        return None


__all__ = ["CARDS", "H100", "H200", "Card", "CardError", "Fit", "Probe", "known", "named", "of_device", "read_probe"]
