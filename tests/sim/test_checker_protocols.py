"""The certificates against exhaustive search: small random protocols of arrivals and waits on two mbarriers.

If the checker says that every schedule is equivalent, all interleavings count every arrival in, and see by every wait, the same phase,
and all come to their end.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import sim

from .test_checker import text

pytestmark = [pytest.mark.pure, pytest.mark.timeout(90)]
Action = tuple[str, int, int]
"""("arrive", barrier, 0) or ("wait", barrier, parity)."""


def outcomes(counts: tuple[int, ...], threads: list[list[Action]]) -> set[tuple[object, ...]]:
    """The phases that each thread's actions meet, over all interleavings; or "deadlock", "underflow"."""
    start = (0,) * len(threads), tuple((0, count) for count in counts), ((),) * len(threads)
    seen, work, found = {start}, [start], set[tuple[object, ...]]()
    while work:
        places, barriers, met = work.pop()
        ended = all(place == len(actions) for place, actions in zip(places, threads, strict=True))
        went = False
        for i, actions in enumerate(threads):
            if places[i] == len(actions):
                continue
            kind, b, parity = actions[places[i]]
            phase, pending = barriers[b]
            if kind == "wait":
                if phase & 1 == parity:
                    continue
                after, event = (phase, pending), phase - 1
            elif not pending:
                found.add(("underflow",))
                continue
            else:
                after, event = (phase, pending - 1) if pending > 1 else (phase + 1, counts[b]), phase
            went = True
            state = (_put(places, i, places[i] + 1), _put(barriers, b, after), _put(met, i, (*met[i], event)))
            if state not in seen:
                seen.add(state)
                work.append(state)
        if ended:
            found.add(met)
        elif not went:
            found.add(("deadlock",))
    return found


def _put(values: tuple, i: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:i], value, *values[i + 1:])


def source(counts: tuple[int, ...], threads: list[list[Action]]) -> str:
    """Each thread is the first lane of a warp."""
    lines = [f"@%p0 mbarrier.init.shared.b64 [%r2+{8 * b}], {count};" for b, count in enumerate(counts)]
    lines += ["bar.sync 0;", "and.b32 %r6, %r0, 31;", "setp.ne.u32 %p3, %r6, 0;", "@%p3 bra last;"]
    for i, actions in enumerate(threads):
        lines += [f"setp.ne.u32 %p4, %r5, {i};", f"@%p4 bra next{i};"]
        for j, (kind, b, parity) in enumerate(actions):
            if kind == "arrive":
                lines.append(f"mbarrier.arrive.shared.b64 _, [%r2+{8 * b}];")
            else:
                lines += [f"w{i}x{j}:", f"mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r2+{8 * b}], {parity};", f"@!%p7 bra w{i}x{j};"]
        lines += ["bra last;", f"next{i}:"]
    return text("\n".join([*lines, "last:"]), True, 32 * len(threads))


def ring(rounds: int, skewed: int) -> list[list[Action]]:
    """A producer and a consumer of one stage; `skewed` shifts the consumer's parity."""
    producer: list[Action] = []
    consumer: list[Action] = []
    for i in range(rounds):
        producer += [("wait", 1, i + 1 & 1), ("arrive", 0, 0)]
        consumer += [("wait", 0, i + skewed & 1), ("arrive", 1, 0)]
    return [producer, consumer]


bit = st.integers(0, 1)
action = st.one_of(st.tuples(st.just("arrive"), bit, st.just(0)), st.tuples(st.just("wait"), bit, bit))


def agree(counts: tuple[int, ...], threads: list[list[Action]], schedule: str, seed: int) -> bool:
    report = sim.run(source(counts, threads), grid=1, args=[np.zeros(16, np.uint32)], schedule=schedule, seed=seed)
    found = outcomes(counts, threads)
    if report.every_schedule:
        assert len(found) == 1, (str(report), found)
        assert not found & {("deadlock",), ("underflow",)}
    return report.every_schedule


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.tuples(st.integers(1, 2), st.integers(1, 2)), st.lists(st.lists(action, min_size=1, max_size=4), min_size=2, max_size=3),
       st.integers(0, 9))
def test_random_protocols(counts: tuple[int, int], threads: list[list[Action]], seed: int) -> None:
    agree(counts, threads, "random", seed)


@pytest.mark.parametrize("schedule", ["fifo", "random", "adversarial"])
def test_a_ring_is_certified(schedule: str) -> None:
    assert agree((1, 1), ring(4, 0), schedule, 1)
    assert not agree((1, 1), ring(4, 1), schedule, 1)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.integers(1, 3), st.integers(0, 1), st.integers(0, 7), st.integers(0, 9))
def test_rings_that_lack_an_action(rounds: int, thread: int, index: int, seed: int) -> None:
    threads = ring(rounds + 1, 0)
    del threads[thread][index % len(threads[thread])]
    agree((1, 1), threads, "random", seed)
