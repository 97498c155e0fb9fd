"""Cards: what is known of each, as one value. Kernels, heuristics and the simulator take a card as an argument; no number of one chip
stands anywhere else.

To add a card, add a value to `CARDS` and, once configurations have been tuned on it, a table in `gemm/cards`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .errors import PtxkitError


class CardError(PtxkitError, ValueError):
    """A card that is not known."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants of the time model of the GEMM kernels, fitted to measurements on `measured_on`.

    l2: bytes a clock that the L2 gives one SM; memory: those that the memory gives all. In clocks: prologue, until the first stage arrives;
    stage_1 and stage, a stage besides its products, with one mma warpgroup and with more; epilogue, for each 64 x 8 of a warpgroup's share;
    cluster, a cluster's start; reduce_*, a reduction of a split K at once, and sums_*, bytes a clock of its partial sums. promote, overlap,
    stagger, promote_3 and promote_192: how many times as long a stage takes with promoted sums: plain, overlapped, staggered, plain in
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
    a cluster are on SMs of one GPC). `memory_gbs`: GB/s of the memory; `clock_mhz`: the highest clock of the SMs; `l2_mib`: MiB of L2;
    `shared_bytes`: shared memory that a CTA can have. `fit`: the constants of the GEMM kernels' time model.
    """

    name: str
    sms: int
    clusters: tuple[tuple[int, int], ...]
    memory_gbs: float
    clock_mhz: float
    l2_mib: float
    shared_bytes: int
    fit: Fit

    def resident(self, cluster: int) -> int:
        """CTAs at work at a time, in clusters of so many."""
        known = dict(self.clusters)
        return known[cluster] if cluster in known else known[max(known)]

    def with_sms(self, sms: int) -> Card:
        """A card with so many SMs, otherwise like this one: what a partition has, or a simulation of a few CTAs."""
        return replace(self, sms=sms, clusters=tuple((size, sms * ctas // self.sms) for size, ctas in self.clusters))


_H200_FIT = Fit("NVIDIA H200", l2=100.0, memory=3280.0, prologue=5300.0, stage_1=92.0, stage=44.0, epilogue=132.0, cluster=13.0,
                reduce_cluster=1190.0, reduce_workspace=3210.0, sums_cluster=6.6, sums_workspace=7.2, promote=1.45, overlap=1.15,
                stagger=1.14, promote_3=1.125, promote_192=1.125, group_bytes=4.6e6, group_flops_16=0.93e9, group_flops_8=1.8e9)

H200 = Card("NVIDIA H200", 132, ((1, 132), (2, 132), (3, 117), (4, 120), (6, 102), (8, 120)), memory_gbs=4800, clock_mhz=1980, l2_mib=50,
            shared_bytes=232_448, fit=_H200_FIT)
"""Clusters and fit were measured on this card (docs/performance.md): some 900 launches of 43 shapes."""

H100 = replace(H200, name="NVIDIA H100 80GB HBM3", memory_gbs=3350)
"""SMs, clusters and clocks are those of an H200; its own fit is still to be measured."""

CARDS = {"h200": H200, "h100": H100}
"""The known cards, by the word that `--card` takes."""


def named(word: str) -> Card:
    """The card of this word, such as "h200". Raises CardError."""
    found = CARDS.get(word.lower())
    if found is None:
        raise CardError(f"there is no card {word!r}: {', '.join(CARDS)}")
    return found


def of_device(name: str, sms: int) -> Card:
    """The card of a device that calls itself so and has so many SMs. One that is not known is taken for an H200 with as many SMs."""
    known = next((card for card in CARDS.values() if card.name == name), replace(H200, name=name))
    return known if known.sms == sms else known.with_sms(sms)


__all__ = ["CARDS", "H100", "H200", "Card", "CardError", "Fit", "named", "of_device"]
