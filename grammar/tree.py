"""The one tree: a PTX module as frozen values, whether it was traced from Python or parsed from text.

`repr` of any node evaluates back to an equal node. Positions never take part in comparison. Numbers are values, not
spellings: `0x10`, `16` and `020` are the same `Integer(16)`, and `1.0` is the `Float` with those bits.

The nodes of a parsed function's body are built when somebody asks for `body`. `defined` says whether there is a body and builds nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Union

from .errors import Position

# --------------------------------------------------------------------------------------------------- operands


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier as an operand: a register (`%r1`), special register (`%tid.x`), variable, label or function."""

    name: str


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal or a folded constant expression. `unsigned`: the literal has the suffix `U`, or the expression is unsigned."""

    value: int
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point literal by its bits: `0f` and 8 hex digits for `width` 32, `0d` and 16 for 64."""

    bits: int
    width: int = 64

    @classmethod
    def of(cls, value: float, width: int = 64) -> Float:
        """The literal of a Python float. Width 32 rounds to nearest even."""
        code, unsigned = ("<d", "<Q") if width == 64 else ("<f", "<I")
        return cls(struct.unpack(unsigned, struct.pack(code, value))[0], width)

    @property
    def value(self) -> float:
        """The number that the bits are."""
        code, unsigned = ("<d", "<Q") if self.width == 64 else ("<f", "<I")
        number: float = struct.unpack(code, struct.pack(unsigned, self.bits))[0]
        return number


@dataclass(frozen=True, slots=True)
class Offset:
    """A variable's address plus bytes outside brackets: `mov.u64 %rd1, table+8`."""

    base: Name
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """A list in braces `{a, b, c, d}`. A lane that is left out is `Name("_")`."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]` in bytes. The base is a register, a variable, or an integer; then `offset` is 0.

    `displaced` keeps `[base+0]` apart from `[base]`: without optimisation ptxas computes that sum. `unified` is `[base].unified`.
    """

    base: Name | Integer
    offset: int = 0
    displaced: bool = False
    unified: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """`array[3]`, `array[%r1]`, `array[%r1+3]`. Indices count elements of the declared type, not bytes."""

    base: Name
    index: Name | Integer
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddress:
    """`[tensormap, {coordinates}]` of a tensor copy. A texture operand has the same shape and may have a sampler in the middle."""

    tensormap: Name
    coordinates: Vector | Name
    sampler: Name | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """`first|second`: the two destinations of setp, shfl, elect, match, lop3."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`, a negated predicate operand."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Minus:
    """`-a`, a negated integer register of a video instruction. A negative number is an `Integer`."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)`: the result list or argument list of a call."""

    elements: tuple[Operand, ...]


Operand = Union[Name, Integer, Float, Offset, Vector, Address, Element, TensorAddress, Pair, Not, Minus, Arguments]

# --------------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    predicate: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `opcode` is the whole dotted word, mnemonic and modifiers: `ld.global.v2.f32`."""

    opcode: str
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    position: Position | None = field(default=None, compare=False, repr=False)

    @property
    def mnemonic(self) -> str:
        return self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Expression:
    """A constant that cannot be folded, because it names a variable.

    - `Expression("generic", (Name("x"),))` is `generic(x)`.
    - `Expression("+", (Name("x"), Integer(4)))` is `x+4`. The left side may be a `generic`.
    - `Expression("mask", (Integer(0xFF), Name("x")))` is `0xFF(x)`, one byte of an address.
    - `Expression("=", (Name(field), value))` stands in the initialiser of a sampler.
    - `Expression("-", (Name("a"), Name("b")))` stands in a debug section.
    """

    operator: str
    operands: tuple[Constant, ...]


