"""Python's own values that a body changes in objects, containers, closures, globals and defaults: it does so once, while tracing."""

# ruff: noqa: B006, F841, RUF059

from __future__ import annotations

import contextlib
import functools
import operator
from collections import Counter, deque
from dataclasses import dataclass, replace
from enum import Enum
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from ptxkit import Ptr, else_, for_range, if_, ring, smem
from ptxkit.ptx import add, mov, mul, st
from ptxkit.types import f32, u32
from tests.ptxkit.lost.kernels import Kernels, N, Tiles

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
KERNELS = Kernels()
wrong, right = KERNELS.wrong, KERNELS.right
GSTATE = 0
GK = 0


def gset():
    global GSTATE
    GSTATE = 0


def gput(x, i):
    global GSTATE
    st.global_.u32(x + GSTATE, i)
    GSTATE ^= 1


@wrong("in Python before this loop")
def star(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        k, *q = q  # wrong
        st.global_.u32(x.at(i), k)


@wrong("in Python before this loop")
def slice_(x: Ptr[u32], n: N) -> None:
    q = [1, 2, 3]
    with for_range(n) as i:
        st.global_.u32(x.at(i), q[0])
        q = q[1:]  # wrong


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
def cm_parity(x: Ptr[u32], n: N) -> None:
    parity = 0
    with Tiles(n) as i:
        st.global_.u32(x, parity)
        parity ^= 1  # wrong


@wrong("in Python before this loop")
def np_int(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    with for_range(n) as i:  # wrong
        st.global_.u32(x.at(i), int(a[0]))
        a[:] = a[::-1].copy()


@wrong("in Python before this loop")
def np_int2(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    with for_range(n) as i:
        st.global_.u32(x.at(i), int(a[0]))
        a = np.roll(a, 1)  # wrong


@wrong("in Python before this loop")
def np_scalar(x: Ptr[u32], n: N) -> None:
    k = np.int64(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), int(k))
        k = k + 1  # wrong


@wrong("in Python before this loop")
def attr_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0))
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.a.k)
        s.a.k ^= 1  # wrong


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
def nonlocal_(x: Ptr[u32], n: N) -> None:
    par = 0

    def step(i):
        nonlocal par
        st.global_.u32(x.at(i), par)
        par ^= 1  # wrong
    with for_range(n) as i:
        step(i)


@wrong("in Python before this loop")
def cell_here(x: Ptr[u32], n: N) -> None:
    par = 0

    def out(i):
        st.global_.u32(x.at(i), par)
    with for_range(n) as i:
        out(i)
        par ^= 1  # wrong


@wrong("in Python before this loop")
def list_rebound(x: Ptr[u32], n: N) -> None:
    par = [0, 1]
    with for_range(n) as i:
        a, b = par
        st.global_.u32(x.at(i), a)
        par = [b, a]  # wrong


@wrong("in Python before this loop")
def comp_cell(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n) as i:
        for v in [k + j for j in range(2)]:
            st.global_.u32(x + v, i)
        k += 2  # wrong


@wrong("in Python before this loop")
def global_(x: Ptr[u32], n: N) -> None:
    global GK
    GK = 0
    with for_range(n) as i:
        st.global_.u32(x.at(i), GK)
        GK += 1  # wrong


