"""A name, slot or attribute that a loop's body binds to another register is a value that the loop loses."""

from __future__ import annotations

import sys
from abc import ABCMeta, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ptxkit import Ptr, Reg, Vec, for_range, kernel, ring, smem
from ptxkit.dsl.held import Held
from ptxkit.errors import TraceError
from ptxkit.ptx import add, ld, mov, sub
from ptxkit.ptx import st as store
from ptxkit.types import f32, u32
from tests.ptxkit.lost.counts import Counts
from tests.ptxkit.lost.loops import LOOPS
from tests.ptxkit.machine import trace
from tests.ptxkit.refusal import refused

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
Numbers = Reg[u32]


@pytest.mark.parametrize("repeat", LOOPS.values(), ids=LOOPS)
def test_a_name_that_the_body_binds_again_is_lost(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[f32], n: Numbers) -> None:
        total = mov.f32(0.0)
        with repeat(n):
            total = add.rn.f32(total, ld.global_.f32(x))                         # wrong

    refused(kernel, "the loop loses `total`", "total=total) as loop:` and `loop.total = ...`", "`add.rn.f32(total, total, x)`")


@pytest.mark.parametrize("repeat", LOOPS.values(), ids=LOOPS)
def test_a_name_bound_to_another_register_emits_nothing_and_is_lost(repeat: Callable[[Any], AbstractContextManager[Any]]) -> None:
    def kernel(x: Ptr[f32], n: Numbers) -> None:
        last = mov.f32(0.0)
        with repeat(n):
            value = ld.global_.f32(x)
            store.global_.f32(x, sub.rn.f32(value, last))
            last = value                                                         # wrong

    refused(kernel, "the loop loses `last`", "`mov.f32(last, ...)`")


def test_slots_attributes_and_free_names_are_names_too() -> None:
    class State:
        total: Any

    def slot(n: Numbers) -> None:
        sums = [[mov.u32(0)], [mov.u32(1)]]
        with for_range(n):
            sums[1][0] = sums[1][0] + 1                                          # wrong

    def key(n: Numbers) -> None:
        sums = {"a": mov.u32(0)}
        with for_range(n):
            sums["a"] = sums["a"] + 1                                            # wrong

    def attribute(n: Numbers) -> None:
        state = State()
        state.total = n
        with for_range(4):
            state.total = state.total + 1                                        # wrong

    def nonlocal_(n: Numbers) -> None:
        def more() -> None:
            nonlocal n
            n = n + 1

        with for_range(4):
            more()                                                               # not at this line: names are assigned anywhere

    def vector(n: Numbers) -> None:
        sums = Vec([mov.u32(0), mov.u32(0)])
        with for_range(n):
            sums = Vec([each + 1 for each in sums])                              # wrong

    for wrong, word in ((slot, "sums[1][0]"), (key, "sums['a']"), (attribute, "state.total"), (vector, "sums[0]")):
        refused(wrong, f"the loop loses `{word}`")
    with pytest.raises(TraceError, match="the loop loses `n`"):
        trace(nonlocal_)


FAR: dict[str, Any] = {}


class Slotted:
    __slots__ = ("total",)
    total: Any


@dataclass(frozen=True)
class Frozen:
    total: Any


