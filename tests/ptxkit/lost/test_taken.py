"""What a loop's body takes from iterators and containers of before the loop, in every place where they may be."""

# ruff: noqa: B006, B905, E731, E741, F841, RUF059, UP028

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
import operator
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ptxkit import Ptr, Ring, else_, for_range, if_, loop, ring, smem
from ptxkit.ptx import add, mov, mul, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N, Tiles

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
GQ = [1, 2, 3, 4]


@contextlib.contextmanager
def taking(q):
    yield q.pop()


def gtake2():
    return GQ.pop()


def greset():
    GQ[:] = [1, 2, 3]


@wrong("was made before this loop")
def attr_pop(x: Ptr[u32], n: N) -> None:
    state = SimpleNamespace(queue=[1, 2, 3])
    with for_range(n) as i:
        st.global_.u32(x.at(i), state.queue.pop())  # wrong


@wrong("was made before this loop")
def attr_next(x: Ptr[u32], n: N) -> None:
    state = SimpleNamespace(it=iter([1, 2, 3]))
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(state.it))  # wrong


@wrong("was made before this loop")
def sub_pop(x: Ptr[u32], n: N) -> None:
    queues = [[1, 2, 3], [4]]
    with for_range(n) as i:
        st.global_.u32(x.at(i), queues[0].pop())  # wrong


@wrong("was made before this loop")
def sub_next(x: Ptr[u32], n: N) -> None:
    queues = {"a": iter([1, 2, 3])}
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(queues["a"]))  # wrong


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
def nested(x: Ptr[u32], n: N) -> None:
    queue = [1, 2, 3]

    def step(i):
        st.global_.u32(x.at(i), queue.pop())
    with for_range(n) as i:
        step(i)  # wrong


@wrong("was made before this loop")
def nested_next(x: Ptr[u32], n: N) -> None:
    it = iter([1, 2, 3])

    def step(i):
        st.global_.u32(x.at(i), next(it))
    with for_range(n) as i:
        step(i)  # wrong


@wrong("was made before this loop")
def argument(x: Ptr[u32], n: N) -> None:

    def take(q):
        return q.pop()
    queue = [1, 2, 3]
    with for_range(n) as i:
        st.global_.u32(x.at(i), take(queue))  # wrong


@wrong("was made before this loop")
def while_in(x: Ptr[u32], n: N) -> None:
    queue = [1, 2, 3]
    with for_range(n) as i:
        while queue:  # wrong
            st.global_.u32(x.at(i), queue.pop())


@wrong("was made before this loop")
def user_cm(x: Ptr[u32], n: N) -> None:
    queue = [1, 2, 3]
    with Tiles(n) as i:
        st.global_.u32(x.at(i), queue.pop())  # wrong


@wrong("was made before this loop")
def cm_takes(x: Ptr[u32], n: N) -> None:
    queue = [1, 2, 3]
    with for_range(n) as i:
        with taking(queue) as k:  # wrong
            st.global_.u32(x.at(i), k)


@wrong("was made before this loop")
def comp(x: Ptr[u32], n: N) -> None:
    it = iter([1, 2, 3, 4])
    with for_range(n) as i:
        a = [next(it) for _ in range(2)]  # wrong
        st.global_.u32(x.at(i), a[0])


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
def dict_next_iter(x: Ptr[u32], n: N) -> None:
    q = {1: 2, 3: 4}
    with for_range(n) as i:
        k = next(iter(q))  # wrong
        st.global_.u32(x.at(i), q[k])
        del q[k]


@wrong("was made before this loop")
def set_pop(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q={1, 2, 3})
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.q.pop())  # wrong


@wrong("was made before this loop")
def zip_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=zip([1, 2], [3, 4]))
    with for_range(n) as i:
        a, b = next(s.q)  # wrong
        st.global_.u32(x.at(i), a + b)


@wrong("was made before this loop")
def enumerate_(x: Ptr[u32], n: N) -> None:
    e = enumerate([5, 6])

    def step(i):
        k, v = next(e)
        st.global_.u32(x.at(i), v)
    with for_range(n) as i:
        step(i)  # wrong


@wrong("was made before this loop")
def cycle_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=itertools.cycle([0, 1]))
    (next(s.q), next(s.q))
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(s.q))  # wrong


@wrong("was made before this loop")
def gen_attr(x: Ptr[u32], n: N) -> None:

    def g():
        k = 0
        while True:
            yield k
            k ^= 1
    s = SimpleNamespace(q=g())
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(s.q))  # wrong


@wrong("was made before this loop")
def send(x: Ptr[u32], n: N) -> None:

    def g():
        k = 0
        while True:
            k = k + (yield k)
    q = g()
    next(q)

    def step():
        return q.send(1)
    with for_range(n) as i:
        st.global_.u32(x.at(i), step())  # wrong


