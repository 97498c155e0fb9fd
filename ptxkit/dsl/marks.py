"""Marks of a kernel: `mark("load")`, `with span("mma"):`, `role("producer")`.

They emit nothing, unless the kernel is traced with `marks=`: then a warp writes the clocks into its slice of a buffer that the launch adds.
A slice belongs to a warp and a role. Its writer is the first lane of the warp, or, where one thread says the role, that thread. It begins
with a header of `HEADER` bytes; an event has `EVENT` bytes. A span is one event, written at its end. `ptxkit.timeline` reads the buffer.

Emitted, with marks on: for `mark` a clock, the comparison of the cursor with the end of the slice, a store of 16 bytes where it is before
it, and the addition to the cursor; for `span` also a 32-bit clock at its begin. The cursor and the end are two 64-bit registers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..ptx import add, cvt, mad, mov, mul, red, selp, setp, shr, st, sub
from ..ptx import and_ as and_bits
from ..types import ScalarType, b32, b64, pred, u32, u64
from .ambient import current
from .blocks import Block
from .reg import Ptr, Reg, Vec
from .special import Dim3, clock, clock64, ctaid, globaltimer, laneid, nctaid, ntid, smid, tid
from .trace import Builder

HEADER, EVENT = 64, 16
"""Bytes of a slice's header and of an event."""
POINT = 1 << 31
"""The bit of an event's identity that says `mark`, not `span`."""
BUFFER, SLICE_BYTES, WARP_BYTES = "ptxkit_marks", "ptxkit_marks_slice", "ptxkit_marks_warp"
"""The parameters that marks add to a kernel: the buffer's address, and the bytes of a slice and of all slices of a warp."""
CURSOR, AT = "%marks_cursor", "%marks_at"
"""The registers through which marks write, and nothing else."""
BEGAN, ENDED, COUNT, MOST, LOST, WHO = 0, 16, 32, 36, 40, 48
"""Places in a header: clock64 and globaltimer at both ends; events of the writer; the most of any lane; events of single threads that are
not the writer; CTA, warp, role and SM."""
MOST_NAMES = 1 << 16

Selection = bool | Collection[str]


@dataclass(frozen=True, slots=True)
class Named:
    """What the numbers in a buffer of marks stand for. The first role is that of warps that have said none."""

    names: tuple[str, ...]
    roles: tuple[str, ...]


class Table:
    """The names of a kernel's marks while it is traced. `only`: the names that are emitted, None for all."""

    def __init__(self, only: frozenset[str] | None) -> None:
        self.only = only
        self.names: list[str] = []
        self.roles = [""]
        self.seen: set[str] = set()

    def enter(self, builder: Builder, parameter: str) -> None:
        """Begin the marks of a function: `parameter` is the address of its caller's state."""
        builder.marks = Marks(builder, self)
        builder.marks.enter(parameter)

    def wanted(self, name: str) -> bool:
        self.seen.add(name)
        return self.only is None or name in self.only

    def number(self, name: str) -> int:
        if name not in self.names:
            if len(self.names) == MOST_NAMES:
                raise TraceError(f"a kernel has at most {MOST_NAMES:,} names of marks: a name does not count what a loop counts")
            self.names.append(name)
        return self.names.index(name)

    def named(self, kernel: str) -> Named:
        """All names, once the kernel is traced. Raises TraceError for one that was asked for and is not there."""
        if self.only is not None and (missing := sorted(self.only - self.seen)):
            has = ", ".join(sorted(self.seen)) or "no marks"
            raise TraceError(f"kernel `{kernel}` has no mark or span {missing[0]!r}: it has {has}")
        return Named(tuple(self.names), tuple(self.roles))


def selected(marks: Selection) -> tuple[str, ...] | bool:
    """`marks=` of a trace as a key: False, True, or the names in order."""
    if isinstance(marks, bool):
        return marks
    if isinstance(marks, str) or not all(isinstance(name, str) for name in marks):
        raise TraceError(f"marks is True, or names of marks and spans as (\"load\", \"mma\"), not {marks!r}")
    return tuple(sorted(set(marks)))


def begun(builder: Builder, marks: tuple[str, ...] | bool) -> tuple[tuple[str, str, ScalarType], ...]:
    """Begin the marks of a kernel at its entry. Name, kind and type of the parameters that they add."""
    builder.module.marks = table = Table(None if isinstance(marks, bool) else frozenset(marks))
    builder.marks = Marks(builder, table)
    builder.marks.begin()
    return (BUFFER, "pointer", u64), (SLICE_BYTES, "scalar", u32), (WARP_BYTES, "scalar", u32)


