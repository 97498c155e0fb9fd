"""Tree to text: one canonical spelling of a module. Equal trees give the same bytes, and the text parses back to an equal tree.

Each statement has a line, each scope is indented by four spaces, and labels stand at the margin of their scope. Integers are decimal, and
floating-point literals are written by their bits.
"""

from __future__ import annotations

from collections.abc import Iterable

from .tree import (
    Address,
    Aggregate,
    Alias,
    Arguments,
    Block,
    Data,
    Directive,
    Element,
    Expression,
    Float,
    Function,
    Initializer,
    Instruction,
    Integer,
    Item,
    Label,
    Loc,
    Minus,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Prototype,
    Section,
    Statement,
    Targets,
    TensorAddress,
    Text,
    Variable,
    Vector,
)

INDENT = "    "
WIDTH = 120
LOWEST = -(1 << 63)


def write(module: Module, *, locs: bool = True) -> str:
    """The module as PTX text; `locs=False` leaves out `.loc` and `.file`."""
    lines = [f".version {module.version[0]}.{module.version[1]}", f".target {', '.join(module.target)}"]
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    items = write_items(module.items, locs=locs)
    if items:
        lines += ["", items]
    lines.append("")
    return "\n".join(lines)


def write_items(items: Iterable[Item], *, locs: bool = True) -> str:
    """The text of a module's items, without a line break at the end."""
    lines: list[str] = []
    before: type | None = None
    for item in items:
        if not locs and isinstance(item, Directive) and item.name == "file":
            continue
        if lines and (type(item) is not before or isinstance(item, (Function, Section))):
            lines.append("")
        before = type(item)
        if isinstance(item, Variable):
            lines.append(_variable(item) + ";")
        elif isinstance(item, Function):
            _function(item, lines, locs)
        elif isinstance(item, Directive):
            lines.append(_directive(item, ";"))
        elif isinstance(item, Alias):
            lines.append(f".alias {item.name}, {item.target};")
        else:
            _section(item, lines)
    return "\n".join(lines)


def write_statement(statement: Statement) -> str:
    """A statement of a body in one line."""
    lines: list[str] = []
    _body((statement,), lines, "", True)
    return " ".join([line.strip() for line in "\n".join(lines).splitlines()])


def write_instruction(instruction: Instruction) -> str:
    """An instruction with its guard and semicolon, without indentation."""
    operands = instruction.operands
    guard = instruction.guard
    text = instruction.opcode
    if operands:
        text += " " + ", ".join([o.name if type(o) is Name else write_operand(o) for o in operands])
    if guard is None:
        return text + ";"
    return f"@{'!' if guard.negated else ''}{guard.predicate} {text};"


def write_operand(operand: Operand) -> str:
    """An operand as it stands in an instruction."""
    kind = type(operand)
    if isinstance(operand, Name):
        return operand.name
    if isinstance(operand, Integer):
        if operand.value == LOWEST:
            return "(.s64)9223372036854775808"  # the digits alone do not fit 63 bits, so they would be unsigned
        return f"{operand.value}U" if operand.unsigned else str(operand.value)
    if isinstance(operand, Address):
        base = operand.base.name if type(operand.base) is Name else write_operand(operand.base)
        text = f"[{base}+{operand.offset}]" if operand.offset or operand.displaced else f"[{base}]"
        return f"{text}.unified" if operand.unified else text
    if isinstance(operand, Vector):
        return "{" + _list(operand.elements) + "}"
    if isinstance(operand, Float):
        return f"0f{operand.bits:08X}" if operand.width == 32 else f"0d{operand.bits:016X}"
    if isinstance(operand, Pair):
        return f"{write_operand(operand.first)}|{write_operand(operand.second)}"
    if isinstance(operand, Not):
        return "!" + write_operand(operand.operand)
    if isinstance(operand, Arguments):
        return "(" + _list(operand.elements) + ")"
    if isinstance(operand, TensorAddress):
        sampler = "" if operand.sampler is None else f", {operand.sampler.name}"
        return f"[{operand.tensormap.name}{sampler}, {write_operand(operand.coordinates)}]"
    if isinstance(operand, Offset):
        return f"{operand.base.name}+{operand.offset}"
    if isinstance(operand, Element):
        index = operand.index.name if isinstance(operand.index, Name) else write_operand(operand.index)
        return f"{operand.base.name}[{index}+{operand.offset}]" if operand.offset else f"{operand.base.name}[{index}]"
    if isinstance(operand, Minus):
        return "-" + write_operand(operand.operand)
    raise TypeError(f"{kind.__name__} is not an operand")


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join([o.name if type(o) is Name else write_operand(o) for o in operands])


# -------------------------------------------------------------------------------------------- functions and statements


def _function(function: Function, lines: list[str], locs: bool) -> None:
    head = f".{function.linkage} " if function.linkage else ""
    head += f".{function.kind} {_attributes(function.attributes)}"
    if function.returns:
        head += f"({', '.join(map(_variable, function.returns))}) "
    if function.parameters:
        lines.append(f"{head}{function.name}(")
        lines.append(",\n".join([INDENT + _variable(p) for p in function.parameters]))
        lines.append(")")
    else:
        lines.append(f"{head}{function.name}()")
    lines.extend([_directive(d, ";" if d.name == "pragma" else "") for d in function.directives])
    if function.body is None:
        lines[-1] += ";"
        return
    lines.append("{")
    _body(function.body, lines, "", locs)
    lines.append("}")


