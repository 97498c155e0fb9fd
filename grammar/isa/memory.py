"""Loads, stores, prefetches and cache control. Atomics are in `atomic`, bulk and asynchronous copies in `bulk`."""

from __future__ import annotations

import re
from typing import Any, Literal

from ..schema import ANY, Access, Effects, Form, Range, at, form, imm, r, w

_NARROW = "b8 b16 b32 u8 u16 u32 s8 s16 s32 f32"
_SCALAR = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_SCOPE = "cta cluster gpu sys"
_LEVEL1 = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
_PREFETCH = "L2::64B L2::128B L2::256B"
_SHARED = "shared shared::cta shared::cluster"

_POLICY = r("b64", imm=ANY, tag="policy", when="L2::cache_hint", float_ok=False)
_STRONG = re.compile(r"\.(volatile|mmio|sem)\b")
_GATES = {"param::entry": "8.3", "param::func": "8.3"}

# A vector holds at most 128 bits. v8, and v4 of 64-bit types, need a later target.
_SHAPES: tuple[Any, ...] = (
    (".type", "8.0", {"type": _SCALAR}, {}),
    (".vec.type", "8.0", {"vec": "v2", "type": _SCALAR}, {"n": 2}),
    (".vec.type", "8.0", {"vec": "v4", "type": _NARROW}, {"n": 4}),
    (".type", "8.3", {"type": "b128"}, {}),
)
_NO_VECTORS: tuple[Any, ...] = (_SHAPES[0], _SHAPES[3])


def _row(line: str, mode: Literal["r", "w"], section: str, since: str, slots: dict[str, str], **data: Any) -> Form:
    """One load or store. The cache policy is the last operand if the opcode has `L2::cache_hint`."""
    if "L2::cache_hint" in line:
        line, data = f"{line}, cache_policy", {**data, "cache_policy": _POLICY}
    gates = {**_GATES, "sys": "8.4"} if slots["type"] == "b128" else _GATES
    tokens = " ".join(slots.values()).split()
    return form(line, slots=slots, since=since, needs={token: gate for token, gate in gates.items() if token in tokens},
                effects=Effects((Access(mode, "a"),), depends="order" if _STRONG.search(line) else "never"), section=section,
                a=at("space", element=True), **data)


def _load(opcode: str, section: str = "ld", *, since: str = "8.0", shapes: Any = _SHAPES, **slots: str) -> tuple[Form, ...]:
    """The rows of one load, one per shape. `_` may stand for a lane of a vector, but not for a scalar."""
    return tuple(_row(f"{opcode}{shape} d, [a]", "r", section, max(since, gate), slots | types,
                      d=w("type", wide=True, sink="n" in lanes, open=True, **lanes))
                 for shape, gate, types, lanes in shapes)


def _store(opcode: str, *, since: str = "8.0", shapes: Any = _SHAPES, **slots: str) -> tuple[Form, ...]:
    """The rows of one store, one per shape."""
    return tuple(_row(f"{opcode}{shape} [a], b", "w", "st", max(since, gate), slots | types,
                      b=r("type", wide=True, imm=ANY, float_immediate=True, **lanes))
                 for shape, gate, types, lanes in shapes)


