"""PTX that the typed DSL cannot express: registers without a value, and operands and statements written as PTX text.

`ptxkit lift` uses these functions where a kernel needs them. In a text, `{}` stands for a register, label or parameter of Python. Only
`at` is checked against the table; ptxas checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import OpcodeError, Position
from ..grammar.operands import width
from ..types import Scalar, scalar
from .ambient import current, tracing
from .blocks import Block
from .label import Label
from .module import ModuleBuilder
from .reg import Reg, Value
from .source import named
from .trace import Builder

S = TypeVar("S", bound=Scalar)
T = TypeVar("T", covariant=True)

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


class Written(Value):
    """An operand written as PTX text with the names of `registers`. It is checked if `types`, the types of its registers, are given."""

    __slots__ = ("_operand", "registers", "types")

    def __init__(self, operand: tree.Operand, types: dict[str, str] | None = None, registers: Iterable[Reg[Any]] = ()) -> None:
        self._operand = operand
        self.types = types
        self.registers = tuple(registers)

    def operand(self) -> tree.Operand:
        for each in self.registers:
            each.operand()
        return self._operand

    def __repr__(self) -> str:
        from ..grammar.write import write_operand

        return f"Written({write_operand(self._operand)})"


if TYPE_CHECKING:
    # It fits any instruction: its type is not known here.
    _Operand = Any
else:
    _Operand = Written


class Param(_Operand, Generic[T]):  # type: ignore[misc]
    """A parameter that the kernel reads itself, by `ld.param`. In a kernel's signature it is an annotation.

    `Param[u32]` is `.param .u32`, `Param[Ptr[f32]]` is a pointer in a plain `.u64`, `Param[Ptr[Any]]` is a pointer to anything. Any other
    parameter has a PTX declaration: `Annotated[Param[b8], ".align 8 .b8 box[24]"]`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(tree.Address(tree.Name(name)))
        self.name = name


def register(type: type[S], name: str = "") -> Reg[S]:
    """A register without a value, for a register that is first written in a branch or a loop.

    `name` is its PTX name, for references from outside the body such as DWARF sections: `register(u32, "%r5")`.
    """
    return current().register(type, name)


def registers(type: type[S], count: int | Sequence[str]) -> tuple[Reg[S], ...]:
    """`count` registers without a value, or one register for each name: `registers(u32, ["%r5", "%r6"])`."""
    if isinstance(count, int):
        return tuple(register(type) for _ in range(count))
    return tuple(register(type, name) for name in count)


def at(base: Reg[Any] | Param[Any] | str | int, offset: int | None = None) -> Any:
    """The address `[base+offset]`, in bytes. `base` is a register, a parameter, the name of a variable, or a number (local memory).

    An explicit 0 gives `[base+0]`, which is an addition if ptxas does not optimise.
    """
    bytes_, displaced = offset or 0, offset == 0
    if isinstance(base, int):
        return Written(tree.Address(tree.Integer(base + bytes_)), {})
    if isinstance(base, Reg):
        current().own(base)
        return Written(tree.Address(base.operand(), bytes_, displaced), {base.name: base.type.__name__}, (base,))
    return Written(tree.Address(tree.Name(base if isinstance(base, str) else base.name), bytes_, displaced), {})


def raw(text: str | Reg[Any], *values: Any) -> Any:
    """Any operand as PTX text: `raw("table+8")`, `raw("0f7F800000")`, `raw("{}.b0", r)`. It also passes a register unchecked."""
    if isinstance(text, Reg):
        current().own(text)
        return Written(text.operand(), registers=(text,))
    statement = _statements(f"op {_filled(text, values)};")[0]
    if not isinstance(statement, tree.Instruction) or len(statement.operands) != 1:
        raise TraceError(f"raw({text!r}) is not one operand")
    return Written(statement.operands[0], registers=[value for value in values if isinstance(value, Reg)])


