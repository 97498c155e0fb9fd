"""What a loop's body takes out of lists, deques, dictionaries, sets and heaps of before the loop."""

# ruff: noqa: E741, F841, RUF059

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ptxkit import Ptr, Ring, else_, for_range, if_, loop, ring
from ptxkit.ptx import add, mov, mul, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("was made before this loop")
def attr_pop(x: Ptr[u32], n: N) -> None:
    state = SimpleNamespace(queue=[1, 2, 3])
    with for_range(n) as i:
        st.global_.u32(x.at(i), state.queue.pop())  # wrong


@wrong("was made before this loop")
def sub_pop(x: Ptr[u32], n: N) -> None:
    queues = [[1, 2, 3], [4]]
    with for_range(n) as i:
        st.global_.u32(x.at(i), queues[0].pop())  # wrong


@wrong("was made before this loop")
def self_popleft(x: Ptr[u32], n: N) -> None:

    class Free:

        def __init__(self):
            self.free = deque([1, 2, 3])

        def take(self):
            return self.free.popleft()
    f = Free()
    with for_range(n) as i:
        st.global_.u32(x.at(i), f.take())  # wrong


@wrong("was made before this loop")
def while_in(x: Ptr[u32], n: N) -> None:
    queue = [1, 2, 3]
    with for_range(n) as i:
        while queue:  # wrong
            st.global_.u32(x.at(i), queue.pop())


@wrong("was made before this loop")
def delslice(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        st.global_.u32(x.at(i), q[0])  # wrong
        del q[0]


@wrong("was made before this loop")
def delslice2(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        for k in q[:1]:  # wrong
            st.global_.u32(x.at(i), k)
        q[:1] = []


@wrong("was made before this loop")
def heap(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        st.global_.u32(x.at(i), heapq.heappop(q))  # wrong


@wrong("was made before this loop")
def set_pop(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q={1, 2, 3})
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.q.pop())  # wrong


@wrong("was made before this loop")
def namedtuple(x: Ptr[u32], n: N) -> None:

    class Stage(NamedTuple):
        at: int
        par: int
    q = [Stage(0, 1), Stage(1, 0)]
    with for_range(n) as i:
        st.global_.u32(x.at(i), q.pop(0).at)  # wrong


@wrong("was made before this loop")
def dataclass_(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class Stage:
        at: int
    q = [Stage(0), Stage(1)]
    with for_range(n) as i:
        st.global_.u32(x.at(i), q.pop(0).at)  # wrong


@wrong("was made before this loop")
def ops(x: Ptr[u32], n: N) -> None:
    ops = [add.u32, mul.lo.u32]
    with for_range(n) as i:
        st.global_.u32(x.at(i), ops.pop()(i, 3))  # wrong


@wrong("was made before this loop")
def loop_(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=[1, 2, 3])
    k = mov.u32(0)
    with loop() as l:
        st.global_.u32(x.at(k), s.q.pop())  # wrong
        add.u32(k, k, 1)
        l.break_if(k >= n)


@wrong("was made before this loop")
def ring_(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=[1, 2, 3])
    with ring(2, n) as (k, stage, par):
        st.global_.u32(x.at(k), s.q.pop())  # wrong


@wrong("was made before this loop")
def two_with(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=[1, 2, 3])
    with for_range(n) as i, for_range(n) as j:
        st.global_.u32(x.at(i + j), s.q.pop())  # wrong


@wrong("was made before this loop")
def tryfinally(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=[1, 2, 3])
    with for_range(n) as i:
        try:
            st.global_.u32(x.at(i), s.q[-1])  # wrong
        finally:
            s.q.pop()


@wrong("was made before this loop")
def dictpop_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q={"a": 1, "b": 2})
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.q.popitem()[1])  # wrong


@wrong("was made before this loop")
def index(x: Ptr[u32], n: N) -> None:
    q = ["a", "b"]
    names = {"a": 0, "b": 1}
    with for_range(n) as i:
        k = q[0]  # wrong
        q.remove(k)
        st.global_.u32(x + names[k], i)


@wrong("was made before this loop")
def walrus_while(x: Ptr[u32], n: N) -> None:
    q = SimpleNamespace(a=[3, 2, 1])
    with for_range(n) as i:
        if (k := q.a.pop()):  # wrong
            st.global_.u32(x + k, i)


@wrong("was made before this loop", "every iteration has what was taken first")
def pypop(x: Ptr[u32], n: N) -> None:
    numbers = [1, 2]
    with for_range(2):
        st.global_.u32(x, numbers.pop())  # wrong


@right
def remade(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=deque([0, 1]))
    with for_range(n) as i:
        s.q = deque([0, 1, 2])
        while s.q:
            st.global_.u32(x.at(i), s.q.popleft())


@right
def remade_after(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=deque([0, 1]))
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.q.popleft())
        st.global_.u32(x.at(i), s.q.popleft())
        s.q = deque([0, 1])