Constant = Union[Integer, Float, Name, Expression]
Initializer = Union[Constant, "Aggregate"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An initialiser in braces: `{1, 2, {3, 4}}`."""

    elements: tuple[Initializer, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared register, parameter or variable.

    `space`: "reg", "param", "shared", "global", "const", "local", "tex", "sreg". `type` has no dot ("b32", "f32", "pred",
    "texref"). `count` is the range of `.reg .b32 %r<count>;`. `shape` is the array's extents, None for `[]`.
    `linkage`: "", "extern", "visible", "weak", "common". `attributes` are the words of `.attribute(...)` in order, such as "managed".
    `pointer` is a kernel parameter's `.ptr{.space}` with its `.align`.
    """

    space: str
    type: str
    name: str
    count: int | None = None
    vector: int = 1
    align: int | None = None
    shape: tuple[int | None, ...] = ()
    initializer: Initializer | None = None
    linkage: str = ""
    attributes: tuple[str, ...] = ()
    pointer: Pointer | None = None
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pointer:
    """`.ptr{.space}{.align N}` on a kernel parameter."""

    space: str = ""
    align: int | None = None


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive with its operands: `.maxntid 128, 1, 1`, `.minnctapersm 1`, `.noreturn`, `.pragma "nounroll"`, `.file`, `.loc`.

    `arguments` are integers, identifiers (strings) and quoted texts (`Text`), in the order of the text.
    """

    name: str
    arguments: tuple[int | str | Text, ...] = ()
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted string in a directive. PTX has no escapes, so it holds neither a quote nor a line break."""

    value: str


@dataclass(frozen=True, slots=True)
class Loc:
    """`.loc file line column`, with `inlined` = (function label name, offset, file, line, column) of `inlined_at`."""

    file: int
    line: int
    column: int
    inlined: tuple[str, int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Prototype:
    """`label: .callprototype (returns) _ (parameters) directives;`"""

    label: str
    returns: tuple[Variable, ...] = ()
    parameters: tuple[Variable, ...] = ()
    directives: tuple[Directive, ...] = ()
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Targets:
    """`label: .branchtargets a, b;` or `label: .calltargets f, g;`. `kind` is the directive without the dot."""

    label: str
    kind: str
    names: tuple[str, ...]
    position: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ ... }`: a scope of registers, variables and labels."""

    body: tuple[Statement, ...]


Statement = Union[Instruction, Label, Variable, Directive, Loc, Prototype, Targets, Block]

# --------------------------------------------------------------------------------------------------- the module


@dataclass(frozen=True, slots=True)
class Function:
    """An `.entry` or `.func`. `body` is None for a declaration. `returns` is empty for an entry."""

    kind: str
    name: str
    parameters: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    directives: tuple[Directive, ...] = ()
    body: tuple[Statement, ...] | None = None
    linkage: str = ""
    attributes: tuple[str, ...] = ()
    position: Position | None = field(default=None, compare=False, repr=False)

    @property
    def defined(self) -> bool:
        """Whether there is a body. Builds no nodes."""
        return stored_body(self) is not None


class LazyBody:
    """A body that was read and whose nodes are not built yet."""

    __slots__ = ()

    def build(self) -> tuple[Statement, ...]:
        raise NotImplementedError


class _Body:
    """The field `body` of a function. A `LazyBody` in its slot is replaced by its nodes when somebody reads the field."""

    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, function: Function | None, owner: type | None = None) -> Any:
        if function is None:
            return self
        body = self.slot.__get__(function)
        if isinstance(body, LazyBody):
            body = body.build()
            self.slot.__set__(function, body)
        return body

    def __set__(self, function: Function, body: tuple[Statement, ...] | LazyBody | None) -> None:
        self.slot.__set__(function, body)


stored_body = vars(Function)["body"].__get__
"""What the slot of a function's body holds: statements, a `LazyBody`, or None. Builds no nodes."""
setattr(Function, "body", _Body(vars(Function)["body"]))  # noqa: B010  a dataclass with slots cannot name its slot


@dataclass(frozen=True, slots=True)
class Alias:
    """`.alias name, target;`"""

    name: str
    target: str


@dataclass(frozen=True, slots=True)
class Section:
    """`.section .debug_info { ... }`: its rows and labels in order."""

    name: str
    rows: tuple[Label | Data, ...]


@dataclass(frozen=True, slots=True)
class Data:
    """A row of a debug section: `.b8 1, 2, 3`, `.b32 .debug_abbrev`, `.b64 label+4` or `.b32 a-b`."""

    type: str
    values: tuple[Constant, ...]


Item = Union[Variable, Function, Directive, Alias, Section]


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX module: `.version`, `.target`, `.address_size` and its items in order."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int | None = 64
    items: tuple[Item, ...] = ()

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(item for item in self.items if isinstance(item, Function))

    @property
    def entries(self) -> tuple[Function, ...]:
        return tuple(f for f in self.functions if f.kind == "entry" and f.defined)