@wrong("in Python before this loop")
def method(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def out(self, i):
            st.global_.u32(x.at(i), self.k)
            self.k ^= 1
    t = T()
    with for_range(n) as i:
        t.out(i)  # wrong


@wrong("in Python before this loop")
def range_(x: Ptr[u32], n: N) -> None:
    r = range(4)
    with for_range(n) as i:
        for k in r:
            st.global_.u32(x + k, i)
        r = range(4, 8)  # wrong


@wrong("in Python before this loop")
def slice__again(x: Ptr[u32], n: N) -> None:
    s = slice(0, 2)
    v = [1, 2, 3, 4]
    with for_range(n) as i:
        for k in v[s]:
            st.global_.u32(x + k, i)
        s = slice(2, 4)  # wrong


@wrong("in Python before this loop")
def frozen(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class T:
        k: int
    s = T(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.k)  # wrong
        s = replace(s, k=s.k + 1)


@wrong("in Python before this loop")
def nt(x: Ptr[u32], n: N) -> None:

    class T(NamedTuple):
        k: int
    s = T(0)
    with for_range(n) as i:
        st.global_.u32(x.at(i), s.k)
        s = s._replace(k=1)  # wrong


@wrong("in Python before this loop")
def opswap(x: Ptr[u32], n: N) -> None:
    op, other = (add.u32, mul.lo.u32)
    with for_range(n) as i:
        st.global_.u32(x.at(i), op(i, 3))
        op, other = (other, op)  # wrong


@wrong("in Python before this loop")
def fnswap(x: Ptr[u32], n: N) -> None:
    f, g = (lambda v: v + 1, lambda v: v * 2)
    with for_range(n) as i:
        st.global_.u32(x.at(i), f(i))
        f, g = (g, f)  # wrong


@wrong("in Python before this loop")
def walrus(x: Ptr[u32], n: N) -> None:
    k = 0
    with for_range(n) as i:
        st.global_.u32(x + (k := (k + 1)), i)  # wrong


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
def str_(x: Ptr[u32], n: N) -> None:
    s = "ab"
    with for_range(n) as i:
        st.global_.u32(x + ord(s[0]), i)
        s = s[1:] + s[0]  # wrong


@wrong("in Python before this loop")
def state_helper(x: Ptr[u32], n: N) -> None:

    class State:

        def __init__(self):
            self.index = self.phase = 0

        def advance(self):
            self.index += 1
            if self.index == 2:
                self.index = 0
                self.phase ^= 1

    def wait(s):
        st.global_.u32(x + s.index, s.phase)
    s = State()
    with for_range(n) as i:
        wait(s)  # wrong
        s.advance()


@wrong("in Python before this loop")
def state_in_self(x: Ptr[u32], n: N) -> None:

    class Pipe:

        def __init__(self):
            self.state = SimpleNamespace(index=0)

        def wait(self):
            st.global_.u32(x + self.state.index, 1)

        def advance(self):
            self.state.index = (self.state.index + 1) % 4

        def run(self):
            with for_range(n) as i:
                self.wait()  # wrong
                self.advance()
    Pipe().run()


@wrong("in Python before this loop")
def tuple_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(order=(0, 1))

    def out():
        st.global_.u32(x + s.order[0], 1)
    with for_range(n) as i:
        out()
        s.order = s.order[::-1]  # wrong


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
def default_state(x: Ptr[u32], n: N) -> None:

    def out(i, s=[0]):
        st.global_.u32(x + s[0], i)
        s[0] += 1
    with for_range(n) as i:
        out(i)  # wrong


@wrong("in Python before this loop")
def func_attr(x: Ptr[u32], n: N) -> None:

    def out(i):
        st.global_.u32(x + out.k, i)
        out.k ^= 1
    out.k = 0
    with for_range(n) as i:
        out(i)  # wrong


@wrong("in Python before this loop")
def class_attr(x: Ptr[u32], n: N) -> None:

    class C:
        k = 0
    with for_range(n) as i:
        st.global_.u32(x + C.k, i)
        C.k = 1 - C.k  # wrong


@wrong("in Python before this loop")
def vars_(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    with for_range(n) as i:
        st.global_.u32(x + s.k, i)  # wrong
        vars(s)["k"] = 1


@wrong("in Python before this loop")
def call(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def __call__(self, i):
            st.global_.u32(x + self.k, i)
            self.k ^= 1
    t = T()
    with for_range(n) as i:
        t(i)  # wrong


@wrong("in Python before this loop")
def getitem(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def __getitem__(self, i):
            self.k ^= 1
            return self.k
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t[0], i)  # wrong


@wrong("in Python before this loop")
def nested_loops(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=0))
    with for_range(n) as i:
        with for_range(n) as j:
            st.global_.u32(x + s.k.v, j)
        s.k.v += 1  # wrong


@wrong("in Python before this loop")
def ring_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=False))
    with ring(2, n) as (k, stage, p):
        if s.k.v:
            st.global_.u32(x, k)
        s.k.v = True  # wrong


@wrong("in Python before this loop")
def property_state(x: Ptr[u32], n: N) -> None:

    class T:
        _k = 0

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, v):
            self._k = v
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t.k, i)  # wrong
        t.k = 1 - t.k


