"""What functions, methods and lambdas that a loop's body calls take from iterators and containers of before the loop."""

# ruff: noqa: B006, E731, F841, RUF059

from __future__ import annotations

import functools
import itertools
import operator
from types import SimpleNamespace

import pytest

from ptxkit import Ptr, for_range
from ptxkit.ptx import mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
GQ = [1, 2, 3, 4]


def gtake2():
    return GQ.pop()


def greset():
    GQ[:] = [1, 2, 3]


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
def enumerate_(x: Ptr[u32], n: N) -> None:
    e = enumerate([5, 6])

    def step(i):
        k, v = next(e)
        st.global_.u32(x.at(i), v)
    with for_range(n) as i:
        step(i)  # wrong


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
def mutable_default(x: Ptr[u32], n: N) -> None:

    def put(i, seen=set()):
        seen.add(1)
        st.global_.u32(x, i)
    with for_range(n) as i:
        put(i)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
