"""What a loop's body takes from iterators and generators of before the loop."""

# ruff: noqa: B905, F841, UP028

from __future__ import annotations

import itertools
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from ptxkit import Ptr, for_range, smem
from ptxkit.ptx import st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("was made before this loop")
def attr_next(x: Ptr[u32], n: N) -> None:
    state = SimpleNamespace(it=iter([1, 2, 3]))
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(state.it))  # wrong


@wrong("was made before this loop")
def sub_next(x: Ptr[u32], n: N) -> None:
    queues = {"a": iter([1, 2, 3])}
    with for_range(n) as i:
        st.global_.u32(x.at(i), next(queues["a"]))  # wrong


@wrong("was made before this loop")
def comp(x: Ptr[u32], n: N) -> None:
    it = iter([1, 2, 3, 4])
    with for_range(n) as i:
        a = [next(it) for _ in range(2)]  # wrong
        st.global_.u32(x.at(i), a[0])


@wrong("was made before this loop")
def dict_next_iter(x: Ptr[u32], n: N) -> None:
    q = {1: 2, 3: 4}
    with for_range(n) as i:
        k = next(iter(q))  # wrong
        st.global_.u32(x.at(i), q[k])
        del q[k]


@wrong("was made before this loop")
def zip_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=zip([1, 2], [3, 4]))
    with for_range(n) as i:
        a, b = next(s.q)  # wrong
        st.global_.u32(x.at(i), a + b)


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
def ordereddict(x: Ptr[u32], n: N) -> None:
    q = OrderedDict(a=0, b=1)
    with for_range(n) as i:
        k = next(iter(q))  # wrong
        st.global_.u32(x + q[k], i)
        q.move_to_end(k)


@wrong("was made before this loop", "every iteration has what was taken first")
def pyiterator(x: Ptr[u32], n: N) -> None:
    numbers = iter([1, 2])
    with for_range(2):
        st.global_.u32(x, next(numbers))  # wrong


@wrong("was made before this loop", "every iteration has what was taken first")
def pygenerator(x: Ptr[u32], n: N) -> None:
    numbers = (each * 2 for each in range(9))
    with for_range(n):
        st.global_.u32(x, next(numbers))  # wrong


@wrong("was made before this loop", "every iteration has what was taken first")
def pycycle(x: Ptr[u32], n: N) -> None:
    stages = itertools.cycle((0, 1))
    with for_range(n):
        st.global_.u32(x, next(stages))  # wrong


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
def prologue(x: Ptr[u32], n: N) -> None:
    stages = iter(range(4))
    for _ in range(2):
        st.global_.u32(x + next(stages), n)
    with for_range(n) as i:
        st.global_.u32(x, i)
    for s in stages:
        st.global_.u32(x + s, n)


@right
def inner_fresh_iter(x: Ptr[u32], n: N) -> None:
    rows = [1, 2, 3]
    with for_range(n) as i:
        it = iter(rows)
        first = next(it)
        for r in it:
            st.global_.u32(x + r + first, i)


@right
def random(x: Ptr[u32], n: N) -> None:
    import random
    rng = random.Random(0)
    with for_range(n) as i:
        st.global_.u32(x + rng.randrange(4), i)


@right
def pycounter(x: Ptr[u32], n: N) -> None:
    ids = itertools.count()
    with for_range(n) as i:
        st.global_.u32(x + next(ids), i)
        st.global_.u32(x + next(ids), i)


@right
def pyiterator_outside(x: Ptr[u32], n: N) -> None:
    numbers = iter([1, 2, 3])
    for number in numbers:
        with for_range(n):
            st.global_.u32(x, number)
    with for_range(n):
        if numbers is not None:
            st.global_.u32(x, 1)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
