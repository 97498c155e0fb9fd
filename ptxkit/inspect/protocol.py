"""The mbarrier protocol, bulk and tensor copies, and named barriers of an entry, from the static rules' view of it."""

from __future__ import annotations

from ..check.analysis import Analysis
from ..check.barriers import Barrier, Use
from ..check.program import Site
from ..check.values import Linear
from .facts import BarrierFact, CopyFact, NamedFact, UseFact
from .resources import kind_of
from .words import address, of_mask, threads

KINDS = {"tma_load": "load", "tma_store": "store", "tma_reduce": "reduce", "tma_prefetch": "prefetch", "dsmem_copy": "to another CTA"}


def barriers(analysis: Analysis) -> tuple[BarrierFact, ...]:
    """Every mbarrier that the entry names, in the order of their addresses."""
    found = sorted(analysis.barriers.all, key=lambda barrier: (barrier.symbol, barrier.base))
    return tuple(_barrier(analysis, barrier) for barrier in found)


def _barrier(analysis: Analysis, barrier: Barrier) -> BarrierFact:
    inits = tuple(_use(analysis, use, "init", "count") for use in barrier.having("init"))
    arrives = tuple(_use(analysis, use, _arrive(use), "count") for use in barrier.having("arrive", "arrive_async", "expect_tx"))
    copies = tuple(_use(analysis, use, use.site.name) for use in barrier.having("complete_tx")
                   if use.kinds.isdisjoint(("arrive", "expect_tx")))
    waits = tuple(_use(analysis, use, "try_wait" if "try_wait" in use.site.tokens else "test_wait", "phaseParity")
                  for use in barrier.having("test"))
    place = address(analysis, Linear(barrier.symbol, barrier.base))
    return BarrierFact(barrier.name, place, _count(analysis, barrier), inits, arrives, copies, waits)


def _count(analysis: Analysis, barrier: Barrier) -> int | None:
    """How many there are: as a trace declares them, else as many as are initialised or used at constant addresses."""
    for array in analysis.traced.shared.barriers if analysis.traced else ():
        if analysis.traced and (analysis.traced.shared.symbol, array.offset) == (barrier.symbol, barrier.base):
            return array.count
    inits = barrier.having("init")
    if any(use.address.terms for use in inits or barrier.uses):
        return None
    return len({use.low for use in inits or barrier.uses})


def _arrive(use: Use) -> str:
    words = [word for word in ("arrive_drop", "arrive", "expect_tx", "noComplete") if word in use.site.tokens]
    return ".".join(words) + (" (of cp.async)" if "arrive_async" in use.kinds else "")


def _use(analysis: Analysis, use: Use, what: str, operand: str = "") -> UseFact:
    """`operand` is the count of an arrival (1 unless said) or the parity of a wait."""
    site = use.site
    amount = analysis.constant(site, operand) if operand and site.value(operand) is not None else None
    if operand == "count" and site.value("count") is None:
        amount = 1 if what.startswith("arrive") else None
    expected = analysis.constant(site, "tx_count") if "expect_tx" in use.kinds else None
    if "complete_tx" in use.kinds:
        expected = analysis.bytes(site)
    who = threads(analysis, site).removeprefix("some of " if "test" in use.kinds else "\0")  # a poll decides when it ends, not who polls
    return UseFact(site.place.line, author(site), what, who, amount, expected, use.remote)


def author(site: Site) -> str:
    """The author's file and line, "" without."""
    return str(site.place.author) if site.place.author else ""


def copies(analysis: Analysis) -> tuple[CopyFact, ...]:
    """Every bulk and tensor copy."""
    return tuple(_copy(analysis, site, KINDS[kind]) for site in analysis.sites if (kind := kind_of(site.opcode)) in KINDS)


def _copy(analysis: Analysis, site: Site, kind: str) -> CopyFact:
    form = analysis.tensormap(site)
    record = analysis.traced.copies.records.get(form.symbol or "") if analysis.traced and form is not None and not form.terms else None
    dimensions = next((int(token[0]) for token in site.tokens if len(token) == 2 and token[0].isdigit() and token[1] == "d"), 0)
    place = next((site.value(operand) for operand in ("dstMem", "srcMem") if site.value(operand) is not None
                  and site.space(operand).startswith("shared")), None)
    use = analysis.barriers.by_site.get(site.index)
    barrier = "" if use is None else use.barrier.name if use.barrier is not None else address(analysis, use.address, site)
    return CopyFact(
        site.place.line, author(site), site.opcode, kind, "" if form is None else address(analysis, form, site), dimensions,
        record.box if record else (), record.type.__name__ if record else "", record.swizzle if record else None,
        analysis.bytes(site) if dimensions else _bulk_bytes(analysis, site),
        "" if place is None else address(analysis, analysis.values.address(site, place), site), barrier, _multicast(analysis, site),
        threads(analysis, site))


def _bulk_bytes(analysis: Analysis, site: Site) -> int | None:
    return analysis.constant(site, "size") if site.value("size") is not None else None


def _multicast(analysis: Analysis, site: Site) -> str:
    if "multicast::cluster" not in site.tokens:
        return ""
    mask = analysis.constant(site, "ctaMask")
    if mask is None:
        return "CTAs of a mask in a register"
    return f"CTAs {', '.join(str(rank) for rank in range(16) if mask >> rank & 1) or 'none'}"


def named(analysis: Analysis) -> tuple[NamedFact, ...]:
    """The barriers of the CTA by number, which may differ from warp to warp; None where it is not known."""
    found: dict[int | None, list[tuple[str, int | None, str, int | None, str]]] = {}
    for site in analysis.sites:
        if {"cta.barrier", "cta.arrive"} & set(site.sync):
            count = analysis.constant(site, "b") if site.value("b") is not None else None
            for number, who in _numbers(analysis, site).items():
                found.setdefault(number, []).append((site.opcode, count, who, site.place.line, author(site)))
    return tuple(NamedFact(number, tuple(uses)) for number, uses in sorted(found.items(), key=lambda pair: (pair[0] is None, pair[0] or 0)))


def _numbers(analysis: Analysis, site: Site) -> dict[int | None, str]:
    """The number of the barrier, and who comes to it: one for all, or as a register has it in each thread."""
    constant, everyone = analysis.constant(site, "a"), analysis.lanes.of(site)
    vector = None if constant is not None else analysis.lanes.vector(analysis.values.of(site, site.value("a")))
    if vector is None:
        return {constant: threads(analysis, site)}
    masks: dict[int | None, int] = {}
    for thread, number in enumerate(vector):
        if everyone >> thread & 1:
            masks[number] = masks.get(number, 0) | 1 << thread
    return {number: of_mask(mask, analysis.launch.threads, analysis.launch.block is not None) for number, mask in masks.items()}
