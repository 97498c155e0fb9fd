"""What withholds the certificate: values that another schedule, the time or the machine may give otherwise, and where they go.

A *source* is an instruction whose result may be another one: the table says so of its form (`Effects.dependence`), and the run says whether
it was so here. What depends on it is followed by a slice of the program (`sim/slices.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...grammar.schema import DEPENDS
from ...grammar.special import SPECIAL_DEPENDS
from ..definite import bits
from ..elections import Election, election
from ..operand import SpecialRegister
from ..polling import Loop, Polls
from ..slices import Reach, Seed, Slices
from ..values import indices
from .base import Base
from .clocks import Double, Lanes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..fragment import Fragment
    from ..machine import Machine
    from ..program import Op

FIXES = {
    "order": "order the accesses, or let nothing that is stored depend on which comes first",
    "phase": "loop until the wait says yes, and do nothing else with its answer",
    "election": "let the elected lane use only what all lanes of the warp have in common",
    "lanes": "name the lanes (a member mask of your own) instead of asking which run together",
    "time": "keep the time out of what is stored, or look at it apart",
    "machine": "%tid, %ctaid and %clusterid do not depend on where a CTA runs",
    "undefined": "write it first, all of it",
}


class SourceRules(Base):
    def __init__(self) -> None:
        super().__init__()
        self._sliced: dict[tuple[int, str], Reach | None] = {}
        self._slices: Slices | None = None
        self._polls: Polls | None = None
        self._waits: dict[int, bool] = {}
        self._elections: dict[int, tuple[Election, int]] = {}
        self._after: dict[int, set[int]] = {}
        self._peeked: dict[tuple[Any, int], tuple[Any, int]] = {}

    @property
    def slices(self) -> Slices:
        if self._slices is None:
            self._slices = Slices(self.machine.program, self.machine.block)
        return self._slices

    @property
    def polls(self) -> Polls:
        if self._polls is None:
            self._polls = Polls(self.slices)
        return self._polls

    def withhold(self, op: Op | None, message: str, kind: str, other: object = None) -> None:
        """No certificate, for this reason."""
        self.report("order-dependence", op, message, other=other, fix=FIXES[kind])

    def reach(self, op: Op, kind: str) -> Reach | None:
        """What lasts and depends on an instruction's results."""
        key = op.index, kind
        if key not in self._sliced:
            self._sliced[key] = self.slices.lasting(Seed(op, bits(op.writes()), kind))
        return self._sliced[key]

    def blame(self, op: Op, kind: str, why: str, reach: Reach, other: object = None) -> None:
        """An instruction whose result depends, `why`, with what lasts."""
        self.withhold(op, f"{why}; {self.told(reach, op)}", kind, other)

    def told(self, reach: Reach, op: Op) -> str:
        what = "its result" if op.writes() else "it"
        where = "another round of it" if reach.op is op else self.site(reach.op.index)
        return f"{what} {reach.how} {where}"

    def elected(self, parts: Sequence[tuple[Fragment, Op, int]], members: int, lane: int) -> None:
        """An election: note in which registers the lanes differ that decide what the elected one does; let that be a thread of its own."""
        among = 0
        for f, op, mask in parts:
            among |= mask
            self._differ(f, op, mask, apart=len(parts) > 1)
        f = parts[0][0]
        if among & among - 1:
            double = self._double(f, [(self.lanes(part), mask) for part, _, mask in parts], members, among, lane)
            for _, op, _ in parts:
                self.lanes(f).warp.elections[op.index] = double

    def _differ(self, f: Fragment, op: Op, mask: int, *, apart: bool) -> None:
        found = self._elections.get(op.index)
        if found is None:
            found = self._elections[op.index] = election(self.slices, op), 0
            for other in self.machine.program.ops:
                if other.block in found[0].alone or other.index in found[0].guarded:
                    self.alone.setdefault(other.index, []).append(op.index)
        known, varying = found
        left = known.needed & ~varying
        if apart:
            varying |= left                     # nobody compares registers of lanes that are apart
            left = 0
        while left:
            lowest = left & -left
            left ^= lowest
            value = f.R[lowest.bit_length() - 1]
            if type(value) is not int and type(value) is not bool:
                chosen = value[indices(mask)]
                if (chosen != chosen[:1]).any():
                    varying |= lowest
        if varying != found[1]:
            self._elections[op.index] = known, varying

    def _double(self, f: Fragment, parts: list[tuple[Lanes, int]], members: int, among: int, lane: int) -> Double:
        """What stands for the elected lane: it knows what all of them know."""
        common = parts[0][0].common(parts[0][1])
        for lanes, mask in parts[1:]:
            common.keep(lanes.common(mask))
        state = self.home(f.cta.cluster).state
        double: Double | None = state.get(("double", f.warp, members))
        if double is None or double.lane != lane:
            clock = self.home(f.cta.cluster).double(f, members)
            double = state["double", f.warp, members] = Double(among, lane, Lanes(clock, [(1 << lane, common)]))
        else:
            double.among = among
            double.lanes.acquire(double.mask, common)
        for lanes, _ in parts:
            if double not in lanes.doubles:
                lanes.doubles = (*(other for other in lanes.doubles if other.lanes.warp is not double.lanes.warp), double)
        return double

    # ------------------------------------------------------------------------------------------- waits for mbarriers

    def doubts(self, f: Fragment, op: Op) -> bool:
        """A wait whose answer only decides about later waits always says no: then these are executed, and what they wait for is known."""
        found = self._waits.get(op.index)
        if found is None:
            found = self._waits[op.index] = self._decides_waits(op)
        return found

    def _decides_waits(self, op: Op) -> bool:
        loop = self.polls.wait(op)
        if loop.gives_up is None:
            self.rounds(op, loop)
            if all(end is op for end in loop.ends):
                return False
        seed = Seed(op, bits(op.writes()), "phase", self.polls.repeats - self.polls.elsewhere(op))
        reach = self.slices.lasting(seed)
        why = f"whether the phase is complete when `{op.opcode}` asks depends on the schedule"
        if reach is not None:
            self.blame(op, "phase", why, reach)
        elif loop.gives_up is None:
            return False
        elif seed.again:
            self.withhold(op, f"{why}, and the thread comes to {self.site(loop.gives_up.index)} although it may not be", "phase")
        else:
            for index in seed.waits:
                self._after.setdefault(index, set()).add(op.index)
            return True
        return False

    def rounds(self, op: Op, loop: Loop) -> None:
        """What counts the rounds of a loop that waits must not last."""
        if not loop.carried:
            return
        for end in loop.ends:
            reach = self.slices.lasting(Seed(end, loop.carried, "time", loop.branches))
            if reach is not None:
                self.withhold(op, f"how often `{op.opcode}` asks depends on the time; what counts the rounds {reach.how} "
                              f"{self.site(reach.op.index)}", "time")

    def waited(self, f: Fragment, op: Op, barrier: Any, phase: int, done: bool) -> None:
        """A wait has an answer: one that an earlier one decides about must be for the same phase."""
        if self.doubts(f, op):
            self._peeked[f.warp, op.index] = barrier, phase
        if done:
            for earlier in self._after.get(op.index, ()):
                if self._peeked.get((f.warp, earlier)) != (barrier, phase):
                    asked = self.machine.program.ops[earlier]
                    self.withhold(asked, f"whether {f.warp!r} waits for {barrier} with {self.site(op.index)} depends on the answer of "
                                  f"`{asked.opcode}`, which asks for something else", "phase", op.index)

    def end(self, machine: Machine) -> None:
        """Sources that need no run to be known, of the instructions that were executed."""
        for op in machine.program.ops:
            if not machine.counts[op.block]:
                continue
            kind = op.signature.form.effects.dependence
            asked = {SPECIAL_DEPENDS.get(o.name, "never"): o.name for o in op.operands if isinstance(o, SpecialRegister)}
            for depends in ("time", "machine"):
                if depends in asked:
                    self._always(op, depends, f"`{asked[depends]}` depends {DEPENDS[depends]}")
            if kind == "lanes":
                self._always(op, kind, f"what `{op.opcode}` gives depends {DEPENDS[kind]}")
            elif kind == "election" and op.index in self._elections:
                known, varying = self._elections[op.index]
                if self.slices.to_local:
                    known = election(self.slices, op)
                reach = known.shows(self.slices, varying, self.parted)
                if reach is not None:
                    self.blame(op, kind, f"what `{op.opcode}` gives depends {DEPENDS[kind]}", reach)
            elif kind == "phase" and "mbarrier.test" not in op.signature.form.effects.sync:
                self._always(op, kind, f"the state that `{op.opcode}` gives depends {DEPENDS[kind]}")

    def _always(self, op: Op, kind: str, why: str) -> None:
        reach = self.reach(op, kind)
        if reach is not None:
            self.blame(op, kind, why, reach)