def test_objects_of_other_kinds_globals_and_functions_hold_names_too() -> None:
    """`last = value`: nothing reads the register of the body after it, so that only the names tell."""
    def slots(x: Ptr[u32], n: Numbers) -> None:
        state = Slotted()
        state.total = mov.u32(0)
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state.total = mov.u32(i)                                             # wrong

    def frozen(x: Ptr[u32], n: Numbers) -> None:
        state = Frozen(mov.u32(0))
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state = replace(state, total=i + 1)                                  # wrong

    def namespace(x: Ptr[u32], n: Numbers) -> None:
        state = SimpleNamespace(total=mov.u32(0))
        with for_range(n) as i:
            store.global_.u32(x, state.total)
            state.total = mov.u32(i)                                             # wrong

    def rotated(x: Ptr[u32], n: Numbers) -> None:
        state = deque([mov.u32(0), mov.u32(1)])
        with for_range(n) as i:
            store.global_.u32(x, state.popleft())
            state.append(mov.u32(i))

    def far(x: Ptr[u32], n: Numbers) -> None:
        FAR["total"] = mov.u32(0)
        with for_range(n) as i:
            store.global_.u32(x, FAR["total"])
            FAR["total"] = mov.u32(i)                                            # wrong

    def body(x: Ptr[u32], n: Numbers) -> None:
        total = mov.u32(0)

        def step(i: Numbers) -> None:
            nonlocal total
            store.global_.u32(x, total)
            total = mov.u32(i)                                                   # wrong

        repeated(n, step)

    def private(x: Ptr[u32], n: Numbers) -> None:
        class Own:
            __slots__ = ("__total",)

            def __init__(self) -> None:
                self.__total = mov.u32(0)

            def step(self, i: Numbers) -> None:
                store.global_.u32(x, self.__total)
                self.__total = mov.u32(i)                                        # wrong

        own = Own()
        with for_range(n) as i:
            own.step(i)

    def default(x: Ptr[u32], n: Numbers) -> None:
        def step(i: Numbers, kept: Any = [mov.u32(0)]) -> None:  # noqa: B006, B008
            store.global_.u32(x, kept[0])
            kept[0] = mov.u32(i)                                                 # wrong

        repeated(n, step)

    def given(x: Ptr[u32], n: Numbers) -> None:
        def step(kept: Any, i: Numbers) -> None:
            store.global_.u32(x, kept[0])
            kept[0] = mov.u32(i)                                                 # wrong

        repeated(n, partial(step, [mov.u32(0)]))

    for wrong in (private, default, given):
        refused(wrong, "the loop loses `")
    for wrong, word in ((slots, "state.total"), (frozen, "state.total"), (namespace, "state.total"), (far, "FAR['total']"),
                        (body, "total")):
        refused(wrong, f"the loop loses `{word}`")
    with pytest.raises(TraceError, match=r"the loop loses `state.0.`"):
        trace(rotated)                                                           # both registers are of before the loop


def repeated(n: Numbers, step: Callable[[Numbers], None]) -> None:
    """A loop that knows nothing of the names that its body binds."""
    with for_range(n) as i:
        step(i)


def test_what_the_loop_itself_gives_is_another_value_too() -> None:
    def slot(x: Ptr[u32], n: Numbers) -> None:
        last = [mov.u32(99)]
        with for_range(n) as i:
            store.global_.u32(x.at(i), last[0])
            last[0] = i                                                          # wrong

    def attribute(x: Ptr[u32], n: Numbers) -> None:
        state = SimpleNamespace(parity=mov.u32(7))
        with ring(2, n) as (k, _, parity):
            store.global_.u32(x.at(k), state.parity)
            state.parity = parity                                                # wrong

    def shared(x: Ptr[u32], n: Numbers) -> None:
        last = mov.u32(7)

        def get() -> Any:
            return last

        with for_range(n) as i:
            store.global_.u32(x.at(i), get())
            last = i                                                             # wrong

    for made in (slot, attribute, shared):
        refused(made, "the loop loses `")

    def right(x: Ptr[u32], n: Numbers) -> None:
        state, items = SimpleNamespace(k=mov.u32(2), stage=mov.u32(0)), [mov.u32(1)]
        with for_range(state.k) as state.k:
            store.global_.u32(x.at(state.k), state.k)
        with ring(2, n) as (items[0], state.stage, parity):
            store.global_.u32(x.at(items[0]), state.stage + parity)

    trace(right)