def verbatim(text: str, *values: Any) -> None:
    """Statements of a body as PTX text: `.param`, `.local` and `.shared` variables, calls, tables of labels, instructions."""
    builder = current()
    for value in values:
        if isinstance(value, Reg):
            builder.wrote(value)
    for statement in _statements(_filled(text, values)):
        if isinstance(statement, tree.Instruction):
            _needs(builder, statement)
            builder.emit(statement.opcode, statement.operands, statement.guard)
        else:
            builder.body.append(statement)


class scope(Block):
    """`with scope():` is PTX's `{ ... }`. Variables that it declares are local to it."""

    _is = "scope()"

    def __enter__(self) -> None:
        builder = self._entered()
        self._open = ExitStack()
        self._open.enter_context(builder.braces())
        self._open.enter_context(builder.scope())

    def __exit__(self, *_: object) -> None:
        self._open.close()


def _filled(text: str, values: tuple[Any, ...]) -> str:
    """The text with its `{}` replaced by names."""
    pieces = text.split("{}")
    if len(pieces) != len(values) + 1:
        raise TraceError(f"{text!r} has {len(pieces) - 1} places {{}}, {len(values)} values were given")
    return "".join(piece + _name(value) for piece, value in zip(pieces, (*values, ""), strict=True))


def _name(value: Any) -> str:
    if isinstance(value, Reg):
        current().own(value)
        return value.operand().name
    if isinstance(value, Label):
        current().branched(value.name)
        return value.name
    if isinstance(value, Param | str):
        return value if isinstance(value, str) else value.name
    raise TraceError(f"{{}} stands for a register, a label, a parameter or a name, not {value!r}")


@cache
def _statements(text: str) -> tuple[tree.Statement, ...]:
    from ..grammar.read import parse

    function = parse(f"{HEAD}.func f() {{ {text} }}").functions[0]
    assert function.body is not None
    return function.body


def _needs(builder: Builder, instruction: tree.Instruction) -> None:
    from ..grammar.forms import canonical, lookup

    try:
        signatures = lookup(canonical(instruction.opcode) or instruction.opcode)
    except OpcodeError:
        return
    builder.module.need(min(signatures, key=lambda signature: signature.since))


# ------------------------------------------------------------------ what stands outside of bodies


@cache
def declarations(text: str) -> tuple[tree.Item, ...]:
    """The declarations of a PTX text without a head: variables, prototypes of functions, directives."""
    from ..grammar.read import parse

    items = parse(HEAD + text).items if text else ()
    for item in items:
        if isinstance(item, tree.Function) and item.body is not None:
            raise TraceError(f"declarations have no bodies: write `{item.name}` as a @function")
    return items


@cache
def directives(text: str) -> tuple[tree.Directive, ...]:
    """The directives of an entry: `.maxclusterrank 4`."""
    if not text:
        return ()
    from ..grammar.read import parse

    return parse(f"{HEAD}.entry f() {text} {{ ret; }}").functions[0].directives


@cache
def parameter(text: str) -> tree.Variable:
    """A parameter's declaration without `.param`: `.align 8 .b8 box[24]`."""
    from ..grammar.read import parse

    return parse(f"{HEAD}.entry f(.param {text}) {{ ret; }}").functions[0].parameters[0]


class Module:
    """A PTX module of several entries and functions, in the order in which Python defines them.

    `declarations` are its variables, prototypes and directives as PTX text. `version` is the lowest `.version` to write. `.ptx()` of each
    of its kernels is the whole module, since ptxas's layout of the constant bank depends on all of it. `debug` are DWARF sections at the
    end, for kernels with `target="sm_90a, debug"`. With `joined`, `if_` and `loop` make at most one label at a place, and no label without
    a branch to it, as compilers do. This matters because ptxas begins a basic block at each label, which can change its schedule.
    """

    def __init__(self, declarations: str = "", *, version: tuple[int, int] = (8, 0), debug: str = "", joined: bool = True) -> None:
        self.declarations = declarations
        self.version = version
        self.debug = debug
        self.joined = joined
        self.members: list[Any] = []
        self.files: dict[str, int] = {}
        self._traced: dict[Any, Any] = {}

    def traced(self, one: Any, module: ModuleBuilder) -> dict[Any, Any]:
        """All other members of the module: kernels as traces, device functions as trees. With marks they are traced again."""
        for member in self.members:
            if member is not one and (member not in self._traced or module.marks is not None):
                self._traced[member] = member.trace(module) if isinstance(member, Function) else member.part()
        return {member: self._traced[member] for member in self.members if member is not one}


