"""Buffers that copies fill: not read before the copy's mbarrier has been waited for, not filled again before they were released."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar.errors import Finding
from .analysis import Analysis
from .barriers import Barrier
from .flow import Flow, State, is_barrier, members
from .memory import Access
from .program import Site

RULES = {
    "read-before-wait": "shared memory that a bulk copy fills is read without a wait on the copy's mbarrier",
    "copy-overwrite": "a loop copies into the same buffer again without waiting for anything",
    "bulk-alignment": "a bulk copy whose shared address or size is not aligned",
}


def findings(analysis: Analysis) -> Iterator[Finding]:
    yield from _Waits(analysis).findings()
    for site in analysis.acting:
        if "mbarrier.complete_tx" in site.sync and site.mnemonic == "cp":
            yield from _overwritten(analysis, site)
        if site.mnemonic == "cp" and any(access.by == "async" for access in analysis.memory.of(site)):
            yield from _aligned(analysis, site)


class _Waits(Flow):
    """("unwaited", mbarrier): threads that have not waited on it since the entry; ("waited", mbarrier): threads that have."""

    narrow = frozenset(("unwaited", "waited"))

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.filled, self.spoiled = self._filled()
        self._said: set[tuple[str, int]] = set()

    def _filled(self) -> tuple[list[tuple[Access, Barrier]], list[Access]]:
        """The copies into shared memory with their mbarriers, and what else is stored to it."""
        copies: list[tuple[Access, Barrier]] = []
        stores: list[Access] = []
        for site in self.analysis.touching:
            use = self.analysis.barriers.by_site.get(site.index)
            for access in self.analysis.memory.of(site):
                if access.mode == "r" or access.operand in ("mbar", "addr"):
                    continue
                if access.by == "async" and use is not None and use.barrier is not None and self.analysis.barriers.understood:
                    copies.append((access, use.barrier))
                else:
                    stores.append(access)
        return copies, stores

    def _sources(self, access: Access) -> set[Barrier]:
        """The mbarriers of the copies that may fill what the access reads; none where threads may store it."""
        memory = self.analysis.memory
        if any(memory.may_meet(access, store) for store in self.spoiled):
            return set()
        found = [(copy, barrier) for copy, barrier in self.filled if copy.symbol == access.symbol and copy.low <= access.low]
        if self.analysis.traced is not None:  # the plan tells where each buffer ends
            found = [(copy, barrier) for copy, barrier in found if memory.may_meet(copy, access)]
        return {barrier for _, barrier in found}

    def start(self) -> State:
        return {("unwaited", barrier): self.everyone for _, barrier in self.filled}

    def relevant(self, site: Site) -> bool:
        return bool(self.filled) and (bool(self._reads(site)) or is_barrier(site) or "warp.barrier" in site.sync
                                      or "mbarrier.test" in site.sync)

    def _reads(self, site: Site) -> list[Access]:
        """A tensor map that is edited in shared memory is the threads' own."""
        return [] if site.mnemonic == "tensormap" else [access for access in self.analysis.memory.of(site) if access.mode == "r"]

    def step(self, site: Site, threads: int, state: State) -> None:
        use = self.analysis.barriers.by_site.get(site.index)
        if use is not None and "test" in use.kinds:
            self._waited(state, threads, [use.barrier] if use.barrier is not None else [fact[1] for fact in state])
        elif is_barrier(site):
            together = members(self.analysis, site, threads)
            self._waited(state, together, [fact[1] for fact in state if fact[0] == "waited" and state[fact] & together])
        elif "warp.barrier" in site.sync:
            for fact, holders in [(fact, state[fact] & threads) for fact in state if fact[0] == "waited"]:
                if holders:
                    self._waited(state, self.analysis.launch.warps(holders), [fact[1]])

    def _waited(self, state: State, threads: int, barriers: list[Barrier]) -> None:
        for barrier in barriers:
            state["waited", barrier] = state.get(("waited", barrier), 0) | threads
        self.drop(state, threads, lambda fact: fact[0] == "unwaited" and fact[1] in barriers)

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for access in self._reads(site):
            region, barriers = self.analysis.memory.region(access), self._sources(access)
            if region not in self._said and barriers and all(state.get(("unwaited", barrier), 0) & threads for barrier in barriers):
                self._said.add(region)
                never = not any(state.get(("waited", barrier), 0) & threads for barrier in barriers)
                names, path = " or ".join(sorted(map(str, barriers))), "" if never else "on some path "
                yield self.analysis.report(
                    "read-before-wait", site, f"`{site.name}` reads shared memory that a copy fills, and {path}no wait on the mbarrier "
                    f"{names} comes before", "wait (mbarrier.try_wait in a loop) for the copy's phase before this line",
                    "error" if never and self._certain(access, threads) else "review")

    def _certain(self, access: Access, threads: int) -> bool:
        """Whether a copy fills the very bytes, nothing else can, and nothing else can tell these threads that they are there."""
        between, site = self.analysis.between, access.site
        return (any(self.analysis.overlap.surely(copy, access, others=threads, ordered=False) and not between.exclusive(copy.site, site)
                    for copy, _ in self.filled)
                and not self.analysis.memory.unknown_stores and not between.before(site, threads))


def _overwritten(analysis: Analysis, site: Site) -> Iterator[Finding]:
    """A copy in a loop whose buffer comes round again, with neither a wait nor a barrier on the way back to it. Reductions add up."""
    target = next((access for access in analysis.memory.of(site) if access.operand == "dstMem"), None)
    if target is None or "reduce" in site.tokens or not analysis.wraps(target.address) or not analysis.in_loop(site):
        return
    stops = frozenset(other.block for other in analysis.sites
                      if "mbarrier.test" in other.sync or is_barrier(other) or other.control == "unknown")
    if site.block not in stops and site.block in analysis.reaches(site.block, stops):
        certain = target.address.constant and not analysis.between.asking(site.block) and analysis.every_round(site)
        yield analysis.report(
            "copy-overwrite", site, f"`{site.name}` fills the same buffer again in a later round of its loop, and neither a wait nor a "
            "barrier comes between: what was there may still be in use, or on its way",
            "wait on the mbarrier on which the readers of the buffer arrive before each copy into it", "error" if certain else "review")


def _aligned(analysis: Analysis, site: Site) -> Iterator[Finding]:
    """Shared addresses of tensor copies are multiples of 128 bytes, of other bulk copies of 16, and so is their size."""
    needed = 128 if "tensor" in site.tokens else 16
    operand = site.value("size")
    size = None if operand is None else analysis.values.linear(analysis.values.of(site, operand))
    if size is not None and size.symbol is None and size.beyond(16):
        bytes = f"{size.offset} bytes, which is not" if size.constant else f"{size.beyond(16)} bytes more than"
        yield analysis.report("bulk-alignment", site, f"`{site.name}` moves {bytes} a multiple of 16",
                              "a size that is a multiple of 16", "error")
    for access in analysis.memory.of(site):
        # A variable that is aligned to less than that may happen to lie well: only what cannot be is told.
        known = min(needed, analysis.aligned(access.symbol))
        if access.operand != "mbar" and access.by == "async" and access.address.beyond(known):
            yield analysis.report(
                "bulk-alignment", site, f"`{site.name}` uses byte {access.address.offset} of `{access.symbol}`, and a shared address there "
                f"is a multiple of {needed}", f"a buffer aligned to {needed} bytes, and offsets that are multiples of it", "error")
