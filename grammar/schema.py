"""The vocabulary of the instruction table: what one form of an instruction is made of.

A form is one syntax line of the PTX manual, written in a regular notation, plus a description of each operand:

    form("mbarrier.arrive{.sem.scope}{.space}.b64 state, [addr]{, count}",
         slots={"sem": "release relaxed", "scope": "cta cluster", "space": "shared shared::cta"},
         state=w("b64", sink=True, tag="state"), addr=at("space", tag="mbarrier"), count=r("u32", imm=Range(1)),
         since="8.0", target="sm_90", ...)

Opcode part (up to the first space): `.name` is the slot of that name if `slots` has it, else a literal token;
`{...}` is optional; `(a|b)` is a choice; both nest and may hold several tokens. So dependences between modifiers ("sem and scope, or
neither") are structure, not rules. The tokens of a slot are one string, separated by spaces, in the manual's order.
The product of the choices is exactly the set of legal opcodes. Where the notation cannot express a dependence there are two forms.

Operand part: names separated by commas. `[x]` is an address, `[x, y]` a tensor map with coordinates, `[x, {s,} y]` a texture with its
sampler and coordinates, `x|y` a pair, `{, x}` an operand that may be left out, `(x)` the list of a call. Each name is described by a
keyword of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Per:
    """A value that depends on an opcode slot: `Per("shape", {"m64n8k16": 4, ...})`. `default`: the value if the slot is absent."""

    slot: str
    values: Mapping[str, Any]
    default: Any = None


@dataclass(frozen=True, slots=True)
class Range:
    """The integers an immediate may be: low..high (None: open) in steps of `multiple`, or exactly `choices`.

    `wraps`: ptxas looks at the lowest 32 bits of the number only.
    """

    low: int | None = None
    high: int | None = None
    multiple: int = 1
    choices: tuple[int, ...] = ()
    wraps: bool = False


ANY = Range()
Kind = Literal["register", "predicate", "immediate", "address", "coordinates", "vector", "label", "function", "symbol",
               "arguments", "special", "literal"]


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of a form.

    `type` is a scalar type ("f32"), the name of a slot whose token is the type, or a `Per`. In a resolved
    `Signature` it is always a scalar type. The same holds for `count` and `space`.
    """

    kind: Kind
    type: str | Per = ""
    access: Literal["r", "w", "rw"] = "r"
    count: int | str | Per = 1           # how many lanes a vector or tensor coordinates have
    immediate: Range | Per | None = None  # an immediate may stand in place of the register (or is the only choice)
    float_immediate: bool = False        # a floating literal may stand in place of the register
    sink: bool = False                   # `_` may stand here, for a vector in each lane
    negate: bool = False                 # `!p` may stand here
    wide: bool = False                   # the register may be wider than the type (ld, st, cvt)
    variable: bool = False               # the name of a variable of `space`, with an offset, may stand here: its address
    scalar: bool = False                 # a vector operand of one lane is written without braces, coordinates with or without
    float_ok: bool = True                # a .bN operand also accepts a float register of its width
    integer_ok: bool = False             # lanes of a float type may be integer registers: texture coordinates and texels
    index: bool = False                  # the first coordinate is a .u32, the layer of an array of textures
    padded: bool = False                 # 2 or 4 coordinates may stand there even if count is less; the surplus is ignored
    minus: bool = False                  # `-a` may stand here
    element: bool = False                # an address may be written `array[3]`
    narrow: bool = False                 # an address may have 32 bits in any space
    exact: bool = False                  # if all lanes are literals, they have the width of the type
    open: bool = False                   # lanes of a float type may be integer registers if another lane is left out
    selector: str | Per = ""             # which bytes or halves of the register, `a.b0`: a key of SELECTORS
    space: str | Per = ""                # of an address: "global", "shared::cta", ...; "" is generic
    tag: str = ""                        # what the bits mean: see TAGS
    when: str = ""                       # the operand is present exactly if this slot or token is in the opcode
    default: int | None = None           # what the DSL writes if the author gives nothing


