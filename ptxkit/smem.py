"""The shared-memory plan: tiles, arrays and mbarriers. Their offsets, alignment and total size are known at trace time."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, NoReturn, SupportsIndex, TypeVar

from .dsl.ambient import current
from .dsl.bounds import below, check_index
from .dsl.descriptor import Descriptor, step, template
from .dsl.dropped import refuse_dropped
from .dsl.plan import SHARED_LIMIT, STATIC_LIMIT, SharedPlan
from .dsl.refused import NoAttributeError, NoItems, Rebinding
from .dsl.reg import Index, Reg, Special, Value
from .dsl.source import user_position
from .dsl.trace import Builder
from .dsl.uncalled import Handle
from .errors import Position, TraceError
from .grammar import tree
from .layout import Layout, Major
from .types import Scalar, is_scalar, u32, u64

T = TypeVar("T", bound=Scalar, covariant=True)
S = TypeVar("S", bound=Scalar)


def _within(plan: SharedPlan) -> Builder:
    """The trace in progress. Raises TraceError unless it is the trace of the plan's kernel."""
    builder = current()
    if builder.shared is not plan:
        raise TraceError(f"this shared memory belongs to `{plan.symbol.removesuffix('_smem')}`, not to `{builder.module.name}`: "
                         "allocate it inside the kernel that uses it")
    return builder


def base_register(builder: Builder) -> Reg[u32]:
    """The shared-window address of the plan's start, in a register."""
    def make() -> Reg[u32]:
        result = builder.register(u32)
        builder.emit("mov.u32", (result.operand(), tree.Name(builder.shared.symbol)))
        return result

    return builder.memo(("smem",), (), make)


class SharedAddress(Value):
    """A place in shared memory: a constant offset into the plan and, after indexing with a register, a register part.

    As an operand it is an address `[smem+offset]`. Where PTX takes the address as a value (`mapa`), it becomes a register.
    """

    __slots__ = ("dynamic", "offset", "plan", "seen")

    def __init__(self, offset: int, dynamic: Reg[u32] | None = None) -> None:
        self.offset = offset
        self.dynamic = dynamic
        self.plan = current().shared
        self.seen = -1

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def operand(self) -> tree.Address:
        builder = _within(self.plan)
        self.seen = builder.now
        base = tree.Name(builder.shared.symbol) if self.dynamic is None else self.dynamic.operand()
        return tree.Address(base, self.offset)

    def register(self) -> Reg[u32]:
        """The shared-window address (32 bits) in a register."""
        builder = _within(self.plan)
        self.seen = builder.now
        if self.dynamic is None and not self.offset:
            return base_register(builder)
        inputs = () if self.dynamic is None else (self.dynamic,)

        def make() -> Reg[u32]:
            result = builder.register(u32)
            if self.dynamic is None:
                builder.emit("mov.u32", (result.operand(), tree.Offset(tree.Name(builder.shared.symbol), self.offset)))
            else:
                builder.emit("add.u32", (result.operand(), self.dynamic.operand(), tree.Integer(self.offset)))
            return result

        return builder.memo(("address", self.offset), inputs, make) if self.dynamic is None or self.offset else self.dynamic

    def plus(self, index: Index, stride: int) -> tuple[int, Reg[u32] | None]:
        """(offset, register part) of the place `index * stride` bytes after this one."""
        builder = _within(self.plan)
        self.seen = builder.now
        if isinstance(index, int):
            return self.offset + index * stride, self.dynamic
        check_index(index)
        index = index.read() if isinstance(index, Special) else index
        builder.own(index)
        base = base_register(builder) if self.dynamic is None else self.dynamic

        def make() -> Reg[u32]:
            result = builder.register(u32)
            builder.emit("mad.lo.u32", (result.operand(), index.operand(), tree.Integer(stride), base.operand()))
            return result

        return self.offset, builder.memo(("index", stride), (index, base), make)

    if not TYPE_CHECKING:

        def __getitem__(self, index: Any) -> NoReturn:
            raise TraceError(f"a {type(self).__name__} is one place and has no items: {self._items}")

    _items = "`smem.array(u32, 64)` has elements, `array[i]`"


