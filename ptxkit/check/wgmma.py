"""wgmma: fences before, groups, waits before the registers and the shared memory that it uses are touched."""

from __future__ import annotations

from collections.abc import Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from .analysis import Analysis
from .flow import Fact, Flow, State
from .names import names_in
from .program import Site
from .values import Value

RULES = {
    "wgmma-fence": "a wgmma whose registers are not ordered by wgmma.fence",
    "wgmma-wait": "a register of a wgmma in flight is used before wgmma.wait_group",
    "wgmma-commit": "a wgmma is in no group that a wait covers",
    "stage-release": "a stage of shared memory is released while a wgmma that reads it may be in flight",
}

MANY = 9


def findings(analysis: Analysis) -> Iterator[Finding]:
    if any("wgmma.issue" in site.sync for site in analysis.sites):
        yield from _Wgmma(analysis).findings()


class _Wgmma(Flow):
    """Facts:

    ("unfenced",): no wgmma.fence since the entry; ("fenced",): on some path there was one.
    ("dirty", register): written since the last fence.
    ("flight", register, mma, commits, waited): the register is that product's; `waited` after a wait that does not cover it.
    ("operand", register, mma, commits): A in registers, which the product may still read.
    ("landed", register): on some path it was waited for.
    ("reads", mma, commits): its shared-memory operands may still be read; it ends where the stage's index changes.
    """

    narrow = frozenset(("unfenced", "fenced", "dirty", "flight", "operand", "landed"))
    silent = True

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self.products = {site.index: site for site in analysis.sites if "wgmma.issue" in site.sync}
        self.watched = self._watched()
        self.stages = {index: self._stage(site) for index, site in self.products.items()}
        self._turning = {term.block for terms in self.stages.values() for term in terms if term.kind == "phi"}
        self._said: set[tuple[str, int]] = set()

    def start(self) -> State:
        return {("unfenced",): self.everyone}

    def relevant(self, site: Site) -> bool:
        return (site.mnemonic == "wgmma" or site.control == "exit" or site.index in self.analysis.barriers.by_site
                or not self.watched.isdisjoint(site.writes) or not self.watched.isdisjoint(site.reads))

    def _watched(self) -> frozenset[str]:
        """The registers of the products, and those that are copied to or from them."""
        found = {name for site in self.products.values() for name in (*self._d(site), *self._a(site))}
        copies = [(site.writes[0], site.reads[0]) for site in self.analysis.sites if _is_copy(site)]
        grown = True
        while grown:
            grown = False
            for to, source in copies:
                if (to in found) != (source in found):
                    found |= {to, source}
                    grown = True
        return frozenset(found)

    @staticmethod
    def _d(site: Site) -> list[str]:
        return list(names_in(site.value("d")))

    @staticmethod
    def _a(site: Site) -> list[str]:
        return list(names_in(site.value("a")))

    # ------------------------------------------------------------------------------------------- facts

    def step(self, site: Site, threads: int, state: State) -> None:
        sync = site.sync
        if site.index in self.products:
            self._issue(site, threads, state)
        elif "wgmma.fence" in sync:
            self.drop(state, threads, lambda fact: fact[0] in ("unfenced", "dirty"))
            state[("fenced",)] = state.get(("fenced",), 0) | threads
        elif "wgmma.commit" in sync:
            self._commit(state, threads)
        elif "wgmma.wait" in sync:
            self._wait(state, threads, self.analysis.constant(site, "n") or 0)
        elif _is_copy(site):
            self._copy(site.writes[0], site.reads[0], threads, state)
        else:
            written = [name for name in site.writes if name in self.watched]
            for name in written:
                self.drop(state, threads, lambda fact, name=name: fact[0] in ("flight", "operand", "landed") and fact[1] == name)  # type: ignore[misc]
                state["dirty", name] = state.get(("dirty", name), 0) | threads

    def _issue(self, site: Site, threads: int, state: State) -> None:
        own = dict.fromkeys(self._d(site))
        self.drop(state, threads, lambda fact: fact[0] in ("flight", "landed", "dirty") and fact[1] in own)
        for name in own:
            state["flight", name, site.index, 0, False] = threads
        for name in self._a(site):
            state["operand", name, site.index, 0] = threads
            self.forget(state, threads, ("landed", name))
        state["reads", site.index, 0] = threads

    def _commit(self, state: State, threads: int) -> None:
        places = {"flight": 3, "operand": 3, "reads": 2}
        for fact in sorted((f for f in state if f[0] in places and state[f] & threads), key=lambda f: -f[places[f[0]]]):
            at = places[fact[0]]
            new = (*fact[:at], min(fact[at] + 1, MANY), *fact[at + 1:])
            if new != fact:
                state[new] = state.get(new, 0) | state.pop(fact)

    def _wait(self, state: State, threads: int, left: int) -> None:
        """All but the newest `left` groups are done."""
        for fact in [fact for fact in state if fact[0] in ("flight", "operand", "reads") and state[fact] & threads]:
            commits = fact[3] if fact[0] != "reads" else fact[2]
            holders = state[fact]
            if commits > left:
                self.drop(state, threads, lambda other, this=fact: other == this)  # type: ignore[misc]
                if fact[0] != "reads":
                    state["landed", fact[1]] = state.get(("landed", fact[1]), 0) | holders & threads
            elif fact[0] == "flight" and not fact[4]:
                del state[fact]
                new = (*fact[:4], True)
                state[new] = state.get(new, 0) | holders

    def _copy(self, to: str, source: str, threads: int, state: State) -> None:
        """A compiler's copy of a register is the same register under another name: what is in flight moves along."""
        if to == source or (to not in self.watched and source not in self.watched):
            return
        self.drop(state, threads, lambda fact: fact[0] in ("flight", "operand", "landed", "dirty") and fact[1] == to)
        for fact in [fact for fact in state if fact[0] in ("flight", "landed", "dirty") and fact[1] == source]:
            new = (fact[0], to, *fact[2:])
            state[new] = state.get(new, 0) | state[fact] & threads

    def turns(self, block: int) -> bool:
        return block in self._turning

    def entered(self, block: int, state: State) -> None:
        """The index that a loop carries is another one from here on."""
        for fact in [fact for fact in state if fact[0] == "reads"]:
            if any(term.kind == "phi" and term.block == block for term in self.stages[fact[1]]):
                del state[fact]

    # ------------------------------------------------------------------------------------------- what is wrong

    def look(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        if site.index in self.products:
            yield from self._order(site, threads, state)
        elif site.control == "exit":
            yield from self._left(site, threads, state)
        elif not _is_copy(site) and site.mnemonic != "wgmma":
            yield from self._touched(site, threads, state)
        if site.index in self.analysis.barriers.by_site:
            yield from self._released(site, threads, state)

    def _order(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        fix = "wgmma.fence.sync.aligned before the first wgmma and after every write to its accumulator or A registers"
        if state.get(("unfenced",), 0) & threads:
            never = not state.get(("fenced",), 0) & threads
            path = "" if never else " on some path"
            if self._new("wgmma-fence", -1):
                yield self.analysis.report("wgmma-fence", site, f"no wgmma.fence comes before `{site.name}`{path}: its registers are not "
                                           "ordered after the accesses before", fix, "error" if never else "review")
            return
        dirty = [name for name in (*self._d(site), *self._a(site)) if state.get(("dirty", name), 0) & threads]
        if dirty and self._new("wgmma-fence", site.index):
            more = f" and {len(dirty) - 1} more registers" if len(dirty) > 1 else ""
            yield self.analysis.report("wgmma-fence", site,
                                       f"`{site.name}` uses `{dirty[0]}`{more}, written since the last wgmma.fence", fix)
        taken = [fact for fact in state if fact[0] == "flight" and state[fact] & threads and fact[1] in self._a(site)]
        if taken:
            yield from self._wait_missing(site, taken[0], state, threads, "reads")

    def _touched(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for fact in sorted(fact for fact in state if fact[0] in ("flight", "operand") and state[fact] & threads):
            reads, writes = fact[1] in site.reads and fact[0] == "flight", fact[1] in site.writes
            if reads or writes:
                yield from self._wait_missing(site, fact, state, threads, "reads" if reads else "writes")
                return

    def _wait_missing(self, site: Site, fact: Fact, state: State, threads: int, verb: str) -> Iterator[Finding]:
        product = self.products[fact[2]]
        certain = ("landed", fact[1]) not in state and not self.analysis.between.exclusive(product, site, one_thread=True)
        if fact[0] == "flight" and fact[3] == 0 and fact[4]:
            yield from self._uncommitted(product, f"a wait comes before {site.place}, which {verb} `{fact[1]}`", certain=certain)
            return
        if self._new("wgmma-wait", fact[2]):
            what = "the accumulator" if fact[0] == "flight" else "an A operand"
            yield self.analysis.report(
                "wgmma-wait", site, f"`{site.name}` {verb} `{fact[1]}`, {what} of `{product.name}` at {product.place}, which "
                f"{'is' if certain else 'may be'} still in flight", "wgmma.wait_group.sync.aligned 0 before the first use of its registers",
                "error" if certain else "review")

    def _left(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        for fact in sorted(fact for fact in state if fact[0] == "flight" and state[fact] & threads):
            product = self.products[fact[2]]
            if fact[3] == 0 and fact[4]:
                yield from self._uncommitted(product, "the kernel ends", certain=("landed", fact[1]) not in state)
            elif self._new("wgmma-wait", fact[2]):
                yield self.analysis.report("wgmma-wait", product, f"the kernel can end while `{product.name}` is in flight",
                                           "wgmma.commit_group and wgmma.wait_group 0 before its results are used or the kernel ends")

    def _uncommitted(self, product: Site, when: str, *, certain: bool) -> Iterator[Finding]:
        if self._new("wgmma-commit", product.index) and self._new("wgmma-wait", product.index):
            yield self.analysis.report("wgmma-commit", product, f"`{product.name}` is in no committed group when {when}: the wait does not "
                                       "cover it", "wgmma.commit_group.sync.aligned after the last wgmma of the group",
                                       "error" if certain else "review")

    def _new(self, rule: str, product: int) -> bool:
        new = (rule, product) not in self._said
        self._said.add((rule, product))
        return new

    # ------------------------------------------------------------------------------------------- stages

    def _stage(self, site: Site) -> frozenset[Value]:
        """The registers that choose the stage which the product reads."""
        return frozenset(term for access in self.analysis.memory.of(site) for term, factor in access.address.terms
                         if factor >= 256 and self.analysis.lanes.vector(term) is None)

    def _released(self, site: Site, threads: int, state: State) -> Iterator[Finding]:
        """An arrive on the barrier with the index of the stage that the product reads."""
        use = self.analysis.barriers.by_site[site.index]
        if "arrive" not in use.kinds or "expect_tx" in use.kinds:
            return
        index = {term for term, _ in use.address.terms}
        for fact in sorted(fact for fact in state if fact[0] == "reads" and state[fact] & threads):
            if index & self.stages[fact[1]] and self._new("stage-release", site.index):
                product = self.products[fact[1]]
                yield self.analysis.report(
                    "stage-release", site, f"this arrive releases the stage that `{product.name}` at {product.place} may still read",
                    "wgmma.wait_group that covers the group before the arrive, or release the stage of the group before")


def _is_copy(site: Site) -> bool:
    """`mov` of one register to another, which compilers write at the joins of paths."""
    return (site.mnemonic == "mov" and len(site.writes) == 1 and len(site.reads) == 1 and site.instruction.guard is None
            and len(site.instruction.operands) == 2 and isinstance(site.instruction.operands[1], tree.Name))
