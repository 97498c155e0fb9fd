"""What `inspect` finds out about an entry, as plain data: the terminal, the page and JSON show the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..runtime.diagnostics import Resources


@dataclass(frozen=True, slots=True)
class ParameterFact:
    """A parameter: bytes from the start of the parameters, and how many. `what` is such as "u32", "pointer to global", "tensor map"."""

    name: str
    what: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SharedFact:
    """Bytes of shared memory under one name. `bytes` is None when the launch decides them. `within` is the symbol that contains it."""

    name: str
    bytes: int | None
    align: int
    what: str
    offset: int | None = None
    within: str = ""


@dataclass(frozen=True, slots=True)
class DescriptorFact:
    """A descriptor that a wgmma reads: fields in bytes, None when the PTX does not show them. `swizzle` 0 is no swizzle."""

    line: int | None
    author: str
    opcode: str
    operand: str
    address: str
    leading: int | None
    stride: int | None
    base_offset: int | None
    swizzle: int | None
    major: str

    @property
    def derived(self) -> bool:
        return None not in (self.leading, self.stride, self.swizzle)


@dataclass(frozen=True, slots=True)
class FlightFact:
    """The most wgmmas in flight: products, and committed groups. None when the PTX shows no bound."""

    products: int | None
    groups: int | None


@dataclass(frozen=True, slots=True)
class CopyFact:
    """A bulk or tensor copy. `box` (contiguous first) is known for traced kernels. `bytes` are those of one execution."""

    line: int | None
    author: str
    opcode: str
    kind: str
    tensormap: str
    dimensions: int
    box: tuple[int, ...]
    box_type: str
    swizzle: int | None
    bytes: int | None
    shared: str
    barrier: str
    multicast: str
    threads: str


@dataclass(frozen=True, slots=True)
class UseFact:
    """One instruction on an mbarrier. `amount` is a count or a parity, `bytes` what it expects or completes; None when not known."""

    line: int | None
    author: str
    what: str
    threads: str
    amount: int | None = None
    bytes: int | None = None
    remote: bool = False


@dataclass(frozen=True, slots=True)
class BarrierFact:
    """An mbarrier or an array of them (`count`), with all that is done to it."""

    name: str
    address: str
    count: int | None
    inits: tuple[UseFact, ...]
    arrives: tuple[UseFact, ...]
    copies: tuple[UseFact, ...]
    waits: tuple[UseFact, ...]


@dataclass(frozen=True, slots=True)
class NamedFact:
    """A barrier of the CTA by its number, and the instructions on it: opcode, threads that they name, threads that come, line, author."""

    number: int | None
    uses: tuple[tuple[str, int | None, str, int | None, str], ...]


@dataclass(frozen=True, slots=True)
class RoleFact:
    """What warps are for: "setup", "producer", "mma warpgroups" or "other warps", and the PTX lines that these `threads` execute."""

    name: str
    threads: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BankFact:
    """An access to shared memory with bank conflicts: `passes` instead of `ideal`; `lanes` are two that collide."""

    line: int | None
    author: str
    opcode: str
    warp: int
    passes: int
    ideal: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Banks:
    """Loads and stores of shared memory, how many of them could be decided, and those with conflicts."""

    accesses: int
    known: int
    conflicts: tuple[BankFact, ...]


@dataclass(frozen=True, slots=True)
class NoteFact:
    """A message of ptxas in plain words with the way out."""

    rule: str
    severity: str
    message: str
    remedy: str
    place: str
    line: int | None


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """One entry. What a cubin alone or a file without tools cannot tell is None or empty; `missing` says why.

    `hint` is what the PTX asks ptxkit to change in the machine code, "" for nothing: `ptxkit.sass.hints`.
    """

    name: str
    parameters: tuple[ParameterFact, ...] = ()
    bounds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    resources: Resources | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    setmaxnreg: bool | None = None
    hint: str = ""
    mix: Mapping[str, int] = field(default_factory=dict)
    shared: tuple[SharedFact, ...] = ()
    roles: tuple[RoleFact, ...] = ()
    named: tuple[NamedFact, ...] = ()
    wgmma: Mapping[str, int] = field(default_factory=dict)
    flight: FlightFact | None = None
    descriptors: tuple[DescriptorFact, ...] = ()
    copies: tuple[CopyFact, ...] = ()
    barriers: tuple[BarrierFact, ...] = ()
    banks: Banks | None = None
    notes: tuple[NoteFact, ...] = ()
    missing: tuple[str, ...] = ()