# Eviction priorities, prefetch sizes and cache policies are for the global space and for generic addresses of it.
_LD = (
    *_load("ld{.weak}{.space}{.cop|.level1}{.L2::cache_hint}{.prefetch_size}",
           space="global", cop="ca cg cs lu cv", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ld{.weak}.space{.cop}",
           space=f"const local param param::entry param::func {_SHARED}", cop="ca cg cs lu cv"),
    *_load("ld.volatile{.space}{.prefetch_size}", space="global", prefetch_size=_PREFETCH),
    *_load("ld.volatile.space", space=_SHARED),
    *_load("ld.sem.scope{.space}{.level1}{.L2::cache_hint}{.prefetch_size}",
           sem="relaxed acquire", scope=_SCOPE, space="global", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ld.sem.scope.space", sem="relaxed acquire", scope=_SCOPE, space=_SHARED),
    *_load("ld.mmio.sem.scope{.space}", sem="relaxed", scope="sys", space="global", since="8.2", shapes=_NO_VECTORS),
    *_load("ld.space{.cop}.nc{.L2::cache_hint}{.prefetch_size}", "ld.global.nc",
           space="global", cop="ca cg cs", prefetch_size=_PREFETCH),
    *_load("ld.space.nc.level1{.L2::cache_hint}{.prefetch_size}", "ld.global.nc",
           space="global", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ldu{.space}", "ldu", space="global"),
)

_ST = (
    *_store("st{.weak}{.space}{.cop|.level1}{.L2::cache_hint}", space="global", cop="wb cg cs wt", level1=_LEVEL1),
    *_store("st{.weak}.space{.cop}", space=f"local param param::func {_SHARED}", cop="wb cg cs wt"),
    *_store("st.volatile{.space}", space=f"global {_SHARED}"),
    *_store("st.sem.scope{.space}{.level1}{.L2::cache_hint}",
            sem="relaxed release", scope=_SCOPE, space="global", level1=_LEVEL1),
    *_store("st.sem.scope.space", sem="relaxed release", scope=_SCOPE, space=_SHARED),
    *_store("st.mmio.sem.scope{.space}", sem="relaxed", scope="sys", space="global", since="8.2", shapes=_NO_VECTORS),
)

# These change no value in memory.
_PREFETCHES = Effects(sync=("prefetch",))
_CACHED = Effects(sync=("cache.priority",))
_128_BYTES = imm(Range(choices=(128,)), default=128)

_CACHE = (
    form("prefetch{.space}.level [a]", slots={"space": "global local", "level": "L1 L2"},
         section="prefetch, prefetchu", effects=_PREFETCHES, a=at("space")),
    form("prefetch.space.level [a]", slots={"space": "global", "level": "L2::evict_last L2::evict_normal"},
         section="prefetch, prefetchu", effects=_PREFETCHES, a=at("space")),
    form("prefetch{.space}.tensormap [a]", slots={"space": "const param"}, section="prefetch, prefetchu", effects=_PREFETCHES,
         a=at("space", tag="tensormap")),
    form("prefetchu.level [a]", slots={"level": "L1"}, section="prefetch, prefetchu", effects=_PREFETCHES, a=at("global")),
    form("applypriority{.space}.level [a], size", slots={"space": "global", "level": "L2::evict_normal"}, section="applypriority",
         effects=_CACHED, a=at("space"), size=_128_BYTES),
    form("discard{.space}.level [a], size", slots={"space": "global", "level": "L2"}, section="discard",
         effects=Effects((Access("w", "a", 128),), depends="never"), a=at("space"), size=_128_BYTES),
)

_PRIORITIES = {"primary_priority": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
               "secondary_priority": "L2::evict_first L2::evict_unchanged"}
_NEW_POLICY = w("b64", tag="policy", float_ok=False)

_POLICIES = (
    form("createpolicy.fractional.primary_priority{.secondary_priority}.b64 cache_policy{, fraction}", slots=_PRIORITIES,
         section="createpolicy", rules=("fraction in (0,1]",), cache_policy=_NEW_POLICY, fraction=r("f32", float_immediate=True)),
    form("createpolicy.range{.space}.primary_priority{.secondary_priority}.b64 cache_policy, [a], primary_size, total_size",
         slots={"space": "global", **_PRIORITIES}, section="createpolicy", effects=_CACHED, rules=("primary_size <= total_size",),
         cache_policy=_NEW_POLICY, a=at("space"), primary_size=r("u32", imm=ANY, tag="bytes"),
         total_size=r("u32", imm=ANY, tag="bytes")),
    form("createpolicy.cvt.L2.b64 cache_policy, access_property", section="createpolicy",
         cache_policy=_NEW_POLICY, access_property=r("b64", imm=ANY, float_ok=False)),
)

FORMS: tuple[Form, ...] = (*_LD, *_ST, *_CACHE, *_POLICIES)
