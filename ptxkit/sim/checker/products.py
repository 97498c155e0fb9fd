"""wgmma: registers in flight, fences, and what the operands' descriptors read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..definite import bits
from ..warpgroup import MODE_SPAN, Product, Warpgroup, WGroup, chunks
from .clocks import SHARED
from .registers import RegisterRules, name_of
from .shadow import READ

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..program import Op


class Quarter:
    """One warp's registers, as sets of bits: of accumulators (`d`) and of A (`a`) per group in flight; accessed since the last fence."""

    def __init__(self) -> None:
        self.groups: dict[int, tuple[int, int]] = {}
        self.d = self.a = 0
        self.accessed = 0
        self.fenced = False
        self.shapes: dict[int, tuple[str, int]] = {}            # of the sets of accumulators in flight, and the group of the last one

    def add(self, group: int, d: int, a: int, shape: str) -> None:
        was = self.groups.get(group, (0, 0))
        self.groups[group] = was[0] | d, was[1] | a
        self.d |= d
        self.a |= a
        self.shapes[d] = shape, group

    def retire(self, finished: int) -> None:
        for number in [n for n in self.groups if n < finished]:
            del self.groups[number]
        self.shapes = {d: (shape, group) for d, (shape, group) in self.shapes.items() if group >= finished}
        self.d = self.a = 0
        for d, a in self.groups.values():
            self.d |= d
            self.a |= a


