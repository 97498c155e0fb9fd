"""What a line of the author's source became: PTX, and machine code."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AssembleError, NoToolError, Position, PtxkitError
from ..html.parts import SUFFIXES
from ..sass.listing import MachineLine
from .linked import linked

if TYPE_CHECKING:
    from ..dsl.traced import Traced


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the source, the PTX that it emits with the numbers of its lines, and the machine code of that with its offsets in bytes."""

    position: Position
    text: str
    ptx: tuple[tuple[int, str], ...]
    sass: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        lines = [f"{self.position.file}:{self.position.line}  {self.text}"]
        lines += [f"  PTX   {number:>4}  {shortened(text)}" for number, text in self.ptx]
        lines += [f"  SASS  {offset:04x}  {text}" for offset, text in self.sass]
        return "\n".join(lines)


class Trail(tuple[Step, ...]):
    """Lines in their order. `said`: why there is no machine code, or no lines of it, "" when all is well."""

    said: str = ""

    def __str__(self) -> str:
        return "\n".join([*map(str, self), *([self.said] if self.said else [])])

    def _repr_html_(self) -> str:
        from ..html.kernels import trail

        rows = [[("PTX", str(number), shortened(text)) for number, text in step.ptx]
                + [("SASS", f"{offset:04x}", text) for offset, text in step.sass] for step in self]
        return trail([(f"{step.position.line}  {step.text}", of) for step, of in zip(self, rows, strict=True)], self.said)


def followed(traced: Traced, where: str | int | None) -> Trail:
    """The lines that `where` names. Raises PtxkitError where it names none."""
    _, authors = traced.numbered()
    text = traced.ptx(locs=True).split("\n")
    machine, said = _machine(traced)
    steps = []
    for position in sorted({position for position in authors.values() if position.file}, key=lambda at: (str(at.file), at.line)):
        source = _text(position)
        if where is not None and (position.line != where if isinstance(where, int) else where not in source):
            continue
        numbers = [number for number, author in authors.items() if author == position]
        ptx = tuple((number, text[number - 1].strip()) for number in numbers)
        sass = tuple((line.offset or 0, line.text) for line in machine if set(numbers) & set(line.ptx_lines))
        steps.append(Step(position, source, ptx, sass))
    if not steps:
        raise PtxkitError(f"no line of `{traced.name}` that emits is {where!r}: give the number of one, or a part of its text")
    made = Trail(steps)
    made.said = said
    return made


def shortened(text: str) -> str:
    """An instruction with the middle of long vectors left out, for showing."""
    return _LONG.sub(r"\1, ..., \2", text)


_LONG = re.compile(r"(\{[^{},]+)(?:,[^{},]+){7,}, ([^{},]+\})")


def _machine(traced: Traced) -> tuple[tuple[MachineLine, ...], str]:
    from ..runtime.toolchain import assemble

    module, _ = traced.numbered()
    target = traced.module.target[0]
    try:
        code = assemble(traced.ptx(locs=True), target, lines=traced.positions()).cubin
    except (NoToolError, AssembleError) as error:
        return (), str(error).splitlines()[0]
    machine, said = linked(module, target, code)
    kept = [line for line in machine if line.function == traced.name and line.offset is not None]
    while kept and kept[-1].text == "NOP":                               # the code of a function is padded with them
        kept.pop()
    return tuple(kept), said


def _text(position: Position) -> str:
    """The line of the source, "" where it cannot be read."""
    assert position.file is not None
    if not position.file.endswith(tuple(SUFFIXES)) and position.file not in linecache.cache:
        return ""
    linecache.checkcache(position.file)
    return linecache.getline(position.file, position.line).strip()


__all__ = ["Step", "Trail", "followed"]