def _body(body: tuple[Statement, ...], lines: list[str], margin: str, locs: bool) -> None:
    indent = margin + INDENT
    declaring = False
    for statement in body:
        kind = type(statement)
        if declaring and kind is not Variable:
            lines.append("")
        declaring = kind is Variable
        if isinstance(statement, Instruction):
            lines.append(indent + write_instruction(statement))
        elif isinstance(statement, Loc):
            if locs:
                lines.append(indent + _loc(statement))
        elif isinstance(statement, Label):
            lines.append(f"{margin}{statement.name}:")
        elif isinstance(statement, Variable):
            lines.append(f"{indent}{_variable(statement)};")
        elif isinstance(statement, Block):
            lines.append(indent + "{")
            _body(statement.body, lines, indent, locs)
            lines.append(indent + "}")
        elif isinstance(statement, Directive):
            lines.append(indent + _directive(statement, ";"))
        elif isinstance(statement, Targets):
            lines.append(f"{margin}{statement.label}: .{statement.kind} {', '.join(statement.names)};")
        else:
            lines.append(margin + _prototype(statement))


def _prototype(prototype: Prototype) -> str:
    returns = ", ".join(map(_variable, prototype.returns))
    parameters = ", ".join(map(_variable, prototype.parameters))
    directives = "".join([" " + _directive(d, "") for d in prototype.directives])
    return f"{prototype.label}: .callprototype ({returns}) _ ({parameters}){directives};"


def _directive(directive: Directive, end: str) -> str:
    words = [_quoted(a) if isinstance(a, Text) else str(a) for a in directive.arguments]
    if directive.name == "file":
        return f".file {words[0]} {', '.join(words[1:])}"
    return f".{directive.name}{' ' if words else ''}{', '.join(words)}{end}"


def _quoted(text: Text) -> str:
    if '"' in text.value or "\n" in text.value:
        raise ValueError(f"a PTX string cannot hold a quote or a line break: {text.value!r}")
    return f'"{text.value}"'


def _loc(loc: Loc) -> str:
    text = f".loc {loc.file} {loc.line} {loc.column}"
    if loc.inlined is None:
        return text
    name, offset, file, line, column = loc.inlined
    return f"{text}, function_name {name}{f'+{offset}' if offset else ''}, inlined_at {file} {line} {column}"


# ------------------------------------------------------------------------------------------ declarations and constants


def _attributes(attributes: tuple[str, ...]) -> str:
    return f".attribute({', '.join(['.' + a for a in attributes])}) " if attributes else ""


def _variable(variable: Variable) -> str:
    """A declaration without its semicolon."""
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append("." + variable.space)
    if variable.attributes:
        words.append(_attributes(variable.attributes).rstrip())
    if variable.align is not None:
        words.append(f".align {variable.align}")
    if variable.vector != 1:
        words.append(f".v{variable.vector}")
    words.append("." + variable.type)
    if variable.pointer is not None:
        words.append(".ptr")
        if variable.pointer.space:
            words.append("." + variable.pointer.space)
        if variable.pointer.align is not None:
            words.append(f".align {variable.pointer.align}")
    name = variable.name if variable.count is None else f"{variable.name}<{variable.count}>"
    words.append(name + "".join(["[]" if extent is None else f"[{extent}]" for extent in variable.shape]))
    text = " ".join(words)
    return text if variable.initializer is None else f"{text} = {_initializer(variable.initializer)}"


def _initializer(value: Initializer) -> str:
    if isinstance(value, Aggregate):
        return "{" + _wrapped([_initializer(e) for e in value.elements]) + "}"
    if isinstance(value, Expression):
        return _expression(value)
    return write_operand(value)


def _wrapped(words: list[str]) -> str:
    """The words separated by commas, in several lines if they are too long for one."""
    line = ", ".join(words)
    if len(line) < WIDTH:
        return line
    lines, line = [], INDENT
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line.rstrip())
            line = INDENT
        line += word + ", "
    return "\n" + "\n".join([*lines, line[:-2]]) + "\n"


def _expression(value: Expression) -> str:
    words = [_initializer(o) for o in value.operands]
    if value.operator == "generic":
        return f"generic({words[0]})"
    if value.operator == "mask":
        mask = value.operands[0]
        return f"{mask.value:#x}({words[1]})" if isinstance(mask, Integer) else f"{words[0]}({words[1]})"
    if value.operator == "=":
        return f"{words[0]} = {words[1]}"
    return f"{words[0]}{value.operator}{words[1]}"


def _section(section: Section, lines: list[str]) -> None:
    lines.append(f".section {section.name}")
    lines.append("{")
    lines.extend([_data(row) if isinstance(row, Data) else f"{row.name}:" for row in section.rows])
    lines.append("}")


def _data(row: Data) -> str:
    return f".{row.type} {', '.join([_initializer(value) for value in row.values])}"
