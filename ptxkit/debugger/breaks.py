"""Where a session stops, and why it has stopped."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..html.parts import framed, pre
from ..sim.errors import SimulationError
from ..sim.values import lane_list
from .rows import BreakRow, RegisterRow
from .values import lanes_words

if TYPE_CHECKING:
    from ..grammar.errors import Finding, Position


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge,
                                                   "<": operator.lt, ">": operator.gt}


@dataclass(frozen=True, slots=True)
class Condition:
    """That a register, by the author's name or PTX's, compares so with a number in any of the lanes."""

    name: str
    comparison: str
    value: float

    @classmethod
    def of(cls, text: str) -> Condition:
        found = re.fullmatch(r"\s*(\S+?)\s*(==|!=|<=|>=|<|>)\s*(-?(?:0x[0-9a-fA-F]+|[\d.]+(?:e-?\d+)?))\s*", text)
        if found is None:
            raise SimulationError(f"{text!r} is no condition: write a register, a comparison and a number, as k == 3")
        whole = re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", found[3])
        return cls(found[1], found[2], int(found[3], 0) if whole else float(found[3]))

    def holds(self, rows: Iterable[RegisterRow]) -> bool:
        """For the registers that have the name."""
        compare = OPERATORS[self.comparison]
        return any(bool(compare(row.of_values[lane], self.value)) for row in rows for lane in lane_list(row.of_lanes))

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.value}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, or of the PTX text (`file` is "ptx"), with the instructions at which a stop at the line stops."""

    file: str
    line: int
    ops: frozenset[int]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False)
class Breakpoint:
    """`at` is a line, the name of a barrier ("" is any) or None for findings. It holds for one CTA or warp where they are given, `when` its
    condition holds, and is passed over `skip` times first. `hits` counts how often it was reached.
    """

    number: int
    kind: str
    at: Line | str | None = None
    cta: int | None = None
    warp: int | None = None
    phase: int | None = None
    when: Condition | None = None
    skip: int = 0
    hits: int = 0

    def takes(self, cta: int, warp: int) -> bool:
        """Whether lanes of this warp at the line are meant."""
        return self.cta in (None, cta) and self.warp in (None, warp)

    def hit(self) -> bool:
        """It is reached: whether to stop."""
        self.hits += 1
        return self.hits > self.skip

    def row(self) -> BreakRow:
        """As it stands in a list."""
        head, _, only = str(self).partition(" (")
        skipped = f" after {self.skip} hits" if self.skip else ""
        return BreakRow(self.number, head.partition(" at ")[2], only.rstrip(")") + skipped, self.hits)

    def __str__(self) -> str:
        what = str(self.at) if self.kind == "line" else f"phase of {self.at or 'any barrier'}" if self.kind == "phase" else "finding"
        given = (("phase", self.phase), ("CTA", self.cta), ("warp", self.warp), ("when", self.when))
        only = [f"{name} {value}" for name, value in given if value is not None]
        return f"break {self.number} at {what}" + (f" ({', '.join(only)})" if only else "")


SAID = "finding", "deadlock", "fault", "end"
"""The reasons whose text has the findings."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run stands: `reason` is "start", "step", "line", "waits", "parted", "break", "phase", "finding", "interrupt", "deadlock",
    "fault" or "end". The rest says who executes the next instruction, and where that is.
    """

    reason: str
    text: str
    cta: int | None = None
    warp: int | None = None
    lanes: int = 0
    opcode: str = ""
    position: Position | None = None
    ptx_line: int | None = None
    number: int | None = None
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        said = [] if self.reason in SAID else [f"finding: {finding}" for finding in self.findings]
        if self.text:
            said.append(self.text)
        if self.cta is None and self.reason not in SAID:
            said.append("nobody can go on until something lands: all wait")
        if self.cta is not None:
            lanes = lanes_words(self.lanes)
            said.append(f"CTA {self.cta} warp {self.warp}" + (f" lanes {lanes}" if lanes else "") + f" is at {self._where()}")
        return "\n".join(said)

    def _where(self) -> str:
        if not self.opcode:
            return "its end"
        return f"`{self.opcode}`" + (f" ({self.position})" if self.position else "")

    def _repr_html_(self) -> str:
        return framed(pre(str(self), wrapped=True))

    __repr__ = __str__