# What may follow the name of a register in a video instruction, as regular expressions.
SELECTORS = {
    "part": r"b[0-3]|h[01]",           # one byte or half
    "halves": r"h[0-3]{2}",            # two of the four halves of both sources
    "bytes": r"b[0-7]{4}",             # four of the eight bytes of both sources
    "mask2": r"h(?:0|1|10)",          # the halves that are written
    "mask4": r"b(?=[0-3])3?2?1?0?",    # the bytes that are written
}

TAGS = (
    "descriptor",   # a wgmma matrix descriptor in a 64-bit register
    "transpose",    # the immediate that says whether the descriptor of the operand named in `space` is MN-major
    "mbarrier",     # the address of an mbarrier object
    "state",        # an mbarrier phase token
    "parity",       # an mbarrier phase parity
    "tensormap",    # the address of a 128-byte tensor map
    "policy",       # an L2 cache policy
    "mask",         # a CTA mask (b16) of a cluster
    "members",      # a warp member mask (b32)
    "bytes",        # a byte count
    "half",         # a special register of 32 bits whose lower half is read
    "converted",    # a special register that is read in another width than its own
    "hint",         # a suspend-time hint in nanoseconds
    "whole",        # all four components of a special register
    "texture",      # a texture: a 64-bit handle or a .texref variable
    "sampler",      # a sampler: a 64-bit handle or a .samplerref variable
    "surface",      # a surface: a 64-bit handle or a .surfref variable
)


@dataclass(frozen=True, slots=True)
class Access:
    """An access to memory: at which operand, whether it reads or writes, how many bytes and through which proxy.

    `bytes` is a number, the name of an operand, or a word that the simulator knows ("type", "box", "tile").
    """

    mode: Literal["r", "w", "rw"]
    operand: str
    bytes: int | str = "type"
    proxy: Literal["generic", "async", "tensormap"] = "generic"


Depends = Literal["", "never", "order", "phase", "election", "lanes", "time", "machine"]
DEPENDS: Mapping[str, str] = {
    "never": "on its operands and on memory that is ordered with it",
    "order": "on the order in which it and unordered accesses of others to the same words come",
    "phase": "on how far the barrier has come when it is asked",
    "election": "on which lane is chosen",
    "lanes": "on which lanes run together",
    "time": "on the time",
    "machine": "on where it runs",
}
"""What the results of an instruction, and what it leaves in memory, depend on: for all but "never" another schedule may give others."""
SYNC_NEVER = frozenset({
    "async.issue", "async.commit", "async.wait", "bulk.issue", "bulk.commit", "bulk.wait", "breakpoint", "cache.priority", "cluster.arrive",
    "cluster.wait", "cta.arrive", "cta.barrier", "fence", "grid.launch_dependents", "grid.wait", "mbarrier.arrive_async",
    "mbarrier.complete_tx", "mbarrier.fence_init", "pmevent", "prefetch", "query", "registers", "sleep", "stack", "warp.barrier",
    "wgmma.commit", "wgmma.fence", "wgmma.issue", "wgmma.wait"})
"""Words of `sync` that make nothing depend on more than operands and ordered memory: an instruction without an access to memory need not
say so again."""


