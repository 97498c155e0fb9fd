"""wgmma: registers in flight, fences, and what the operands' descriptors read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..definite import bits
from ..values import Array
from ..warpgroup import MODE_SPAN, Product, Warpgroup, WGroup, chunks, selected
from .agents import WARP_WORDS
from .clocks import GLOBAL, SEEN, SHARED, Lanes, View
from .registers import RegisterRules, name_of
from .shadow import ATOMIC, READ, Shadow

if TYPE_CHECKING:
    from ..fragment import Fragment
    from ..program import Op


Operands = tuple[int, int, tuple[int, str], int]
"""Of a wgmma: the registers of D and of A as sets of bits, the shape that D has, and the metadata's register as a set of bits.

The manual wants fences and waits for the registers of D and A. Metadata is read when the instruction is issued, as descriptors are.
"""


class Quarter:
    """One warp's registers, as sets of bits: of accumulators (`d`) and of A (`a`) per group in flight; accessed since the last fence."""

    def __init__(self) -> None:
        self.groups: dict[int, tuple[int, int]] = {}
        self.d = self.a = 0
        self.accessed = 0
        self.fenced = False
        self.shapes: dict[int, tuple[tuple[int, str], int]] = {}
        """Of each set of accumulators in flight: its shape, and the last group that uses it."""
        self.last: tuple[int, Operands, Any] | None = None
        """The group, the registers and the activation of the last wgmma, if it was right: another such one is right, and adds nothing."""

    def add(self, group: int, d: int, a: int, shape: tuple[int, str]) -> None:
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
        self.last = None


class Reading:
    """What a product reads in shared memory: its descriptors, and the newest clock of each agent that has written there, as it was when the
    shadow had this version (-1: it must be looked at again).
    """

    __slots__ = ("agents", "keys", "version")

    def __init__(self, keys: list[tuple[int, int, int, int, int]]) -> None:
        self.keys = keys
        self.agents: tuple[tuple[int, int], ...] = ()
        self.version = -1