@wrong("was made before this loop")
def userit(x: Ptr[u32], n: N) -> None:

    class It:
        k = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.k += 1
            return self.k
    s = SimpleNamespace(q=It())
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(s.q))  # wrong


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
def global_fn2(x: Ptr[u32], n: N) -> None:
    greset()
    with for_range(n) as i:  # wrong
        st.global_.u32(x.at(i), gtake2())


@wrong("was made before this loop")
def default(x: Ptr[u32], n: N) -> None:

    def step(i, q=[1, 2, 3]):
        st.global_.u32(x.at(i), q.pop())
    with for_range(n) as i:
        step(i)  # wrong


@wrong("was made before this loop")
def partial(x: Ptr[u32], n: N) -> None:
    step = functools.partial(lambda q, i: st.global_.u32(x.at(i), q.pop()), [1, 2, 3])
    with for_range(n) as i:
        step(i)  # wrong


@wrong("was made before this loop")
def boundpop(x: Ptr[u32], n: N) -> None:
    take = [1, 2, 3].pop
    with for_range(n) as i:
        st.global_.u32(x.at(i), take())  # wrong


@wrong("was made before this loop")
def boundnext(x: Ptr[u32], n: N) -> None:
    take = iter([1, 2, 3]).__next__
    with for_range(n) as i:
        st.global_.u32(x.at(i), take())  # wrong


@wrong("was made before this loop")
def partialnext(x: Ptr[u32], n: N) -> None:
    take = functools.partial(next, iter([1, 2, 3]))
    with for_range(n) as i:
        st.global_.u32(x.at(i), take())  # wrong


@wrong("was made before this loop")
def decor(x: Ptr[u32], n: N) -> None:

    def rotating(f):
        which = itertools.cycle((0, 1))

        @functools.wraps(f)
        def inner(i):
            f(i, next(which))
        return inner

    @rotating
    def step(i, k):
        st.global_.u32(x.at(i), k)
    with for_range(n) as i:
        step(i)  # wrong


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


@wrong("was made before this loop")
def map_next(x: Ptr[u32], n: N) -> None:
    q = map(int, "123")
    put = lambda i: st.global_.u32(x + next(q), i)
    with for_range(n) as i:
        put(i)  # wrong


@wrong("was made before this loop")
def reduce_pop(x: Ptr[u32], n: N) -> None:
    q = [[1, 2], [3, 4]]
    with for_range(n) as i:
        st.global_.u32(x + functools.reduce(operator.add, (e.pop() for e in q)), i)  # wrong


@wrong("was made before this loop")
def methodcaller(x: Ptr[u32], n: N) -> None:
    pop = operator.methodcaller("pop")
    q = SimpleNamespace(a=[1, 2])
    with for_range(n) as i:
        st.global_.u32(x + pop(q.a), i)  # wrong


@wrong("was made before this loop")
def ordereddict(x: Ptr[u32], n: N) -> None:
    q = OrderedDict(a=0, b=1)
    with for_range(n) as i:
        k = next(iter(q))  # wrong
        st.global_.u32(x + q[k], i)
        q.move_to_end(k)


@wrong("was made before this loop")
def threeloops(x: Ptr[u32], n: N) -> None:
    q = SimpleNamespace(a=iter([1, 2]))
    with contextlib.ExitStack() as s:
        i = s.enter_context(for_range(n))
        st.global_.u32(x + next(q.a), i)  # wrong


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
def cycle_full(x: Ptr[u32], n: N) -> None:
    c = itertools.cycle((0, 1))
    (next(c), next(c))
    s = SimpleNamespace(c=c)
    with for_range(n) as i:
        for _ in range(2):
            st.global_.u32(x.at(i), next(s.c))


@right
def count_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(ids=itertools.count())
    with for_range(n) as i:
        st.global_.u32(x + next(s.ids), i)


@right
def count_names(x: Ptr[u32], n: N) -> None:
    names = map("name{}".format, itertools.count())
    with for_range(n) as i:
        smem.array(u32, 4, name=next(names))
        st.global_.u32(x, i)


@right
def count_genexp(x: Ptr[u32], n: N) -> None:
    names = (f'name{k}' for k in itertools.count())
    with for_range(n) as i:
        smem.array(u32, 4, name=next(names))
        st.global_.u32(x, i)


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
def zip_for(x: Ptr[u32], n: N) -> None:
    pairs = zip((0, 1), (2, 3))
    with for_range(n) as i:
        for a, b in pairs:
            st.global_.u32(x + a, b)


@right
def enum_for(x: Ptr[u32], n: N) -> None:
    rows = enumerate([5, 6])
    with for_range(n) as i:
        for a, b in rows:
            st.global_.u32(x + a, b)


@right
def gen_for(x: Ptr[u32], n: N) -> None:
    offsets = (4 * k for k in range(4))
    with for_range(n) as i:
        for a in offsets:
            st.global_.u32(x + a, i)


