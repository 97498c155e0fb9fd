"""Machine code with the PTX line that each instruction comes from.

ptxas keeps one line table. So that it holds PTX lines, the module is written again with a `.loc` of its own before every instruction and
assembled; where its machine code is that of the original, byte for byte, the table is true of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import AssembleError, NoToolError
from ..grammar import tree
from ..grammar.write import write
from ..sass.listing import MachineLine, lines, texts
from .resources import instructions_of

_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
NAME = "text.ptx"


def numbered(module: tree.Module) -> str:
    """The module's text with a `.loc` before every instruction that names its line; of other lines it says nothing."""
    debugger = "debug" in module.target  # ptxas -g goes by its sections
    items = [item for item in module.items
             if not (isinstance(item, tree.Directive) and item.name in ("file", "loc"))
             and not (isinstance(item, tree.Section) and item.name.startswith(".debug") and not debugger)]
    made = [replace(item, body=tuple(_numbered(item.body))) if isinstance(item, tree.Function) and item.body is not None else item
            for item in items]
    file = tree.Directive("file", (1, tree.Text(NAME)))
    return write(replace(module, items=(file, *made)), locs=True)


def _numbered(body: tuple[tree.Statement, ...]) -> Iterator[tree.Statement]:
    for statement in body:
        if isinstance(statement, tree.Loc):
            continue
        if isinstance(statement, tree.Block):
            yield replace(statement, body=tuple(_numbered(statement.body)))
            continue
        if isinstance(statement, tree.Instruction) and statement.position is not None:
            yield tree.Loc(1, statement.position.line, 0)
        yield statement


def linked(module: tree.Module, target: str, code: bytes) -> tuple[tuple[MachineLine, ...], str]:
    """(the machine code of the cubin `code` with PTX lines, why there are none or no lines: "" when all is well)"""
    from ..runtime.toolchain import assemble, disassemble

    try:
        other = assemble(numbered(module), target, exact_lines=True).cubin
        if texts(code) == texts(other):
            return products(module, tuple(lines(disassemble(other, lines=True)))), ""
        why = "with a line table ptxas makes other code of this module"
    except (NoToolError, AssembleError) as error:
        why = str(error).splitlines()[0]
    try:
        return tuple(lines(disassemble(code))), f"machine code without PTX lines: {why}"
    except (NoToolError, AssembleError) as error:
        return (), str(error).splitlines()[0]


def products(module: tree.Module, found: tuple[MachineLine, ...]) -> tuple[MachineLine, ...]:
    """The lines of matrix products put right: ptxas's line table has none for HGMMA, which then seem to come from the line before.

    A product comes from the wgmmas of its shape in its entry: in their order where there are as many, else from one of them.
    """
    made: list[MachineLine] = list(found)
    for entry in module.entries:
        wanted: dict[str, list[int]] = {}
        for instruction in instructions_of(module, entry):
            shape = _SHAPE.search(instruction.opcode)
            if instruction.opcode.startswith("wgmma.mma_async") and shape and instruction.position:
                wanted.setdefault("x".join(shape.groups()), []).append(instruction.position.line)
        for size, lines_of in wanted.items():
            places = [index for index, line in enumerate(made) if line.function == entry.name and f"GMMA.{size}." in f"{line.text}."]
            for number, index in enumerate(places):
                exact = (lines_of[number],) if len(places) == len(lines_of) else tuple(dict.fromkeys(lines_of))
                made[index] = replace(made[index], ptx_lines=exact)
    return tuple(made)