class ProductRules(RegisterRules):
    def __init__(self) -> None:
        super().__init__()
        self._quarters: dict[Any, Quarter] = {}
        self._touches: dict[int, tuple[int, int]] = {}
        self._named_by: dict[int, tuple[int, int]] = {}
        self._mine: set[int] = set()

    def _quarter(self, f: Fragment) -> Quarter:
        found = self._quarters.get(f.warp)
        if found is None:
            found = self._quarters[f.warp] = Quarter()
        return found

    def touch(self, f: Fragment, op: Op) -> None:
        named = self._touches.get(op.index)
        if named is None:
            own = op.opcode.startswith("wgmma.")
            named = self._touches[op.index] = (0, 0) if own else (bits(op.reads()), bits(op.writes()))
        reads, writes = named
        if not reads | writes:
            return
        self.follow(f, op)
        q = self._quarter(f)
        wrong = (reads | writes) & q.d
        if wrong or writes & q.a:
            self._flying(f, op, q, wrong or writes & q.a, "accumulator" if wrong else "A operand")
        q.accessed |= reads | writes

    def _flying(self, f: Fragment, op: Op, q: Quarter, wrong: int, what: str) -> None:
        register = (wrong & -wrong).bit_length() - 1
        self.report("wgmma-in-flight", op, f"`{op.opcode}` of {f.warp!r} touches `{name_of(op, register)}`, an {what} of a wgmma that the "
                    "warp has not waited for")

    def wgmma_issue(self, f: Fragment, op: Op, product: Product) -> None:
        q = self._quarter(f)
        group = f.warp.group
        number = group.committed[f.warp.index & 3]
        d, a = self._operands(op)
        shape = f"{product.shape.n} {product.shape.d}"
        if not q.fenced or (d | a) & q.accessed or q.a & d or self._other_shape(q, d, shape):
            self.report("wgmma-fence", op, f"{f.warp!r} executes `{op.opcode}` on registers that it has accessed since its last wgmma.fence"
                        if q.fenced else f"{f.warp!r} executes `{op.opcode}` before any wgmma.fence")
        q.add(number, d, a, shape)
        state = self.registers_of(f, op)
        if (d | a) & state.any:
            if product.accumulate and d & state.any:
                self.report("wgmma-uninitialised", op, f"`{op.opcode}` of {f.warp!r} adds to accumulators that nothing has written")
            if a & state.any:
                self._decides(f, op, state, op.registers("a"), f.mask)
            state.wrote(d, f.mask)
        self._read_operands(f, op, group, product, number)

    def _operands(self, op: Op) -> tuple[int, int]:
        found = self._named_by.get(op.index)
        if found is None:
            found = self._named_by[op.index] = bits(op.registers("d")), bits(op.registers("a")) if op.operand("a") is not None else 0
        return found

    def _other_shape(self, q: Quarter, d: int, shape: str) -> bool:
        return any(other & d and (other != d or was != shape) for other, (was, _) in q.shapes.items())

    def _read_operands(self, f: Fragment, op: Op, group: Warpgroup, product: Product, number: int) -> None:
        home = self.home(f.cta.cluster)
        shadow = self.shadow(f.cta.cluster)
        lanes = self.lanes(f)
        agent = home.agent(group, "wgmma", f"the warpgroup of {group.warps[0]!r}")
        first = product.came == 1
        known = lanes.asynchronous(f.warp.lanes, SHARED, writes=False)
        for descriptor, extent, transposed in self._descriptors(product):
            cells, last = _cells(descriptor, extent, transposed, group.cta.start, shadow.shift)
            self.accesses += 1
            if last >= len(shadow.agent):
                return
            self.async_read(f, op, lanes, f.warp.lanes, cells, shadow, "shared-uninitialised", known=known)
            if first:
                self._layout(f, op, descriptor, extent, int(shadow.site[cells[0]]) if shadow.epoch[cells[0]] else -1)
                shadow.accessed(READ, agent, cells, number + 1, op.index)

    def _layout(self, f: Fragment, op: Op, descriptor: int, extent: int, site: int) -> None:
        """The descriptor against the tensor copy (at `site`) that wrote what it describes."""
        span = self.swizzles.get(site)
        if span is None:
            return
        mode, stride, start = MODE_SPAN[descriptor >> 62], (descriptor >> 32 & 0x3FFF) << 4, (descriptor & 0x3FFF) << 4
        wrong = ""
        if mode != span:
            names = {width: "no swizzle" if width == 16 else f"a swizzle of {width} bytes" for width in (16, 32, 64, 128)}
            wrong = f"with {names[mode]} what {self.site(site)} wrote with {names[span]}"
        elif span > 16 and extent > 8 and stride != 8 * span:
            wrong = f"rows {stride} bytes apart by eight, of what {self.site(site)} wrote {8 * span} bytes apart"
        elif span > 16 and not descriptor >> 49 & 7 and start & 8 * span - 1 >= span:
            wrong = f"from {start:#x} on, inside the pattern of {8 * span} bytes that {self.site(site)} wrote"
        if wrong:
            self.report("descriptor-layout", op, f"`{op.opcode}` of {f.warp!r} reads {wrong}", other=site)

    def _descriptors(self, product: Product) -> list[tuple[int, int, int]]:
        shape = product.shape
        given = next(a for a in product.a if a is not None)
        found = [] if shape.from_registers else [(given, 64, shape.trans_a)]
        return [*found, (product.b, shape.n, shape.trans_b)]

    def wgmma_fence(self, f: Fragment, op: Op) -> None:
        q = self._quarter(f)
        q.accessed = 0
        q.fenced = True

    def wgmma_commit(self, f: Fragment, op: Op, group: WGroup) -> None:
        lanes = self.lanes(f)
        view = lanes.view(f.mask)
        if group.shadow is None:
            group.shadow = view.copy()
        else:
            group.shadow.join_done(view)

    def wgmma_wait(self, f: Fragment, op: Op, finished: int) -> None:
        if finished <= 0:
            return
        group = f.warp.group
        home = self.home(f.cta.cluster)
        lanes = self.lanes(f)
        lanes.complete(f.mask, home.agent(group, "wgmma", f"the warpgroup of {group.warps[0]!r}"), finished)
        last = group.groups[finished - 1]
        if last.shadow is not None:
            for m, view in lanes.groups:
                if m & f.mask:
                    view.join_done(last.shadow)
        self._quarter(f).retire(finished)


@lru_cache(maxsize=2048)
def _cells(descriptor: int, extent: int, transposed: int, start: int, shift: int) -> Any:
    import numpy as np

    index, base = chunks((descriptor,), extent, transposed)
    cells = index.reshape(-1) + (base + (start >> 4))
    if shift < 4:
        count = 1 << 4 - shift
        cells = (cells[:, None] * count + np.arange(count)).reshape(-1)
    return cells, int(cells.max())
