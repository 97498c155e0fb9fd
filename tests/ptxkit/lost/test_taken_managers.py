"""What is taken from iterators and containers where context managers run a loop or do the taking."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from ptxkit import Ptr, for_range
from ptxkit.ptx import add, mov, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N, Tiles

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@contextlib.contextmanager
def taking(q):
    yield q.pop()


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
def threeloops(x: Ptr[u32], n: N) -> None:
    q = SimpleNamespace(a=iter([1, 2]))
    with contextlib.ExitStack() as s:
        i = s.enter_context(for_range(n))
        st.global_.u32(x + next(q.a), i)  # wrong


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
def exitstack(x: Ptr[u32], n: N) -> None:
    with contextlib.ExitStack() as stack:
        i = stack.enter_context(for_range(n))
        st.global_.u32(x, i)


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