class Marks:
    """The registers of marks in one function, and what is emitted."""

    def __init__(self, builder: Builder, table: Table) -> None:
        self.builder, self.table = builder, table
        self.cursor = builder.register(u64, CURSOR)
        self.limit = builder.register(u64, "%marks_limit")
        self.lost = builder.register(u32, "%marks_lost")
        self.at = builder.register(u64, AT)
        self.frame: Reg[u64] | None = None
        self.opened = 0                      # the regions that were open where the role was said
        self.closing = False

    # ------------------------------------------------------------------ a kernel's warps

    def begin(self) -> None:
        """At the kernel's entry: the slice of warps that have said no role."""
        mov.u32(self.lost, 0)
        self._open(0, _first_lane())

    def role(self, name: str) -> None:
        builder = self.builder
        if self.frame is not None:
            raise TraceError(f"a warp says its role in the kernel, not in the @func `{builder.name}`: say role({name!r}) before the call")
        if builder.repeats():
            raise TraceError(f"role({name!r}) stands in a loop: a warp says a role once, before its loops")
        if name in self.table.roles:
            raise TraceError(f"role({name!r}) is said twice in `{builder.name}`: where two places have one role, say it before they part")
        self.table.roles.append(name)
        self._close()
        writer = None if _alone(builder) else _first_lane()
        self.opened = len(builder.regions.open)
        self._open(len(self.table.roles) - 1, writer)

    def _open(self, number: int, writer: Reg[pred] | None) -> None:
        """Begin a slice. `writer` None: the one thread that is here."""
        cta = _linear(ctaid, nctaid)
        warp = shr.u32(_linear(tid, ntid), 5)
        threads = mul.lo.u32(mul.lo.u32(mov.u32(ntid.x), mov.u32(ntid.y)), mov.u32(ntid.z))
        warps = shr.u32(add.u32(threads, 31), 5)
        slice_bytes = self._parameter(u32, SLICE_BYTES)
        base: Any = mov.u64(self._parameter(u64, BUFFER))
        self.builder.emit("cvta.to.global.u64", (base.operand(), base.operand()))
        mad.wide.u32(base, mad.lo.u32(cta, warps, warp), self._parameter(u32, WARP_BYTES), base)
        mad.wide.u32(self.at, slice_bytes, number, base)
        add.u64(self.cursor, self.at, HEADER)
        add.u64(self.limit, self.at, cvt.u64.u32(slice_bytes))
        if writer is not None:
            selp.b64(self.limit, self.limit, add.u64(self.at, 1), writer)
        st.global_.v4.b32(self._place(self.at, WHO), _vec(cta, warp, mov.u32(number), mov.u32(smid)), pred=writer)
        st.global_.v2.b64(self._place(self.at, BEGAN), _vec(mov.u64(clock64), mov.u64(globaltimer)), pred=writer)

    def _close(self) -> None:
        """End the slice: only the writer's limit is even."""
        other = and_bits.b64(self.limit, 1)
        writer = setp.eq.u64(other, 0)
        length = cvt.u64.u32(self._parameter(u32, SLICE_BYTES))
        sub.u64(self.at, self.limit, selp.b64(length, other, writer))
        count = cvt.u32.u64(shr.u64(sub.u64(sub.u64(self.cursor, self.at), HEADER), 4))
        st.global_.v2.b64(self._place(self.at, ENDED), _vec(mov.u64(clock64), mov.u64(globaltimer)), pred=writer)
        st.global_.b32(self._place(self.at, COUNT), count, pred=writer)
        red.relaxed.gpu.global_.max.u32(self._place(self.at, MOST), count)
        red.relaxed.gpu.global_.add.u32(self._place(self.at, LOST), self.lost, pred=setp.ne.u32(self.lost, 0))
        mov.u32(self.lost, 0)

    # ------------------------------------------------------------------ events

    def point(self, name: str) -> None:
        now = mov.u64(clock64)
        self._event(now, mov.u32(0), POINT | self.table.number(name))

    def span(self, name: str, begin: Reg[u32]) -> None:
        now = mov.u64(clock64)
        self._event(now, sub.u32(cvt.u32.u64(now), begin), self.table.number(name))

    def _event(self, now: Reg[u64], clocks: Reg[u32], identity: int) -> None:
        """The clock at the end, the clocks since the begin, and what it is."""
        low, high = self.builder.register(b32), self.builder.register(b32)
        self.builder.emit("mov.b64", (tree.Vector((low.operand(), high.operand())), now.operand()))
        room = setp.lt.u64(self.cursor, self.limit)
        st.global_.v4.b32(self._place(self.cursor, 0), _vec(low, high, clocks, mov.u32(identity)), pred=room)
        add.u64(self.cursor, self.cursor, EVENT)
        if _alone(self.builder, self.opened):
            add.u32(self.lost, self.lost, cvt.u32.u64(and_bits.b64(self.limit, 1)))

    # ------------------------------------------------------------------ functions, and the ways out

    def enter(self, parameter: str) -> None:
        """At the entry of a function: the state is in the caller's frame."""
        self.frame = frame = self._parameter(u64, parameter)
        for i, register in enumerate((self.cursor, self.limit, self.lost)):
            self._move("ld", register, frame, 8 * i)

    def _move(self, opcode: str, register: Reg[Any], frame: Reg[u64], offset: int) -> None:
        place: tree.Operand = tree.Address(tree.Name(frame.name), offset)
        operands = (register.operand(), place) if opcode == "ld" else (place, register.operand())
        self.builder.emit(f"{opcode}.local.{register.type.__name__}", operands)

    def saved(self, name: str) -> Reg[u64]:
        """Before a call: the state in a frame of local memory, by its address."""
        frame = self.builder.register(u64)
        self.builder.emit("mov.u64", (frame.operand(), tree.Name(name)))
        for i, register in enumerate((self.cursor, self.limit, self.lost)):
            self._move("st", register, frame, 8 * i)
        return frame

    def restored(self, frame: Reg[u64]) -> None:
        """After a call: its marks are in the slice."""
        self._move("ld", self.cursor, frame, 0)
        self._move("ld", self.lost, frame, 16)

    def leave(self, opcode: str, guard: tree.Guard | None, position: Position | None) -> None:
        """`ret` or `exit`, after the end of the slice."""
        builder, self.closing = self.builder, True
        skip = None
        if guard is not None:
            skip = builder.new_label("stays")
            builder.branch(skip, tree.Guard(guard.predicate, not guard.negated))
        if self.frame is None:
            self._close()
        elif opcode == "exit":
            raise TraceError(f"`exit` in the @func `{builder.name}` ends the thread before its marks are: return, and exit in the kernel")
        else:
            self._move("st", self.cursor, self.frame, 0)
            self._move("st", self.lost, self.frame, 16)
        builder.emit(opcode, (), None, position)
        if skip is not None:
            builder.place(skip)
        self.closing = False

    def _parameter(self, type: Any, name: str) -> Any:
        found = self.builder.register(type)
        self.builder.emit(f"ld.param.{type.__name__}", (found.operand(), tree.Address(tree.Name(name))))
        return found

    def _place(self, register: Reg[u64], offset: int) -> Any:
        return Ptr(register, b64, offset=offset)