@wrong("in Python before this loop")
def slots(x: Ptr[u32], n: N) -> None:

    class T:
        __slots__ = ("k",)
    t = T()
    t.k = 0
    with for_range(n) as i:
        st.global_.u32(x + t.k, i)
        t.k ^= 1  # wrong


@wrong("in Python before this loop")
def enum_state(x: Ptr[u32], n: N) -> None:

    class E(Enum):
        A = 0
        B = 1
    s = SimpleNamespace(e=E.A)
    with for_range(n) as i:
        st.global_.u32(x + s.e.value, i)
        s.e = E.B  # wrong


@wrong("in Python before this loop")
def str_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(mode="first")
    with for_range(n) as i:
        if s.mode != "first":
            st.global_.u32(x, i)
        s.mode = "rest"  # wrong


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


@wrong("in Python before this loop")
def global_state(x: Ptr[u32], n: N) -> None:
    gset()
    with for_range(n) as i:  # wrong
        gput(x, i)


@wrong("only binds the name `")
def cell(x: Ptr[u32], n: N) -> None:
    best = 0

    def out():
        st.global_.u32(x, best)
    with if_(n > 3):
        best = 1  # wrong
    out()


@wrong("only binds the name `")
def attr2(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0))
    with if_(n > 3):
        s.a.k = 1  # wrong
    st.global_.u32(x, s.a.k)


@wrong("only binds the name `")
def list_rebound_again(x: Ptr[u32], n: N) -> None:
    s = [0, 1]
    with if_(n > 3):  # wrong
        s = [2, 3]
    for k in s:
        st.global_.u32(x + k, n)


@wrong("only binds the name `")
def nparr(x: Ptr[u32], n: N) -> None:
    a = np.zeros(2, int)
    with if_(n > 3):  # wrong
        a[0] = 1
    st.global_.u32(x, int(a[0]))


@wrong("only binds the name `")
def type_(x: Ptr[u32], n: N) -> None:
    t = u32
    with if_(n > 3):
        t = f32  # wrong
    st.global_.u32(x, t.bits + (1 if t is f32 else 0))


@wrong("only binds the name `")
def walrus_again(x: Ptr[u32], n: N) -> None:
    k = 0
    with if_(n > 3):
        st.global_.u32(x + (k := 5), n)  # wrong
    st.global_.u32(x + k, n)


