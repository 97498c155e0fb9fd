"""The DWARF sections of a module for a debugger, and which names of its functions they refer to.

ptxas -g keeps what they describe: where a variable is in a register from one label to another, that register lives so long. The machine
code therefore depends on them, and what they name must keep its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..grammar import tree
from ..grammar.write import write_items
from .scopes import value_names

_LOCATIONS = (0x90, 0x92)
"""DW_OP_regx and DW_OP_bregx, which a register's number follows."""
_BYTES = 24
"""So many bytes in a row of the sections."""


def of_debugger(module: tree.Module) -> bool:
    """Whether the module has the debug target, by which ptxas -g goes."""
    return "debug" in module.target[1:]


def sections(module: tree.Module) -> tuple[tree.Section, ...]:
    """The sections that a module with the debug target needs."""
    return tuple(item for item in module.items if isinstance(item, tree.Section)) if of_debugger(module) else ()


def mentioned(sections: Iterable[tree.Section]) -> frozenset[str]:
    """The labels, variables, parameters and registers in the sections: at least all that are meant."""
    found: set[str] = set()
    for section in sections:
        for run in _runs(section, found):
            found.update(_registers(run))
    return frozenset(found)


def text(sections: Iterable[tree.Section]) -> list[str]:
    """The sections as lines of PTX, with many bytes in a line."""
    whole = write_items(tree.Section(section.name, tuple(_wide(section.rows))) for section in sections)
    return [line for line in whole.splitlines() if line]


def _runs(section: tree.Section, names: set[str]) -> Iterator[bytes]:
    """Bytes without anything else between them; the names between them are put into `names`."""
    run = bytearray()
    for row in section.rows:
        for value in row.values if isinstance(row, tree.Data) else ():
            if isinstance(row, tree.Data) and row.type == "b8" and isinstance(value, tree.Integer):
                run.append(value.value & 0xFF)
                continue
            yield bytes(run)
            run.clear()
            names.update(value_names(value))
    yield bytes(run)


def _registers(run: bytes) -> Iterator[str]:
    """What may be registers in bytes: a number, in LEB128, whose own bytes spell a name."""
    for at, byte in enumerate(run):
        if byte not in _LOCATIONS:
            continue
        number = 0
        for index, each in enumerate(run[at + 1:at + 11]):
            number |= (each & 0x7F) << 7 * index
            if not each & 0x80:
                spelled = number.to_bytes((number.bit_length() + 7) // 8, "big")
                if spelled.isascii():
                    yield spelled.decode()
                break


def _wide(rows: Iterable[tree.Label | tree.Data]) -> Iterator[tree.Label | tree.Data]:
    """The same data in fewer rows."""
    run: list[tree.Constant] = []
    for row in rows:
        if isinstance(row, tree.Data) and row.type == "b8":
            run += row.values
            continue
        yield from _cut(run)
        run = []
        yield row
    yield from _cut(run)


def _cut(run: list[tree.Constant]) -> Iterator[tree.Data]:
    for at in range(0, len(run), _BYTES):
        yield tree.Data("b8", tuple(run[at:at + _BYTES]))