@dataclass(frozen=True, slots=True)
class Effects:
    """What an instruction does besides writing its destination registers.

    `sync`: words such as "mbarrier.arrive", "mbarrier.expect_tx", "mbarrier.complete_tx", "bulk.commit", "bulk.wait",
    "wgmma.commit", "wgmma.wait", "cta.barrier", "cluster.arrive", "cluster.wait". `fence`: (from proxy, to proxy).
    `convergence`: which threads must execute it together. `control`: how it changes the flow of control. `in_flight`: operands whose
    registers stay in use after the instruction was issued. `carry`: whether it reads or writes the carry. `semantics`: the key of the
    simulator's operation; "" is the mnemonic. `depends`: a key of DEPENDS; what accesses memory must say it.
    """

    memory: tuple[Access, ...] = ()
    sync: tuple[str, ...] = ()
    fence: tuple[str, str] | None = None
    convergence: Literal["none", "warp", "warpgroup", "cta", "cluster"] = "none"
    control: Literal["", "branch", "call", "return", "exit", "trap"] = ""
    in_flight: tuple[str, ...] = ()
    carry: Literal["", "r", "w", "rw"] = ""
    semantics: str = ""
    depends: Depends = ""

    @property
    def dependence(self) -> Depends:
        """What the results depend on, "" where the table does not say it."""
        return self.depends or ("never" if not self.memory and SYNC_NEVER.issuperset(self.sync) else "")

    @property
    def pure(self) -> bool:
        """Whether an instruction whose results nothing reads does nothing."""
        return not (self.memory or self.sync or self.fence or self.control or self.in_flight or "w" in self.carry) \
            and self.convergence == "none"


PURE = Effects()


@dataclass(frozen=True, slots=True)
class Form:
    """One syntax line. `since` is the lowest PTX version that accepts it, `target` the lowest sm. `needs` raises the version for a token.

    `rules` are about literals. `"src_size <= cp_size"` holds if both operands are numbers. `"fraction in (0,1]"` is about a floating
    literal. `"a excludes c"` says that not both operands may be negated.
    """

    syntax: str
    slots: Mapping[str, tuple[str, ...]]
    operands: Mapping[str, Operand]
    since: str = "8.0"
    target: str = "sm_90"
    needs: Mapping[str, str] = field(default_factory=dict)
    effects: Effects = PURE
    section: str = ""
    example: str = ""
    rules: tuple[str, ...] = ()

    @property
    def mnemonic(self) -> str:
        return self.syntax.partition(" ")[0].partition(".")[0].partition("{")[0].partition("(")[0]


def form(syntax: str, *, slots: Mapping[str, str] | None = None, since: str = "8.0", target: str = "sm_90",
         needs: Mapping[str, str] | None = None, effects: Effects = PURE, section: str = "", example: str = "",
         rules: tuple[str, ...] = (), **operands: Operand) -> Form:
    """A row of the table; see the module's docstring for the notation."""
    split = {name: tuple(tokens.split()) for name, tokens in (slots or {}).items()}
    return Form(syntax, split, operands, since, target, needs or {}, effects, section, example, rules)


def r(type: str | Per, **how: Any) -> Operand:
    """A register that is read. `imm`: `ANY` or a `Range` of immediates that may stand in its place."""
    return _register("r", type, how)


def w(type: str | Per, **how: Any) -> Operand:
    """A register that is written."""
    return _register("w", type, how)


def rw(type: str | Per, **how: Any) -> Operand:
    """A register that is read and written: an accumulator."""
    return _register("rw", type, how)


def _register(access: Any, type: str | Per, how: dict[str, Any]) -> Operand:
    immediate = how.pop("imm", None)
    count = how.pop("n", None)
    kind: Kind = "vector" if count is not None else "predicate" if type == "pred" else "register"
    return Operand(kind, type, access, count=1 if count is None else count, immediate=immediate, **how)


def imm(allowed: Range | Per = ANY, type: str | Per = "s32", **how: Any) -> Operand:
    """An operand that can only be an immediate."""
    return Operand("immediate", type, immediate=allowed, **how)


def at(space: str | Per = "", **how: Any) -> Operand:
    """An address in a state space, given by its name, by a slot, or by a `Per`. "" is a generic address."""
    return Operand("address", space=space, **how)


def coordinates(count: int | str | Per, type: str = "s32", **how: Any) -> Operand:
    """A brace list of registers or immediates: tensor coordinates, im2col offsets."""
    return Operand("coordinates", type, count=count, immediate=ANY, **how)