class ProductRules(RegisterRules):
    def __init__(self) -> None:
        super().__init__()
        self._touches: dict[int, tuple[int, int]] = {}
        self._named_by: dict[int, Operands] = {}
        self._mine: set[int] = set()

    def _quarter(self, f: Fragment) -> Quarter:
        warp = self.lanes(f).warp
        found: Quarter | None = warp.wgmma
        if found is None:
            found = warp.wgmma = Quarter()
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
        lanes: Lanes = f.shadow or self.lanes(f)
        q = lanes.warp.wgmma or self._quarter(f)
        group = f.warp.group
        number = group.committed[f.warp.index & 3]
        operands = self._operands(op, product)
        if q.last != (number, operands, f.stack) or (operands[0] | operands[1] | operands[3]) & q.accessed:
            self._issued_registers(f, op, q, number, operands, product)
        shadow: Shadow = f.cta.cluster.shared.shadow[1]
        read: Reading | None = product.shadow
        if read is None or read.version != shadow.version or shadow.kinds[ATOMIC] \
                or not self._are_known(read.agents, lanes.view(f.warp.lanes).fit(), lanes, SHARED + f.cta.rank):
            self._read_operands(f, op, group, product, number, lanes)
        else:
            self.accesses += len(read.keys)

    def _issued_registers(self, f: Fragment, op: Op, q: Quarter, number: int, operands: Operands, product: Product) -> None:
        d, a, shape, metadata = operands
        wrong = not q.fenced or (d | a) & q.accessed or q.a & d or (q.shapes and self._other_shape(q, d, shape))
        if wrong:
            self.report("wgmma-fence", op, f"{f.warp!r} executes `{op.opcode}` on registers that it has accessed since its last wgmma.fence"
                        if q.fenced else f"{f.warp!r} executes `{op.opcode}` before any wgmma.fence")
        q.add(number, d, a, shape)
        q.last = None if wrong else (number, operands, f.stack)
        state = self.registers_of(f, op)
        if (d | a | metadata) & state.any:
            if product.accumulate and d & state.any:
                self.report("wgmma-uninitialised", op, f"`{op.opcode}` of {f.warp!r} adds to accumulators that nothing has written")
            if a & state.any:
                self._decides(f, op, state, op.registers("a"), f.mask)
            if metadata & state.any:
                self._decides(f, op, state, op.registers("sp_meta"), f.mask & selected(product.shape))
            state.wrote(d, f.mask)

    def _operands(self, op: Op, product: Product) -> Operands:
        found = self._named_by.get(op.index)
        if found is None:
            d, a, metadata = (bits(op.registers(name)) if op.operand(name) is not None else 0 for name in ("d", "a", "sp_meta"))
            found = self._named_by[op.index] = (d, a, (product.shape.n, product.shape.d), metadata)
        return found

    def _other_shape(self, q: Quarter, d: int, shape: tuple[int, str]) -> bool:
        if len(q.shapes) == 1 and d in q.shapes:
            return q.shapes[d][0] != shape
        return any(other & d and (other != d or was != shape) for other, (was, _) in q.shapes.items())

    def _read_operands(self, f: Fragment, op: Op, group: Warpgroup, product: Product, number: int, lanes: Lanes) -> None:
        shadow = self.shadow(f.cta.cluster)
        known = lanes.view(f.warp.lanes).fit()
        row = SHARED + f.cta.rank
        read: Reading | None = product.shadow
        if read is None:
            read = product.shadow = Reading(self._descriptors(product, group.cta.start))
        agents: dict[int, int] = {}
        sure = True
        for key in read.keys:
            self.accesses += 1
            written = shadow.written(key, _chunks)
            if written is None:
                return
            sure = sure and not written.unwritten
            for agent, clock in written.agents:
                agents[agent] = max(clock, agents.get(agent, 0))
            if written.unwritten or shadow.kinds[ATOMIC] or not self._are_known(written.agents, known, lanes, row):
                self.async_read(f, op, lanes, f.warp.lanes, written.cells, shadow, "shared-uninitialised",
                                known=lanes.asynchronous(f.warp.lanes, row, writes=False))
            if product.came == 1:
                self._layout(f, op, key[0], key[1], written.site)
                shadow.reader(READ, self._agent_of(group)).mark(written.cells, written.low, written.high, number + 1, op.index)
        read.agents = tuple(agents.items())
        read.version = shadow.version if sure else -1

    def _are_known(self, agents: tuple[tuple[int, int], ...], known: Array, lanes: Lanes, row: int) -> bool:
        """Whether the async proxy sees the writes of these agents, up to these clocks, on behalf of the warp."""
        for agent, clock in agents:
            if known.item(row, agent) < clock:
                lane = agent - lanes.warp.base
                if not 0 <= lane < 32 or lanes.warp.fenced.item(row - GLOBAL, lane) < clock:
                    return False
        return True

    def _agent_of(self, group: Warpgroup) -> int:
        home = self.home(group.cta.cluster)
        known = home.known.get(group)
        if known is not None:
            return known
        return home.agent(group, "wgmma", f"the warpgroup of {WARP_WORDS}", (group.cta.index, group.warps[0].index))

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

    def _descriptors(self, product: Product, start: int) -> list[tuple[int, int, int, int, int]]:
        """(descriptor, extent, transposed, bytes along K, where the memory of its CTA begins) of each operand in shared memory."""
        shape = product.shape
        given = next(a for a in product.a if a is not None)
        found = [] if shape.from_registers else [(given, 64, shape.trans_a, 32, start)]
        return [*found, (product.b, shape.n, shape.trans_b, shape.depth, start)]

    def wgmma_fence(self, f: Fragment, op: Op) -> None:
        q = self._quarter(f)
        q.accessed = 0
        q.fenced = True

    def wgmma_commit(self, f: Fragment, op: Op, group: WGroup) -> None:
        view = self.lanes(f).view(f.mask)
        if group.shadow is None:
            group.shadow = View(view.home, view.fit()[:SEEN].copy())
        else:
            group.shadow.join_done(view)

    def wgmma_wait(self, f: Fragment, op: Op, finished: int) -> None:
        if finished <= 0:
            return
        group = f.warp.group
        lanes = self.lanes(f)
        lanes.complete(f.mask, self._agent_of(group), finished)
        last = group.groups[finished - 1]
        if last.shadow is not None:
            for m, view in lanes.groups:
                if m & f.mask:
                    view.join_done(last.shadow)
        self._quarter(f).retire(finished)


@lru_cache(maxsize=4096)
def _chunks(descriptor: int, extent: int, transposed: int, depth: int, start: int) -> tuple[Array, int, int]:
    """The 16-byte chunks of the cluster's shared memory that a descriptor names, the first and the last of them."""
    index, base = chunks((descriptor,), extent, transposed, depth)
    found: Array = index.reshape(-1) + (base + (start >> 4))
    return found, int(found.min()), int(found.max())