@right
def reversed_for(x: Ptr[u32], n: N) -> None:
    offsets = reversed([1, 2])
    with for_range(n) as i:
        for a in offsets:
            st.global_.u32(x + a, i)


@right
def gen_around(x: Ptr[u32], n: N) -> None:

    def rows():
        for k in range(3):
            with for_range(n) as i:
                yield (k, i)
    for k, i in rows():
        st.global_.u32(x.at(i), k)


@right
def inner_loop_gen(x: Ptr[u32], n: N) -> None:

    def rows(q):
        while q:
            yield q.pop()
    for k in rows([1, 2]):
        with for_range(n) as i:
            st.global_.u32(x.at(i), k)


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
def given_back_cm(x: Ptr[u32], n: N) -> None:
    free = [0, 1]

    @contextlib.contextmanager
    def slot():
        k = free.pop()
        yield k
        free.append(k)
    with for_range(n) as i:
        with slot() as k:
            st.global_.u32(x + k, i)


@right
def user_cm_right(x: Ptr[u32], n: N) -> None:
    total = mov.u32(0)
    with Tiles(n) as i:
        add.u32(total, total, i)
    st.global_.u32(x, total)


@right
def last(x: Ptr[u32], n: N) -> None:
    offsets = [1, 2, 3]
    with for_range(n) as i:
        *most, last = offsets
        for k in most:
            st.global_.u32(x + k, i)
        st.global_.u32(x + last, i)


@right
def stack_ctx(x: Ptr[u32], n: N) -> None:
    stack = ["root"]

    @contextlib.contextmanager
    def scope(name):
        stack.append(name)
        yield "/".join(stack)
        stack.pop()
    with for_range(n) as i:
        with scope("a") as name:
            st.global_.u32(x + len(name), i)


@right
def deferred(x: Ptr[u32], n: N) -> None:
    later = []
    with for_range(n) as i:
        later.append(lambda: st.global_.u32(x, i))
        while later:
            later.pop()()


@right
def deferred_before(x: Ptr[u32], n: N) -> None:
    a = mov.u32(3)
    later = [lambda: st.global_.u32(x, a), lambda: st.global_.u32(x + 1, a)]
    with for_range(n) as i:
        while later:
            later.pop()()


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
def itergen(x: Ptr[u32], n: N) -> None:

    class Tiles2:

        def __iter__(self):
            for k in range(2):
                yield k
    t = Tiles2()
    with for_range(n) as i:
        for k in t:
            st.global_.u32(x + k, i)


@right
def gen_cm(x: Ptr[u32], n: N) -> None:

    @contextlib.contextmanager
    def tiles():
        q = [1, 2]
        k = q.pop()
        with for_range(n) as i:
            yield (i, k)
        q.append(k)
    with tiles() as (i, k):
        st.global_.u32(x.at(i), k)


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
def kwargs(x: Ptr[u32], n: N) -> None:

    def put(i, **kw):
        k = kw.pop("k")
        st.global_.u32(x + k, i)
    opts = {"k": 1}
    with for_range(n) as i:
        put(i, **opts)


@right
def args_pop(x: Ptr[u32], n: N) -> None:

    def put(i, args):
        args = list(args)
        st.global_.u32(x + args.pop(), i)
    a = [1, 2]
    with for_range(n) as i:
        put(i, a)


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
def prologue(x: Ptr[u32], n: N) -> None:
    stages = iter(range(4))
    for _ in range(2):
        st.global_.u32(x + next(stages), n)
    with for_range(n) as i:
        st.global_.u32(x, i)
    for s in stages:
        st.global_.u32(x + s, n)


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
def inner_fresh_iter(x: Ptr[u32], n: N) -> None:
    rows = [1, 2, 3]
    with for_range(n) as i:
        it = iter(rows)
        first = next(it)
        for r in it:
            st.global_.u32(x + r + first, i)


@right
def mutable_default(x: Ptr[u32], n: N) -> None:

    def put(i, seen=set()):
        seen.add(1)
        st.global_.u32(x, i)
    with for_range(n) as i:
        put(i)


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
def random(x: Ptr[u32], n: N) -> None:
    import random
    rng = random.Random(0)
    with for_range(n) as i:
        st.global_.u32(x + rng.randrange(4), i)


@right
def exitstack(x: Ptr[u32], n: N) -> None:
    with contextlib.ExitStack() as stack:
        i = stack.enter_context(for_range(n))
        st.global_.u32(x, i)


@pytest.mark.parametrize("name", KERNELS.wrongs)
def test_a_wrong_kernel_is_an_error_at_its_line(name: str) -> None:
    KERNELS.is_refused(name)


@pytest.mark.parametrize("name", KERNELS.rights)
def test_a_right_kernel_that_looks_like_it_is_silent(name: str) -> None:
    KERNELS.is_silent(name)
