"""Reads the machine code that nvdisasm writes, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from . import cubin

_HEADER = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*\S)\s*$")
_LABEL = re.compile(r"^(\.L\w+):")
_FILE = re.compile(r'^\s*//## File "[^"]*", line (\d+)')


@dataclass(frozen=True, slots=True)
class MachineLine:
    """An instruction of `function` at `offset` bytes, or a label (offset None).

    `ptx_lines` are the PTX lines of its origin: one line, () if unknown, or several if it comes from one of them.
    """

    function: str
    offset: int | None
    text: str
    ptx_lines: tuple[int, ...] = ()


def lines(disassembly: str) -> Iterator[MachineLine]:
    """The instructions and labels of nvdisasm's output. The PTX lines come from its line comments."""
    function, line = "", None
    for text in disassembly.splitlines():
        if found := _HEADER.match(text):
            function, line = found[1], None
        elif not function:
            continue
        elif text.lstrip().startswith(".section"):
            function = ""
        elif found := _FILE.match(text):
            if "inlined at" not in text:
                line = int(found[1])
        elif found := _LABEL.match(text):
            yield MachineLine(function, None, f"{found[1]}:")
        elif found := _INSTRUCTION.match(text):
            yield MachineLine(function, int(found[1], 16), found[2].removesuffix(";").rstrip(), () if line is None else (line,))


def texts(code: bytes) -> dict[str, bytes]:
    """The machine code of a cubin by section."""
    return {name: data for name, data in cubin.read(code).sections.items() if name.startswith(".text")}