class Shared(SharedAddress, Generic[T]):
    """An array of elements in shared memory. Address arithmetic counts elements."""

    __slots__ = ("count", "type")

    def __init__(self, type: type[T], offset: int, dynamic: Reg[u32] | None = None, count: int | None = None) -> None:
        super().__init__(offset, dynamic)
        self.type = type
        self.count = count

    def at(self, index: Index) -> Shared[T]:
        """The place of element `index`."""
        if isinstance(index, int) and self.count is not None and not 0 <= index < self.count:
            raise TraceError(f"element {index} is outside an array of {self.count} {self.type.__name__}")
        return Shared(self.type, *self.plus(index, max(1, self.type.bits // 8)))

    def __add__(self, index: Index) -> Shared[T]:
        refuse_dropped("place + i")
        return self.at(index)

    def __getitem__(self, index: Index) -> Shared[T]:
        return self.at(index)

    if not TYPE_CHECKING:
        __iadd__ = Rebinding("+")

    def __iter__(self) -> Iterator[Shared[T]]:
        if self.count is None:
            raise TraceError("an element of an array is one place: `for place in array` takes each of a whole array while tracing")
        return (self[i] for i in range(self.count))


class MBarrier(SharedAddress):
    """An mbarrier object (8 bytes) in shared memory. `remote`: it belongs to another CTA."""

    __slots__ = ("array", "remote")
    _items = "`smem.mbarrier(4)` has barriers, `barriers[i]`"

    def __init__(self, array: MBarriers | None, offset: int, dynamic: Reg[u32] | None = None, *, remote: bool = False) -> None:
        super().__init__(offset, dynamic)
        self.array = array
        self.remote = remote


class MBarriers(Handle):
    """An array of mbarriers, indexed by an int or a stage register.

    `initial` collects the counts of the kernel's mbarrier.init. `counts` collects the counts of its arrives, and `arrivals` the most
    threads that execute each arrive (None: a run-time value).
    """

    __slots__ = ("arrivals", "base", "checked", "count", "counts", "initial", "name", "offset", "plan", "position", "waited")

    def __init__(self, offset: int, count: int, name: str, checked: bool = True) -> None:
        self.base: Reg[u32] | None = None
        self.plan = current().shared
        self.position = user_position()
        self.offset = offset
        self.count = count
        self.name = name
        self.checked = checked
        self.waited = False
        self.initial: list[int | None] = []
        self.counts: list[tuple[int, Position | None]] = []
        self.arrivals: list[int | None] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[MBarrier]:
        return (self[i] for i in range(self.count))

    def __getitem__(self, index: Index) -> MBarrier:
        if isinstance(index, int) and not 0 <= index < self.count:
            raise TraceError(f"barrier {index} is out of range: `{self.name}` has {self.count}, 0 to {self.count - 1}")
        below(index, self.count, f"`{self.name}` has", "barriers")
        _within(self.plan)
        return MBarrier(self, *SharedAddress(self.offset, self.base).plus(index, 8), remote=self.base is not None)

    def at(self, base: Reg[u32]) -> MBarriers:
        """The same array in another CTA of the cluster. `base` is the mapped address of its first barrier."""
        if not isinstance(base, Reg):
            raise TraceError(f"`at` takes the mapped address of the first barrier in a register, not {base!r}: `barriers[i]` is a barrier "
                             "of this CTA, and `remote(barriers, cta)` are those of another one")
        mapped = copy(self)
        mapped.base, mapped.offset = base, 0
        return mapped


class TileView(SharedAddress, Generic[T]):
    """A tile in one stage, or some of its lines, or one of its spans. Tensor copies fill it and descriptors point into it."""

    __slots__ = ("inner", "layout", "outer")
    _items = "`tile[stage].at(row, column)` is the place of an element"

    def __init__(self, layout: Layout, offset: int, dynamic: Reg[u32] | None, inner: int, outer: int) -> None:
        super().__init__(offset, dynamic)
        self.layout = layout
        self.inner = inner
        self.outer = outer

    @property
    def box(self) -> tuple[int, int]:
        """(contiguous, strided) elements."""
        return self.inner, self.outer

    @property
    def bytes(self) -> int:
        """The bytes that a copy into this view writes."""
        return self.inner * self.outer * self.layout.element_bytes

    def _repr_html_(self) -> str:
        from .html.layouts import view

        return view(self)

    def span(self, index: Index) -> TileView[T]:
        """Span `index` of the contiguous extent. One box fills it."""
        if isinstance(index, int) and not 0 <= index < self.layout.spans:
            raise TraceError(f"span {index} of a tile that has {self.layout.spans}")
        return TileView(self.layout, *self.plus(index, self.layout.span_stride), self.layout.span, self.outer)

    def lines(self, start: Index, count: int) -> TileView[T]:
        """`count` strided lines from `start`, both multiples of 8. Of other counts, for a copy alone, they begin and end at 128 bytes."""
        check_index(start)
        unit = next((n for n in (1, 2, 4) if n * self.layout.span_bytes % 128 == 0), 8) if type(count) is int and count % 8 else 8
        known = type(count) is int and count % unit == 0 and unit <= count <= self.outer
        if not known or (isinstance(start, int) and (start % unit or not 0 <= start <= self.outer - count)):
            raise TraceError(f"lines {start} to {start}+{count!r} of a tile with {self.outer}: both are multiples of {unit} within it, "
                             "an index and an int")
        return TileView(self.layout, *self.plus(start, self.layout.span_bytes), self.inner, count)

    def at(self, row: Index, column: Index) -> SharedAddress:
        """The place of an element, or of the 16 bytes that begin with it, with the swizzle.

        Two ints are a constant. A register row or column costs mul or mad, shr, and, xor and add, once in a region; then one xor for
        every further constant column (nothing without a swizzle) and nothing for rows of `lines(8 * i, ...)`.
        """
        check_index(row)
        check_index(column)
        along, across = (column, row) if self.layout.major == "k" else (row, column)
        for what, index, extent in (("column", along, self.inner), ("row", across, self.outer)):
            if isinstance(index, int) and not 0 <= index < extent:
                what = what if self.layout.major == "k" else "row" if what == "column" else "column"
                raise TraceError(f"{what} {index} of a tile that has {extent} of them")
        if isinstance(row, int) and isinstance(column, int):
            self._periodic()
            self.seen = current().now
            return SharedAddress(self.offset + self.layout.offset(row, column), self.dynamic)
        if isinstance(across, int):
            here, inner = self._line(0, along, across % 8), 0
            return SharedAddress(self.offset + across * self.layout.span_bytes, here)
        inner = along if isinstance(along, int) else 0
        return self._ahead(self._line(across, 0 if isinstance(along, int) else along), 0, inner)

    def near(self, row: Reg[u32], column: Reg[u32], rows: int, columns: int) -> SharedAddress:
        """`at(row + rows, column + columns)` of a K-major tile of 16-bit elements. `column` is 0 or 8, and the others are multiples of 8.

        With a swizzle, `column` carries into `columns` that are no multiple of 16: then the sum takes an add, and a place of its own.
        """
        if rows % 8:
            raise TraceError(f"fragments of a tile begin at multiples of 8 rows, not at {rows}")
        if columns % 16 and self.layout.swizzle > 16:
            along = current().memo(("columns", columns), (column,), lambda: column + columns)
            return self._ahead(self._line(row, along), rows, 0)
        return self._ahead(self._line(row, column), rows, columns)

    def _periodic(self) -> None:
        layout = self.layout
        if self.outer % 8 and self.outer < layout.outer:
            raise TraceError(f"a view of {self.outer} of {layout.outer} lines is for a copy: `at` and `desc` need a multiple of 8")
        if layout.outer % 8 and layout.swizzle > 16 and (layout.spans > 1 or self.offset % layout.alignment):
            raise TraceError(f"a swizzled tile of {layout.outer} lines in {layout.spans} spans: the pattern repeats every 8 lines, so give "
                             "it a multiple of 8")

    def _ahead(self, line: Reg[u32], rows: int, columns: int) -> SharedAddress:
        """The place `rows` lines and `columns` elements after a place at the begin of a 16-byte column."""
        span, within = divmod(columns, self.layout.span)
        offset, within = self.offset + rows * self.layout.span_bytes + span * self.layout.span_stride, within * self.layout.element_bytes
        if self.layout.swizzle <= 16:
            return SharedAddress(offset + within, line)
        return SharedAddress(offset, line if not within else current().memo(("flip", within), (line,), lambda: line ^ within))

    def _line(self, across: Index, along: Index, pattern: int = 0) -> Reg[u32]:
        """The register part of a place: the view's, and the line's and the element's in the pattern."""
        builder, layout = _within(self.plan), self.layout
        self._periodic()
        self.seen = builder.now
        across, along = (index.read() if isinstance(index, Special) else index for index in (across, along))
        base = base_register(builder) if self.dynamic is None else self.dynamic
        mask = max(layout.swizzle // 16 - 1, 0) << 4

        def make() -> Reg[u32]:
            span = None
            place = along
            if isinstance(place, Reg):
                if self.inner > layout.span:
                    span, place = place // layout.span, place % layout.span
                place = place * layout.element_bytes if layout.element_bytes > 1 else place
            if isinstance(across, Reg):
                line = builder.register(u32)
                operands = (line.operand(), across.operand(), tree.Integer(layout.span_bytes))
                if isinstance(place, Reg):
                    builder.emit("mad.lo.u32", (*operands, place.operand()))
                else:
                    builder.emit("mul.lo.u32", operands)
                place = line ^ ((line >> 3) & mask) if mask else line
            elif isinstance(place, Reg) and mask & pattern_bits(layout, pattern):
                place = place ^ (mask & pattern_bits(layout, pattern))
            assert isinstance(place, Reg)
            found = builder.register(u32)
            builder.emit("add.u32", (found.operand(), place.operand(), base.operand()))
            if span is not None:
                moved = builder.register(u32)
                builder.emit("mad.lo.u32", (moved.operand(), span.operand(), tree.Integer(layout.span_stride), found.operand()))
                return moved
            return found

        inputs = tuple(index for index in (across, along, base) if isinstance(index, Reg))
        which = isinstance(across, Reg), isinstance(along, Reg), pattern, self.inner > layout.span
        return builder.memo(("place", layout, which), inputs, make)

    def desc(self, k: int = 0, mn: Index = 0) -> Descriptor:
        """The wgmma matrix descriptor of the instruction tile that starts at depth `k` and row `mn`.

        A register `mn` must be a multiple of 8 (K-major) or of the span (MN-major). Emits the address arithmetic once per region.
        """
        builder = _within(self.plan)
        self.seen = builder.now
        self._periodic()
        if not isinstance(k, int):
            raise TraceError(f"the depth of a descriptor is an int, not {k!r}: unroll the depth in Python, or choose a stage by register")
        rows, columns = (self.outer, self.inner) if self.layout.major == "k" else (self.inner, self.outer)
        if not 0 <= k < columns or (isinstance(mn, int) and not 0 <= mn < rows):
            raise TraceError(f"a descriptor at row {mn}, depth {k} begins outside of its tile, which has {rows} rows and a depth of "
                             f"{columns}: both count from 0")
        fixed = template(self.layout)
        dynamic = self.dynamic
        if isinstance(mn, int):
            constant = self.offset + step(self.layout, mn, k)
        else:
            constant = self.offset + step(self.layout, 0, k)
            factor = self.layout.span_bytes if self.layout.major == "k" else self.layout.span_stride // self.layout.span
            _, dynamic = SharedAddress(0, dynamic).plus(mn, factor)
        source = base_register(builder) if dynamic is None else dynamic

        # Only bits 4 to 17: in a cluster the bits above them hold the CTA's rank, which would overflow into the descriptor's next field.
        def sixteenths() -> Reg[u64]:
            shifted = builder.register(u32)
            wide = builder.register(u64)
            builder.emit("bfe.u32", (shifted.operand(), source.operand(), tree.Integer(4), tree.Integer(14)))
            builder.emit("cvt.u64.u32", (wide.operand(), shifted.operand()))
            return wide

        wide = builder.memo(("sixteenths",), (source,), sixteenths)

        def make() -> Reg[u64]:
            result = builder.register(u64)
            builder.emit("add.u64", (result.operand(), wide.operand(), tree.Integer(fixed + (constant >> 4))))
            return result

        made = builder.memo(("descriptor", fixed + (constant >> 4)), (wide,), make)
        inner = k if self.layout.major == "k" else mn if isinstance(mn, int) else 0
        return Descriptor(made, self.layout, rows - mn if isinstance(mn, int) else None, columns - k,
                          inner * self.layout.element_bytes % self.layout.span_bytes)


def pattern_bits(layout: Layout, line: int) -> int:
    """The bits that the swizzle flips in a constant line."""
    return line * layout.span_bytes >> 3


_OF_A_STAGE = ("at", "box", "bytes", "desc", "inner", "lines", "outer", "register", "span")


def check_view(view: Any, what: str) -> None:
    """Raise TraceError unless `what` is given a view of a tile."""
    if not isinstance(view, TileView):
        given = "a whole tile" if isinstance(view, Tile) else repr(view)
        raise TraceError(f"{what} takes one stage of a tile, as `tile[0]` or `tile[stage].lines(0, 64)`, not {given}")


class Tile(NoItems, Handle, Generic[T]):
    """A tile for each of `stages` stages. `tile[stage]` is a view; `stage` is an int or a register."""

    __slots__ = ("layout", "offset", "plan", "stages")

    def __init__(self, layout: Layout, offset: int, stages: int) -> None:
        self.plan = current().shared
        self.layout = layout
        self.offset = offset
        self.stages = stages

    def __len__(self) -> int:
        return self.stages

    def __iter__(self) -> Iterator[TileView[T]]:
        return (self[i] for i in range(self.stages))

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, padded to the alignment that the swizzle needs."""
        return -(-self.layout.bytes // self.layout.alignment) * self.layout.alignment

    def _repr_html_(self) -> str:
        from .html.layouts import tile as picture

        return picture(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in _OF_A_STAGE:
                raise NoAttributeError(f"`{name}` is that of one stage of a tile: write `tile[0].{name}`, or `tile[stage].{name}`")
            raise AttributeError(f"'Tile' object has no attribute '{name}'", name=name, obj=self)

    def __getitem__(self, stage: Index) -> TileView[T]:
        if isinstance(stage, tuple):
            raise TraceError(f"a tile is indexed with a stage alone, not {stage!r}: `tile[stage].at(row, column)` is an element's place")
        if isinstance(stage, int) and not 0 <= stage < self.stages:
            raise TraceError(f"stage {stage} is out of range: the tile has {self.stages}, 0 to {self.stages - 1}")
        below(stage, self.stages, "the tile has", "stages")
        _within(self.plan)
        layout = self.layout
        return TileView(layout, *SharedAddress(self.offset).plus(stage, self.stage_bytes), layout.inner, layout.outer)


def _asked(example: str, type: Any, *lengths: Any) -> None:
    """Raise TraceError where an allocation is asked for with something else than a scalar type and ints."""
    if not is_scalar(type):
        raise TraceError(f"shared memory is asked for by the type of its elements, as `{example}`, not {type!r}")
    for length in lengths:
        if isinstance(length, Reg | Special) or not isinstance(length, SupportsIndex):
            raise TraceError(f"the length of shared memory is an int known while tracing, as in `{example}`, not {length!r}")


def tile(type: type[S], shape: tuple[int, ...], *, major: Major = "k", swizzle: int | None = None,
         name: str | None = None) -> Tile[S]:
    """A (stages, rows, columns) or (rows, columns) tile: rows along M or N, columns along K, whatever the major.

    See `Layout` for `major` and `swizzle` (None: the widest that fits).
    """
    _asked("smem.tile(bf16, (64, 64))", type, *(shape if isinstance(shape, tuple) else (shape,)))
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise TraceError(f"a tile is (rows, columns) or (stages, rows, columns), not {shape}")
    stages, rows, columns = shape if len(shape) == 3 else (1, *shape)
    if stages < 1:
        raise TraceError(f"a tile of {stages} stages: ask for at least one")
    layout = Layout.of(type, rows, columns, major=major, swizzle=swizzle)
    made: Tile[S] = Tile(layout, 0, stages)
    swizzled = f"swizzle {layout.swizzle}" if layout.swizzle > 16 else "no swizzle"
    what = f"tile {' x '.join(map(str, shape))} {type.__name__}, {major}-major, {swizzled}"
    plan = current().shared
    element = f"{type.__name__}[{', '.join(map(str, shape))}]"
    allocation = plan.allocate(made.stage_bytes * stages, layout.alignment, what, name, element)
    made.offset = allocation.offset
    plan.contents.append((allocation, made))
    return made


def array(type: type[S], count: int, *, align: int = 16, name: str | None = None) -> Shared[S]:
    """An array of `count` elements. `align` is in bytes, a power of two."""
    _asked("smem.array(f32, 256)", type, count)
    if count < 1 or not isinstance(align, int) or align < 1 or align & (align - 1):
        raise TraceError(f"an array has at least one element and a power-of-two alignment, not {count} and {align!r}")
    size = max(1, type.bits // 8)
    plan = current().shared
    allocation = plan.allocate(count * size, max(align, size), f"array {count} {type.__name__}", name, f"{type.__name__}[{count}]")
    made = Shared(type, allocation.offset, count=count)
    plan.contents.append((allocation, made))
    return made


def mbarrier(count: int, *, name: str | None = None, check: bool = True) -> MBarriers:
    """`count` mbarrier objects of 8 bytes. `check`: compare the init count with the arrives when the kernel is complete."""
    _asked("smem.mbarrier(4)", u64, count)
    if count < 1:
        raise TraceError(f"mbarrier({count}): ask for at least one")
    plan = current().shared
    allocation = plan.allocate(8 * count, 8, f"mbarrier x {count}", name, f"mbarrier[{count}]")
    barriers = MBarriers(allocation.offset, count, name or f"mbarriers at {allocation.offset}", check)
    plan.barriers.append(barriers)
    return barriers


__all__ = ["SHARED_LIMIT", "STATIC_LIMIT", "MBarrier", "MBarriers", "Shared", "SharedAddress", "SharedPlan", "Tile", "TileView", "array",
           "base_register", "mbarrier", "tile"]