def _linear(index: Dim3, extent: Dim3) -> Reg[u32]:
    """The number of a CTA in the grid, or of a thread in its CTA."""
    line = mad.lo.u32(mov.u32(index.z), mov.u32(extent.y), mov.u32(index.y))
    return mad.lo.u32(line, mov.u32(extent.x), mov.u32(index.x))


def _first_lane() -> Reg[pred]:
    return setp.eq.u32(mov.u32(laneid), 0)


def _alone(builder: Builder, since: int = 0) -> bool:
    """Whether at most one thread of a warp comes here, by an `if_` that was opened after the first `since` blocks."""
    return any(region.alone for region in builder.regions.open[since:])


def _vec(*registers: Reg[Any]) -> Any:
    return Vec(registers)


def mark(name: str) -> None:
    """A point in time of the executing warp, by name."""
    builder = _at(name)
    marks = builder.marks
    if marks is not None and marks.table.wanted(name):
        marks.point(name)


class span(Block):
    """`with span("mma"):` is the time of its body in the executing warp, by name. A body that is left by a branch or `ret` leaves none."""

    _is = "span(name)"

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self._entered()
        marks = _at(self.name).marks
        self._begin: Reg[u32] | None = None
        if marks is not None and marks.table.wanted(self.name):
            self._begin = mov.u32(clock)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and (marks := _at(self.name).marks) is not None and self._begin is not None:
            marks.span(self.name, self._begin)


def role(name: str) -> None:
    """From here on the executing warps are this: the row of the timeline on which their marks stand. Once, outside of loops.

    Where one thread says it (after elect.sync, or `thread == 0`), that thread writes the marks; else the first lane of each warp does.
    """
    marks = _at(name).marks
    if marks is not None:
        marks.role(name)


def _at(name: str) -> Builder:
    """The trace. An else_() may not follow, whether marks are on or not."""
    if not isinstance(name, str) or not name:
        raise TraceError(f"marks, spans and roles have names, as \"load\", not {name!r}")
    builder = current()
    builder.last_if = None
    if builder.marks is None and builder.module.marks is not None:
        raise TraceError(f"{name!r} stands in `{builder.name}`, whose signature is written as PTX: marks are for kernels and @func")
    return builder


__all__ = ["HEADER", "Marks", "Named", "Selection", "Table", "mark", "role", "selected", "span"]
