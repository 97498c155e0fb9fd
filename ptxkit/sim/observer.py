"""What the engine tells a checker. Every method does nothing; the engine calls none when there is no observer.

`f` is the executing fragment, `mask` its executing lanes, `op` the instruction (the site). An observer never changes execution;
it may raise `Fault`, and keeps its findings itself. Slots named `shadow` (Fragment, Memory, MBarrier, Task, Product, WGroup) are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .asked import ObserverBase

if TYPE_CHECKING:
    from .barriers import MBarrier, NamedBarrier
    from .cta import Cluster, Cta
    from .fragment import Fragment, Wait
    from .machine import Machine
    from .memory import Memory, Places
    from .program import Op
    from .tasks import Group, Task
    from .tensormap import Map
    from .warpgroup import Product, WGroup


class Observer(ObserverBase):
    """The hooks, in the order in which things happen. Subclass it and override what you need. A run may begin again, with `begin`."""

    # ---------------------------------------------------------------------------------------------- life

    def begin(self, machine: Machine) -> None: ...
    def end(self, machine: Machine) -> None: ...

    def cta_begin(self, cta: Cta) -> None: ...
    def cta_end(self, cta: Cta) -> None:
        """The last thread of the CTA has exited."""

    def exited(self, f: Fragment, mask: int) -> None: ...

    def part(self, f: Fragment, other: Fragment) -> None:
        """Lanes leave `f` and are now `other`: copy the shadow. No lane synchronises with another."""

    def joined(self, parts: Sequence[Fragment]) -> None:
        """Fragments become one again, the one with most lanes (the first of them): merge the shadows. This synchronises nothing."""

    # ---------------------------------------------------------------------------------------------- memory

    def access(self, f: Fragment, mask: int, op: Op, mode: str, memory: Memory, places: Places, size: int, strong: bool,
               values: Any = None) -> None:
        """A generic access, before it happens. `mode` "r", "w", or "a" (atomic read-modify-write); `size` bytes from each lane's place.

        `places` is an int (all lanes at one place) or 32 places. `strong`: not weak; the opcode's tokens say order and scope. `values` are
        what a strong store or an atomic is given, for each word.
        """

    def overwritten(self, f: Fragment, op: Op, memory: Memory, place: int, lane: int) -> None:
        """What a lane has written at a place is gone: another lane has written something else there with the same instruction."""

    def issued(self, f: Fragment, task: Task) -> None:
        """An asynchronous copy or reduction starts; `task.reads` and `task.writes` are its footprint, `task.signals` its mbarriers."""

    def landed(self, task: Task, milestone: int) -> None:
        """`tasks.READ`: the sources have just been read. `tasks.DONE`: the destination has just been written (signals come next)."""

    def tensormap(self, f: Fragment, lane: int, op: Op, memory: Memory, place: int) -> None:
        """A copy is about to be issued by a lane with the tensor map at this place."""

    def stored_beyond(self, f: Fragment, op: Op, name: str, map: Map, columns: tuple[int, int]) -> None:
        """A tensor store has been issued that writes columns, first and last, behind the inner extent of its map (called `name`)."""

    # ---------------------------------------------------------------------------------------------- order

    def warp_sync(self, f: Fragment, mask: int, op: Op) -> None:
        """The lanes meet: bar.warp.sync, and whatever else is `.sync` among them (shfl, vote, elect, wgmma, setmaxnreg, ...)."""

    def warp_meet(self, parts: Sequence[tuple[Fragment, int]], op: Op) -> None:
        """Lanes of several fragments of a warp meet at instructions like `op`, each fragment at its own."""

    def elected(self, parts: Sequence[tuple[Fragment, Op, int]], members: int, lane: int) -> None:
        """Lanes of these fragments, each at its own `elect.sync`, have elected a lane among `members`."""

    def fence(self, f: Fragment, mask: int, op: Op) -> None:
        """fence.*, membar.*, tensormap.cp_fenceproxy: the opcode's tokens say which."""

    def map_published(self, f: Fragment, mask: int, op: Op, memory: Memory, place: int) -> None:
        """tensormap.cp_fenceproxy has copied a tensor map to this place, as `access` has told, and released it."""

    def map_acquired(self, f: Fragment, mask: int, op: Op, memory: Memory, places: Places) -> None:
        """fence.proxy.tensormap::generic.acquire of the 128 bytes at these places; `fence` is told as well."""

    def previous_ended(self, f: Fragment, mask: int, op: Op) -> None:
        """griddepcontrol.wait has returned: the grid before has ended, and what it wrote is visible."""

    def mbarrier_init(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, before: MBarrier | None) -> None:
        """`before` is the live barrier that was at this place."""

    def mbarrier_inval(self, f: Fragment, lane: int, op: Op, barrier: MBarrier) -> None: ...

    def mbarrier_expect_tx(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int) -> None:
        """Before the bytes are added to the current phase, `barrier.phase`."""

    def mbarrier_arrive(self, f: Fragment, lane: int, op: Op, barrier: MBarrier, count: int, drop: bool) -> None:
        """Before the arrival is counted in the current phase. Order and scope are the opcode's (default release, cta)."""

    def copies_counted(self, f: Fragment, lane: int, op: Op, barrier: MBarrier) -> None:
        """A lane issues a cp.async.mbarrier.arrive, which lets the phase await one arrival more unless it is `.noinc`."""

    def copies_arrive(self, task: Task, barrier: MBarrier) -> None:
        """As `mbarrier_arrive`, of a lane's cp.async.mbarrier.arrive (the task), whose copies are complete."""

    def mbarrier_complete_tx(self, task: Task | None, barrier: MBarrier, count: int) -> None:
        """Before the bytes are taken from the current phase; `task` None: by mbarrier.complete_tx."""

    def mbarrier_flip(self, barrier: MBarrier, phase: int) -> None:
        """`phase` is complete; waiters have not been woken."""

    def mbarrier_test(self, f: Fragment, mask: int, op: Op, barrier: MBarrier, phase: int, done: bool) -> None:
        """test_wait or try_wait has an answer about `phase` (of a parity: the phase that a correct waiter means)."""

    def doubts(self, f: Fragment, op: Op) -> bool:
        """Whether a wait, whose phase is complete, is to say no all the same, as it does in another schedule."""
        return False

    def barrier_arrive(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, count: int | None, waits: bool) -> None:
        """bar.sync, bar.red (`waits`) or bar.arrive, before it is counted in `barrier.generation`."""

    def barrier_complete(self, barrier: NamedBarrier, generation: int) -> None: ...

    def barrier_pass(self, f: Fragment, mask: int, op: Op, barrier: NamedBarrier, generation: int) -> None:
        """A waiting fragment goes on."""

    def cluster_arrive(self, f: Fragment, mask: int, op: Op, cluster: Cluster) -> None:
        """Before it is counted in `cluster.barrier.phase`. `.relaxed` is in the opcode, else it releases."""

    def cluster_complete(self, cluster: Cluster, phase: int) -> None: ...

    def cluster_pass(self, f: Fragment, mask: int, op: Op, cluster: Cluster, phase: int) -> None: ...

    def slept(self, f: Fragment, wait: Wait) -> None:
        """The fragment waits from now on; it has not gone on yet when it next tells of something."""

    # ---------------------------------------------------------------------------------------------- groups

    def group_commit(self, f: Fragment, mask: int, op: Op, group: Group) -> None:
        """cp.async.commit_group, cp.async.bulk.commit_group: the opcode says which."""

    def group_wait(self, f: Fragment, mask: int, op: Op, groups: Sequence[Group], milestone: int) -> None:
        """A wait is over: all tasks of `groups` have reached the milestone (`tasks.READ` for `.read`)."""

    def wgmma_issue(self, f: Fragment, op: Op, product: Product) -> None: ...
    def wgmma_fence(self, f: Fragment, op: Op) -> None: ...
    def wgmma_commit(self, f: Fragment, op: Op, group: WGroup) -> None: ...

    def wgmma_done(self, group: Any, run: WGroup, products: Sequence[Product]) -> None:
        """The group (of Warpgroup `group`) has read its operands and written its results; `group.regions(product)` is what it reads."""

    def wgmma_wait(self, f: Fragment, op: Op, finished: int) -> None:
        """The warp has waited for the groups numbered below `finished`."""

    def touch(self, f: Fragment, op: Op) -> None:
        """Before any other instruction that names a register of some wgmma: `op.reads()`, `op.writes()`."""

    def follows(self, op: Op) -> bool:
        """Whether it wants to be told of what this shuffle reads."""
        return False

    def shuffled(self, parts: Sequence[tuple[Fragment, Op, int]], source: Any, absent: int) -> None:
        """A shuffle of the lanes of these parts (fragment, instruction, lanes), before its results are written: the lane that each lane
        reads, and the lanes `absent` that read one which does not take part.
        """

    # ---------------------------------------------------------------------------------------------- the rest

    def registers(self, f: Fragment, op: Op, before: int, after: int) -> None:
        """setmaxnreg has taken effect: registers per thread of this warp."""


class Several(Observer):
    """Tells several observers the same things, one after the other."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = tuple(observers)
        for name, hook in vars(Observer).items():
            if callable(hook):
                setattr(self, name, _all([getattr(each, name) for each in observers if getattr(type(each), name) is not hook]))


def _all(told: list[Callable[..., Any]]) -> Callable[..., Any]:
    if len(told) == 1:
        return told[0]

    def tell(*arguments: Any, **named: Any) -> bool:
        answers = [hook(*arguments, **named) for hook in told]
        return any(answers)

    return tell