@right
def refilled(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=[0, 1])
    with for_range(n) as i:
        k = s.q.pop()
        st.global_.u32(x.at(i), k)
        s.q.append(k)


@right
def rotfull(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=deque([0, 1]))
    with for_range(n) as i:
        for _ in range(2):
            st.global_.u32(x.at(i), s.q[0])
            s.q.rotate(1)


@right
def pool_regs(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(free=[mov.u32(0), mov.u32(1)])
    with for_range(n) as i:
        r = s.free.pop()
        mov.u32(r, i)
        st.global_.u32(x, r)


@right
def pool_rings(x: Ptr[u32], n: N) -> None:
    free = [Ring(2), Ring(3)]
    with for_range(n) as i:
        r = free.pop()
        with ring(r, n) as (k, stage, p):
            st.global_.u32(x.at(k), stage)


@right
def unroll_while(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    while q:
        k = q.pop()
        with for_range(n) as i:
            st.global_.u32(x.at(i), k)


@right
def log(x: Ptr[u32], n: N) -> None:
    log = []
    s = SimpleNamespace(log=deque(), seen=set(), by={})
    with for_range(n) as i:
        log.append("a")
        s.log.append(1)
        s.seen.add(3)
        s.by["x"] = 4
        st.global_.u32(x, i)


@right
def slots_written(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(done=[False, False])
    with for_range(n) as i:
        s.done[0] = True
        st.global_.u32(x, i)


@right
def queue_unread(x: Ptr[u32], n: N) -> None:
    queue = [1, 2]
    s = SimpleNamespace(q=iter([1]))
    with for_range(n) as i:
        if queue and s.q is not None and (len(queue) == 2):
            st.global_.u32(x, i)
    st.global_.u32(x, queue.pop() + next(s.q))


@right
def last(x: Ptr[u32], n: N) -> None:
    offsets = [1, 2, 3]
    with for_range(n) as i:
        *most, last = offsets
        for k in most:
            st.global_.u32(x + k, i)
        st.global_.u32(x + last, i)


@right
def scratch_list(x: Ptr[u32], n: N) -> None:
    scratch = []
    with for_range(n) as i:
        scratch.clear()
        for k in range(3):
            scratch.append(k)
        for k in scratch:
            st.global_.u32(x + k, i)


@right
def heap_inside(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i:
        h = [3, 1, 2]
        heapq.heapify(h)
        while h:
            st.global_.u32(x + heapq.heappop(h), i)


@right
def flags2(x: Ptr[u32], n: N) -> None:
    done = [False, True]
    with for_range(n) as i:
        st.global_.u32(x, i)
        done[0] = True


@right
def flags3(x: Ptr[u32], n: N) -> None:
    done = [True, False]
    with for_range(n) as i:
        st.global_.u32(x, i)
        done[0] = False
        done[1] = True


@right
def match_star(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        match q:
            case [a, *rest]:
                st.global_.u32(x + a, i)
                for k in rest:
                    st.global_.u32(x + k, i)


@right
def two_loops_pop(x: Ptr[u32], n: N) -> None:
    ids = [1, 2, 3]
    a = ids.pop()
    with for_range(n) as i:
        st.global_.u32(x + a, i)
    a = ids.pop()
    with for_range(n) as i:
        st.global_.u32(x + a, i)


@right
def if_pop(x: Ptr[u32], n: N) -> None:
    ids = [1, 2, 3]
    with if_(n > 3):
        st.global_.u32(x + ids.pop(), n)
    with else_():
        st.global_.u32(x + ids.pop(), n)


@right
def userlist_mut(x: Ptr[u32], n: N) -> None:
    order = [2, 1]
    order.sort()
    with for_range(n) as i:
        order.sort()
        for k in order:
            st.global_.u32(x + k, i)


@right
def pypool(x: Ptr[u32], n: N) -> None:
    pool, left = [mov.u32(0), mov.u32(1)], [1, 2]
    with for_range(n):
        scratch = pool.pop()
        add.u32(scratch, scratch, 1)
        pool.append(scratch)
        inner = [1, 2]
        while inner:
            st.global_.u32(x, inner.pop())
    st.global_.u32(x, left.pop())


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
