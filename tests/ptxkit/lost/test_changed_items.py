"""Items of lists, dictionaries, deques and arrays that a body changes in place: it does so once, while tracing."""

# ruff: noqa: F841

from __future__ import annotations

import operator
from collections import Counter, deque
from types import SimpleNamespace

import numpy as np
import pytest

from ptxkit import Ptr, for_range, if_
from ptxkit.ptx import add, mov, mul, st
from ptxkit.types import u32
from tests.ptxkit.lost.kernels import Kernels, N

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right


@wrong("in Python before this loop")
def rotate(x: Ptr[u32], n: N) -> None:
    q = deque([0, 1])
    with for_range(n) as i:
        k = q.popleft()  # wrong
        q.append(k)
        st.global_.u32(x.at(i), k)


@wrong("in Python before this loop")
def rotate_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(q=deque([0, 1]))
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.q[0])  # wrong
        s.q.rotate(-1)


@wrong("in Python before this loop")
def np_int(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    with for_range(n) as i:  # wrong
        st.global_.u32(x.at(i), int(a[0]))
        a[:] = a[::-1].copy()


@wrong("in Python before this loop")
def list_list(x: Ptr[u32], n: N) -> None:
    s = [[0, 1]]
    with for_range(n) as i:
        st.global_.u32(x.at(i), s[0][0])
        s[0][0] ^= 1  # wrong


@wrong("in Python before this loop")
def attr_list(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(par=[0, 0])
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.par[0])
        s.par[0] ^= 1  # wrong


@wrong("in Python before this loop")
def counter(x: Ptr[u32], n: N) -> None:
    c = Counter(a=0)
    with for_range(n) as i:
        st.global_.u32(x + c["a"], i)
        c["a"] += 1  # wrong


@wrong("in Python before this loop")
def bytes_(x: Ptr[u32], n: N) -> None:
    b = bytearray([0, 1])
    with for_range(n) as i:
        st.global_.u32(x + b[0], i)
        b[0] ^= 1  # wrong


@wrong("in Python before this loop")
def dict_state(x: Ptr[u32], n: N) -> None:
    d = {"first": True}

    def out(i):
        if not d["first"]:
            st.global_.u32(x, i)
        d["first"] = False
    with for_range(n) as i:
        out(i)  # wrong


@wrong("in Python before this loop")
def itemgetter(x: Ptr[u32], n: N) -> None:
    first = operator.itemgetter(0)
    q = [0, 1]
    with for_range(n) as i:
        st.global_.u32(x + first(q), i)
        q[0], q[1] = (q[1], q[0])  # wrong


@wrong("in Python before this loop")
def memo_value(x: Ptr[u32], n: N) -> None:
    m = {"k": 0}

    def step(i):
        st.global_.u32(x + m.get("k"), i)
        m.update(k=m["k"] + 1)
    with for_range(n) as i:
        step(i)  # wrong


@wrong("only binds the name `")
def nparr(x: Ptr[u32], n: N) -> None:
    a = np.zeros(2, int)
    with if_(n > 3):  # wrong
        a[0] = 1
    st.global_.u32(x, int(a[0]))


@right
def dict_cache_of_regs(x: Ptr[u32], n: N) -> None:
    cache = {}

    def const(v):
        if v not in cache:
            cache[v] = mov.u32(v)
        return cache[v]
    const(3)
    with for_range(n) as i:
        st.global_.u32(x.at(i), const(3))


@right
def callbacks(x: Ptr[u32], n: N) -> None:
    hooks = [lambda i: st.global_.u32(x, i)]
    with for_range(n) as i:
        for h in hooks:
            h(i)


@right
def np_table(x: Ptr[u32], n: N) -> None:
    t = np.arange(4)
    with for_range(n) as i:
        for a in t:
            st.global_.u32(x + int(a), i)
        t2 = t * 2
        st.global_.u32(x + int(t2[1]), i)


@right
def np_log(x: Ptr[u32], n: N) -> None:
    hits = np.zeros(4, int)
    with for_range(n) as i:
        hits[1] += 1
        st.global_.u32(x, i)
    assert hits.sum() == 1


@right
def listplus(x: Ptr[u32], n: N) -> None:
    log = ["a"]
    with for_range(n) as i:
        st.global_.u32(x, i)
        log += ["store"]


@right
def zip_of_regs(x: Ptr[u32], n: N) -> None:
    regs = [mov.u32(0), mov.u32(1)]
    with for_range(n) as i:
        for k, r in enumerate(regs):
            add.u32(r, r, k)
    for r in regs:
        st.global_.u32(x, r)


@right
def deep_cfg(x: Ptr[u32], n: N) -> None:
    cfg = {"a": {"b": {"c": [1, 2, {"d": 3}]}}}
    with for_range(n) as i:
        st.global_.u32(x + cfg["a"]["b"]["c"][2]["d"], i)


@right
def stats_nested(x: Ptr[u32], n: N) -> None:
    stats = {"a": {"n": 0}}
    with for_range(n) as i:
        st.global_.u32(x, i)
        stats["a"]["n"] += 1


@right
def memo(x: Ptr[u32], n: N) -> None:
    memo = {}

    def offset(k):
        if k not in memo:
            memo[k] = 4 * k
        return memo[k]
    with for_range(n) as i:
        st.global_.u32(x + offset(1), i)
        st.global_.u32(x + offset(1), i)


@right
def list_names(x: Ptr[u32], n: N) -> None:
    names = []
    with for_range(n) as i:
        names.append(f't{len(names)}')
        st.global_.u32(x, i)


@right
def np_(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    order = a[::-1]
    with for_range(n) as i:
        for k in order:
            st.global_.u32(x + int(k), i)


@right
def if_list(x: Ptr[u32], n: N) -> None:
    todo = []
    with if_(n > 3):
        todo.append(1)
        for k in todo:
            st.global_.u32(x, k)


@right
def counted_by_name(x: Ptr[u32], n: N) -> None:
    counts = [0, 0]
    with for_range(n) as i:
        for s in range(2):
            st.global_.u32(x + s, i)
            counts[s] += 1


@wrong("in Python before this loop")
def toggled_by_name(x: Ptr[u32], n: N) -> None:
    parity = [0, 0]
    with for_range(n) as i:
        for s in range(2):
            st.global_.u32(x + parity[s], i)
            parity[s] ^= 1  # wrong


@wrong("`sizes` is {'w': 1} in Python before this loop")
def another_dictionary(x: Ptr[u32], n: N) -> None:
    sizes = {"w": 1}
    with for_range(n) as i:
        st.global_.u32(x.at(i), sizes["w"])
        sizes = {"w": sizes["w"] + 1}  # wrong


@wrong("in Python before this loop")
def another_dictionary_of_opcodes(x: Ptr[u32], n: N) -> None:
    op, v = {"f": add.u32}, mov.u32(1)
    with for_range(n) as i:
        op["f"](v, v, i)
        op = {"f": mul.lo.u32}  # wrong
    st.global_.u32(x, v)


@wrong("`with if_` only binds the name `sizes`")
def another_dictionary_in_a_branch(x: Ptr[u32], n: N) -> None:
    sizes = {"w": 1}
    with if_(n > 100):
        sizes = {**sizes, "w": 2}  # wrong
    st.global_.u32(x, sizes["w"])


@right
def a_dictionary_that_grows(x: Ptr[u32], n: N) -> None:
    sizes = {"w": 1}
    with for_range(n) as i:
        st.global_.u32(x.at(i), sizes["w"])
        sizes = {**sizes, "h": 2}


test_a_wrong_kernel_is_an_error_at_its_line, test_a_right_kernel_that_looks_like_it_is_silent = KERNELS.tests()