class Function:
    """A device function whose signature is written as PTX text."""

    def __init__(self, function: Callable[..., None], head: tree.Function) -> None:
        self.function = function
        self.head = head
        self.name = self.__name__ = head.name
        self.__doc__ = function.__doc__

    def trace(self, module: ModuleBuilder) -> tree.Function:
        """The function with its body, for one module."""
        code = self.function.__code__
        builder = Builder(module, self.name, Position(named(code.co_filename), code.co_firstlineno))
        returns, returned = _formals(builder, self.head.returns)
        parameters, given = _formals(builder, self.head.parameters)
        builder.parameters.update(variable.name for variable in (*returns, *parameters))
        with tracing(builder):
            self.function(*returned, *given)
            body = builder.finish()
        kept = {v.name for v in (*returns, *parameters) if v.space == "reg"}
        return tree.Function("func", self.name, parameters, returns, self.head.directives, _without(body, builder, kept),
                             self.head.linkage, self.head.attributes)


def function(signature: str, module: Module) -> Callable[[Callable[..., None]], Function]:
    """Make a Python function a `.func` of a module, with this signature: `@function(".func (.param .b32 r) f (.param .b64 a)", MODULE)`.

    The Python function takes the results, then the parameters: a `Param` for each one in `.param`, a register for each one in `.reg`. It
    refers to vectors and 8-bit registers by name: `raw("v.x")`.
    """
    items = declarations(f"{signature};")
    if len(items) != 1 or not isinstance(items[0], tree.Function) or items[0].kind != "func":
        raise TraceError(f"@function takes the head of one .func, not {signature!r}")
    head = items[0]

    def decorate(python: Callable[..., None]) -> Function:
        made = Function(python, head)
        module.members.append(made)
        return made

    return decorate


def held(variable: tree.Variable) -> bool:
    """Whether the variable is a `Reg` in Python. Vectors and 8-bit registers are not: the DSL does not have them."""
    return variable.space == "reg" and variable.vector == 1 and width(variable.type) != 8


def _formals(builder: Builder, variables: tuple[tree.Variable, ...]) -> tuple[tuple[tree.Variable, ...], list[Any]]:
    """The declarations of the parameters, and their values in Python."""
    declared: list[tree.Variable] = []
    values: list[Any] = []
    for variable in variables:
        value: Any = Param(variable.name)
        if held(variable):
            value = builder.register(scalar(variable.type))
            variable = tree.Variable("reg", variable.type, value.name)
        declared.append(variable)
        values.append(value)
    return tuple(declared), values


def _without(body: tuple[tree.Statement, ...], builder: Builder, names: set[str]) -> tuple[tree.Statement, ...]:
    """The body without declarations of registers that are parameters. The other registers of a range are declared one by one."""
    if not names:
        return body
    made: list[tree.Statement] = []
    for statement in body:
        if isinstance(statement, tree.Variable) and statement.space == "reg" and statement.count is not None:
            each = [f"{statement.name}{i}" for i in range(statement.count)]
            made += [tree.Variable("reg", statement.type, name) for name in each if name not in names]
        else:
            made.append(statement)
    return tuple(made)


__all__ = ["Module", "Param", "Written", "at", "function", "raw", "register", "registers", "scope", "verbatim"]
