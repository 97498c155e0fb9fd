"""mbarrier.*"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...grammar.limits import MBARRIER
from ..barriers import MBarrier
from ..cta import cta_of_place
from ..errors import Fault
from ..fragment import Wait
from ..memory import remote, resolve
from ..operand import Sink
from ..program import Op
from ..values import lane_list, lane_of, merge
from .registry import BLOCKED, Run, action, blocking


def _places(f: Any, mask: int, op: Op, address: Any) -> Any:
    """The places of mbarriers: in the CTA's own shared memory, unless the instruction says .shared::cluster, or arrives at a generic
    address in the scope of the cluster and asks for no state, as a cluster's leader is told.
    """
    space = space_of(op)
    memory, places = resolve(f, mask, op, space, address, 8)
    if memory is not f.cta.cluster.shared:
        raise Fault("out-of-bounds", f"{f.warp!r}: `{op.opcode}` at an address in {memory.space} memory: mbarriers are in shared memory",
                    "", op)
    if not space and not _tells_cluster(op) and (type(places) is not int or places // f.machine.shared_stride != f.cta.rank):
        for lane in lane_list(mask):
            rank = lane_of(places, lane) // f.machine.shared_stride
            if rank != f.cta.rank:
                remote(f, op, rank, own=True)
    return places


def each(f: Any, mask: int, op: Op, address: Any, *values: Any) -> list[tuple[Any, ...]]:
    """(lane, place in the cluster's shared memory, values) of every executing lane."""
    places = _places(f, mask, op, address)
    if mask & mask - 1 == 0:
        lane = mask.bit_length() - 1
        return [(lane, lane_of(places, lane), *[lane_of(v, lane) for v in values])]
    return [(lane, lane_of(places, lane), *[lane_of(v, lane) for v in values]) for lane in lane_list(mask)]


@lru_cache(maxsize=4096)
def _tells_cluster(op: Op) -> bool:
    return op.has("cluster") and op.tokens[1] in ("arrive", "arrive_drop") and isinstance(op.operand("state"), Sink | None)


@lru_cache(maxsize=4096)
def space_of(op: Op) -> str:
    """The state space of the barrier's address."""
    return op.space("addr")


@action("mbarrier.init")
def init(op: Op) -> Run:
    def run(f: Any, mask: int, address: Any, count: Any) -> None:
        barriers = f.cta.cluster.mbarriers
        for lane, place, number in each(f, mask, op, address, count):
            if not 1 <= number <= MBARRIER:
                raise Fault("mbarrier-count", f"{f.warp!r} initialises {f.machine.name_of(place % f.machine.shared_stride)} with {number} "
                            f"arrivals: 1 to {MBARRIER:,} are possible", "", op)
            made = MBarrier(cta_of_place(f.cta.cluster, place), place, number)
            if f.machine.watch is not None:
                f.machine.watch.mbarrier_init(f, lane, op, made, barriers.get(place))
            barriers[place] = made
            f.machine.progress += 1

    return run


@action("mbarrier.inval")
def inval(op: Op) -> Run:
    def run(f: Any, mask: int, address: Any) -> None:
        for lane, place in each(f, mask, op, address):
            barrier = f.machine.mbarrier(f, op, place)
            if f.machine.watch is not None:
                f.machine.watch.mbarrier_inval(f, lane, op, barrier)
            del f.cta.cluster.mbarriers[place]

    return run


@action("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(op: Op) -> Run:
    """`.expect_tx` announces its bytes first, then arrives once; `arrive_drop` also lowers the count of the phases to come."""
    drop = op.tokens[1] == "arrive_drop"
    expects = op.has("expect_tx")
    stays = op.has("noComplete")
    wanted = op.operand("state") is not None and not isinstance(op.operand("state"), Sink)
    returns = op.operand("state") is not None

    def run(f: Any, mask: int, address: Any, number: Any = None) -> Any:
        machine = f.machine
        watch = machine.watch
        state: Any = 0
        for lane, place, count in each(f, mask, op, address, 1 if number is None else number):
            barrier = machine.mbarrier(f, op, place)
            token = barrier.state()
            if expects:
                if watch is not None:
                    watch.mbarrier_expect_tx(f, lane, op, barrier, count)
                barrier.expect(count, op, f.warp)
                count = 1
            if watch is not None:
                watch.mbarrier_arrive(f, lane, op, barrier, count, drop)
            if stays and count >= barrier.pending:
                raise Fault("mbarrier-no-complete", f"{f.warp!r}: `{op.opcode}` completes phase {barrier.phase} of {barrier}, and says "
                            "that it does not", "leave out .noComplete", op)
            if drop:
                barrier.expected -= count
            barrier.arrive(count, op, f.warp)
            machine.progress += 1
            if wanted:
                state = token if f.lane is not None else merge(1 << lane, token, state, 64)
        return state if returns else None

    return run


@action("mbarrier.expect_tx", "mbarrier.complete_tx")
def bytes_only(op: Op) -> Run:
    expects = op.tokens[1] == "expect_tx"

    def run(f: Any, mask: int, address: Any, count: Any) -> None:
        watch = f.machine.watch
        for lane, place, number in each(f, mask, op, address, count):
            barrier = f.machine.mbarrier(f, op, place)
            if expects:
                if watch is not None:
                    watch.mbarrier_expect_tx(f, lane, op, barrier, number)
                barrier.expect(number, op, f.warp)
                barrier.check()
            else:
                if watch is not None:
                    watch.mbarrier_complete_tx(None, barrier, number)
                barrier.complete_tx(number, op, f.warp)
            f.machine.progress += 1

    return run


@blocking("mbarrier.try_wait", "mbarrier.test_wait")
def wait(op: Op) -> Run:
    """A try_wait sleeps until the phase completes; the schedule may let it say no."""
    sleeps = op.tokens[1] == "try_wait"
    by_parity = op.has("parity")

    def run(f: Any, mask: int, address: Any, phase: Any, hint: Any = None) -> Any:
        machine = f.machine
        watch = machine.watch
        result: Any = None
        late, f.timed_out = f.timed_out, False
        asking: list[tuple[Any, ...]]
        if type(address) is int and type(phase) is int:
            asking = [(None, _places(f, mask, op, address), phase)]
        else:
            asking = _distinct(each(f, mask, op, address, phase))
        for lane, place, asked in asking:
            barrier = machine.mbarrier(f, op, place)
            number = barrier.phase
            if by_parity:
                done = barrier.done(asked & 1)
                meant = number - 1 if done else number
            else:
                meant = barrier.meant(asked, op, f.warp)
                done = number > meant
            if done and ((sleeps and not machine.probing and machine.policy.fails(f)) or (watch is not None and watch.doubts(f, op))):
                done = False
            elif not done and sleeps and not late:
                machine.sleep(f, barrier.waiters, Wait("mbarrier", op, barrier, meant, times_out=True))
                return BLOCKED
            if watch is not None:
                watch.mbarrier_test(f, mask if lane is None else 1 << lane, op, barrier, meant, done)
            if done:
                barrier.seen[f.warp] = meant
            result = done if lane is None or f.lane is not None else merge(1 << lane, done, False if result is None else result, 1)
        return result

    return run


def _distinct(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """One entry with lane None where all lanes ask the same."""
    first = found[0][1:]
    return [(None, *first)] if all(entry[1:] == first for entry in found) else found


@action("mbarrier.pending_count")
def pending_count(op: Op) -> Run:
    return lambda f, mask, state: (state & MBARRIER) if isinstance(state, int) else state.astype("uint32") & MBARRIER