@wrong("only binds the name `")
def frozen_again(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class T:
        k: int
    s = T(0)
    with if_(n > 3):
        s = replace(s, k=1)  # wrong
    st.global_.u32(x, s.k)


@wrong("only binds the name `")
def method_again(x: Ptr[u32], n: N) -> None:

    class T:
        k = 0

        def set(self):
            self.k = 1
    t = T()
    with if_(n > 3):
        t.set()  # wrong
    st.global_.u32(x, t.k)


@wrong("only binds the name `")
def other_half(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=SimpleNamespace(v=0))
    with if_(n > 3):
        pass
    with else_():
        s.k.v = 1  # wrong
    st.global_.u32(x + s.k.v, n)


@right
def attr_set_first(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(slot=0)

    def use(i):
        st.global_.u32(x + ctx.slot, i)
    with for_range(n) as i:
        for s in range(3):
            ctx.slot = s
            use(i)


@right
def attr_set_first2(x: Ptr[u32], n: N) -> None:

    class Ctx:
        slot = 0

        def at(self, s):
            self.slot = s
            return self

        def put(self, i):
            st.global_.u32(x + self.slot, i)
    c = Ctx()
    with for_range(n) as i:
        c.at(1).put(i)
        c.at(2).put(i)


@right
def lazy_attr(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(scale=None)
    with for_range(n) as i:
        if s.scale is None:
            s.scale = i * 2
        st.global_.u32(x, s.scale)


@right
def cached_prop(x: Ptr[u32], n: N) -> None:

    class T:

        @functools.cached_property
        def off(self):
            return 4
    t = T()
    with for_range(n) as i:
        st.global_.u32(x + t.off, i)


@right
def unique(x: Ptr[u32], n: N) -> None:
    k = 0

    def fresh():
        nonlocal k
        k += 1
        return k
    with for_range(n) as i:
        st.global_.u32(x + fresh(), i)
        st.global_.u32(x + fresh(), i)


@right
def unique2(x: Ptr[u32], n: N) -> None:

    class Names:
        used = 0

        def new(self):
            k = self.used
            self.used += 1
            return f't{k}'
    names = Names()
    with for_range(n) as i:
        smem.array(u32, 4, name=names.new())
        st.global_.u32(x, i)


@right
def counts_stats(x: Ptr[u32], n: N) -> None:

    class Stats:
        loads = 0
        stores = 0

        def load(self):
            self.loads += 1

        def report(self):
            return f'{self.loads} {self.stores}'
    s = Stats()
    with for_range(n) as i:
        st.global_.u32(x, i)
        s.stores += 1
        s.load()
    assert s.report()


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
def same_op(x: Ptr[u32], n: N) -> None:
    op = add.u32
    with for_range(n) as i:
        st.global_.u32(x, op(i, 1))
        op = add.u32


@right
def redef(x: Ptr[u32], n: N) -> None:

    def step(i):
        st.global_.u32(x, i)
    step(n)
    with for_range(n) as i:

        def step(i):
            st.global_.u32(x + 1, i)
        step(i)


@right
def rounds_phases(x: Ptr[u32], n: N) -> None:

    class State:

        def __init__(self):
            self.index = self.phase = 0

        def advance(self):
            self.index += 1
            if self.index == 2:
                self.index = 0
                self.phase ^= 1
    s = State()
    with for_range(n) as i:
        for _ in range(4):
            st.global_.u32(x + s.index, s.phase)
            s.advance()


@right
def log_rebound(x: Ptr[u32], n: N) -> None:
    log = []
    with for_range(n) as i:
        st.global_.u32(x, i)
        log = [*log, "store"]


@right
def listplus(x: Ptr[u32], n: N) -> None:
    log = ["a"]
    with for_range(n) as i:
        st.global_.u32(x, i)
        log += ["store"]


@right
def filter_(x: Ptr[u32], n: N) -> None:
    live = [1, 2, 3, 4]
    with for_range(n) as i:
        live = [k for k in live if k % 2 == 0]
        for k in live:
            st.global_.u32(x + k, i)


@right
def min_(x: Ptr[u32], n: N) -> None:
    rows = 64
    with for_range(n) as i:
        rows = min(rows, 64)
        st.global_.u32(x + rows, i)


@right
def ifcell_before(x: Ptr[u32], n: N) -> None:
    k = 0

    def out():
        st.global_.u32(x + k, n)
    with if_(n > 3):
        k = 1
        out()
    k = 2
    out()


@right
def if_stats(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(c=SimpleNamespace(k=0))
    with if_(n > 3):
        st.global_.u32(x, n)
        s.c.k += 1
    with else_():
        st.global_.u32(x, n)
        s.c.k += 1


@right
def if_unique(x: Ptr[u32], n: N) -> None:
    k = 0

    def fresh():
        nonlocal k
        k += 1
        return k
    with if_(n > 3):
        st.global_.u32(x + fresh(), n)
    with else_():
        st.global_.u32(x + fresh(), n)


@right
def if_slot(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(a=SimpleNamespace(slot=0))

    def use():
        st.global_.u32(x + ctx.a.slot, n)
    with if_(n > 3):
        ctx.a.slot = 1
        use()
    ctx.a.slot = 2
    use()


@right
def if_restore(x: Ptr[u32], n: N) -> None:
    ctx = SimpleNamespace(a=SimpleNamespace(slot=0))

    @contextlib.contextmanager
    def slot(k):
        old, ctx.a.slot = (ctx.a.slot, k)
        yield
        ctx.a.slot = old

    def use():
        st.global_.u32(x + ctx.a.slot, n)
    with if_(n > 3):
        with slot(1):
            use()
    use()


@right
def two_cm(x: Ptr[u32], n: N) -> None:

    class Both:

        def __enter__(self):
            self.s = contextlib.ExitStack()
            a = self.s.enter_context(for_range(n))
            b = self.s.enter_context(for_range(n))
            return (a, b)

        def __exit__(self, *e):
            return self.s.__exit__(*e)
    with Both() as (a, b):
        st.global_.u32(x.at(a), b)


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
def attr_toggle_written(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(side=0)
    with for_range(n) as i:
        s.side = 0
        st.global_.u32(x + s.side, i)
        s.side ^= 1
        st.global_.u32(x + s.side, i)


@right
def dataclass_replace_outside(x: Ptr[u32], n: N) -> None:

    @dataclass(frozen=True)
    class C:
        k: int
    c = C(1)
    for _ in range(2):
        c = replace(c, k=c.k + 1)
        with for_range(n) as i:
            st.global_.u32(x + c.k, i)


@right
def indexing_state(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(a=SimpleNamespace(k=0), stats={"n": 0})
    with for_range(n) as i:
        st.global_.u32(x.at(i), 1)
        s.a.k += 1
        s.stats["n"] += 1


@right
def indent(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(depth=SimpleNamespace(k=0))
    with for_range(n) as i:
        s.depth.k += 1
        st.global_.u32(x + s.depth.k, i)
        s.depth.k -= 1


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
def match(x: Ptr[u32], n: N) -> None:
    mode = ("a", 1)
    with for_range(n) as i:
        match mode:
            case ["a", k]:
                st.global_.u32(x + k, i)
            case _:
                pass


@right
def setprop(x: Ptr[u32], n: N) -> None:

    class T:

        def __init__(self):
            self._v = mov.u32(0)

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, new):
            mov.u32(self._v, new)
    t = T()
    with for_range(n) as i:
        t.v = t.v + i
    st.global_.u32(x, t.v)


@right
def np_(x: Ptr[u32], n: N) -> None:
    a = np.array([0, 1])
    order = a[::-1]
    with for_range(n) as i:
        for k in order:
            st.global_.u32(x + int(k), i)


@right
def sorted_(x: Ptr[u32], n: N) -> None:
    offsets = [3, 1, 2]
    with for_range(n) as i:
        offsets = sorted(offsets)
        for k in offsets:
            st.global_.u32(x + k, i)


@right
def listfresh(x: Ptr[u32], n: N) -> None:
    v = [1, 2]
    for k in v:
        st.global_.u32(x + k, 1)
    with for_range(n) as i:
        v = [3]
        for k in v:
            st.global_.u32(x + k, i)


@right
def if_list(x: Ptr[u32], n: N) -> None:
    todo = []
    with if_(n > 3):
        todo.append(1)
        for k in todo:
            st.global_.u32(x, k)


@right
def two_with(x: Ptr[u32], n: N) -> None:
    with for_range(n) as i, for_range(n, t=mov.u32(0)) as j:
        j.t = j.t + i
        st.global_.u32(x, j.t)


class Told:

    def __init__(self, state):
        self.state = state

    def begin(self, x):
        st.global_.u32(x + self.state.k, 1)


class Tells(Told):

    def begin(self, x):
        self.state.k = 3


OTHERS = [type(f"Told{i}", (Told,), {"begin": lambda self, x: st.global_.u32(x + self.state.k, 1)}) for i in range(12)]


@right
def methods_of_one_name(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    first, others = Tells(s), [each(s) for each in OTHERS]
    with for_range(n) as i:
        first.begin(x)
        for each in others:
            each.begin(x)


@right
def methods_of_items_of_one_name(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    parts = [Tells(s), *(each(s) for each in OTHERS)]
    with for_range(n) as i:
        parts[0].begin(x)
        parts[1].begin(x)


@wrong("in Python before this loop")
def methods_of_one_name_in_the_wrong_order(x: Ptr[u32], n: N) -> None:
    s = SimpleNamespace(k=0)
    first, other = Tells(s), Told(s)
    with for_range(n) as i:  # wrong
        other.begin(x)
        first.begin(x)


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


@pytest.mark.parametrize("name", KERNELS.wrongs)
def test_a_wrong_kernel_is_an_error_at_its_line(name: str) -> None:
    KERNELS.is_refused(name)


@pytest.mark.parametrize("name", KERNELS.rights)
def test_a_right_kernel_that_looks_like_it_is_silent(name: str) -> None:
    KERNELS.is_silent(name)