def test_values_far_within_and_of_other_classes_are_seen() -> None:
    class Abstract(metaclass=ABCMeta):
        total: Any = None

        @abstractmethod
        def step(self) -> None: ...

    def deep(n: Numbers) -> None:
        model = SimpleNamespace(layers=[SimpleNamespace(heads=[SimpleNamespace(acc=mov.u32(0))])])
        with for_range(n) as i:
            model.layers[0].heads[0].acc = model.layers[0].heads[0].acc + i       # wrong

    def lists(n: Numbers) -> None:
        total = [[[[[mov.u32(0)]]]]]
        with for_range(n) as i:
            total[0][0][0][0][0] = total[0][0][0][0][0] + i                      # wrong

    def abstract(n: Numbers) -> None:
        Abstract.total = mov.u32(0)
        with for_range(n) as i:
            Abstract.total = Abstract.total + i                                  # wrong

    def elsewhere(n: Numbers) -> None:
        Counts.total = mov.u32(0)
        with for_range(n) as i:
            Counts.total = Counts.total + i                                      # wrong

    for made in (deep, lists, abstract, elsewhere):
        refused(made, "the loop loses `")


def test_objects_that_lead_to_one_another_take_no_time_of_their_paths() -> None:
    nodes = [SimpleNamespace() for _ in range(60)]
    for node in nodes:
        node.others = list(nodes)

    def kernel(n: Numbers) -> None:
        first = nodes[0]
        with for_range(n):
            mov.u32(0)
        assert first

    trace(kernel)
    assert len(Held(sys._getframe(), {"first": nodes[0]}).holders) < 100_000


def test_a_register_of_an_earlier_trace_is_none_of_this_one() -> None:
    def kept(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n) as i:
            FAR["kept"] = i + 1
            store.global_.u32(x, FAR["kept"])

    for _ in range(2):
        trace(kept)


def test_places_are_values_too() -> None:
    def pointer(x: Ptr[u32], n: Numbers) -> None:
        with for_range(n):
            store.global_.u32(x, 1)
            x = x + 4                                                            # wrong

    def shared(n: Numbers) -> None:
        place = smem.array(u32, 64).at(0)
        with for_range(n):
            store.shared__cta.u32(place, 1)
            place = place + 1                                                    # wrong

    refused(pointer, "the loop loses `x`", "compute `x` from the loop's index")
    refused(shared, "the loop loses `place`")


def test_the_names_around_a_loop_in_a_context_manager_are_those_of_its_user() -> None:
    @contextmanager
    def tiles(n: Numbers) -> Iterator[Numbers]:
        with for_range(n) as i:
            yield i

    def kernel(n: Numbers) -> None:
        total = mov.u32(0)
        with tiles(n) as i:
            total = total + i                                                    # wrong

    refused(kernel, "the loop loses `total`")


def test_in_an_exit_stack() -> None:
    def kernel(n: Numbers) -> None:
        total = mov.u32(0)
        with ExitStack() as stack:
            stack.enter_context(for_range(n))
            total = total + 1                                                    # wrong

    refused(kernel, "the loop loses `total`")


def test_vectors_and_lists_may_take_each_other_s_place() -> None:
    @kernel(block=32)
    def vector_to_list(x: Ptr[f32]) -> None:
        sums = Vec([mov.f32(0.0), mov.f32(1.0)])
        with for_range(4):
            sums = [add.rn.f32(each, each) for each in sums]

    @kernel(block=32)
    def list_to_vector(x: Ptr[f32]) -> None:
        sums = [mov.f32(0.0), mov.f32(1.0)]
        with for_range(4):
            sums = Vec([add.rn.f32(each, each) for each in sums])

    @kernel(block=32)
    def in_a_list(x: Ptr[f32]) -> None:
        sums = [Vec([mov.f32(0.0), mov.f32(1.0)])]
        with for_range(4):
            sums[0] = [add.rn.f32(each, each) for each in sums[0]]

    @kernel(block=32)
    def grown(x: Ptr[f32]) -> None:
        sums = [Vec([mov.f32(0.0), mov.f32(1.0)])]
        with for_range(4):
            sums.append(Vec([add.rn.f32(each, each) for each in sums[0]]))
            for each in (*sums[0], *sums[-1]):
                store.global_.f32(x, each)

    for wrong in (vector_to_list, list_to_vector, in_a_list):
        with pytest.raises(TraceError, match="the loop loses `sums"):
            wrong.ptx()
    assert grown.ptx().count("st.global.f32") == 4
