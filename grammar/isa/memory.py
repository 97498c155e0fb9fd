"""Loads, stores, prefetches and cache control. Atomics are in `atomic`, bulk and asynchronous copies in `bulk`."""

from __future__ import annotations

from typing import Any

from ..schema import ANY, Access, Effects, Form, Per, Range, at, form, imm, r, w

_NARROW = "b8 b16 b32 u8 u16 u32 s8 s16 s32 f32"
_SCALAR = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_SCOPE = "cta cluster gpu sys"
_LEVEL1 = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
_PREFETCH = "L2::64B L2::128B L2::256B"
_SHARED = "shared shared::cta shared::cluster"
_PARAM = {"param::entry": "8.3", "param::func": "8.3"}

_LANES = Per("vec", {"v2": 2, "v4": 4}, default=1)
_POLICY = r("b64", imm=ANY, tag="policy", when="L2::cache_hint", float_ok=False)


def _rows(opcode: str, line: str, section: str, since: str, vectors: bool, needs: dict[str, str], effects: Effects,
          operands: dict[str, Any], slots: dict[str, str]) -> tuple[Form, ...]:
    """A row per shape. A vector holds at most 128 bits: v4 of 64-bit types, and v8, need a later target."""
    if "L2::cache_hint" in opcode:
        line, operands = f"{line}, cache_policy", {**operands, "cache_policy": _POLICY}
    shapes = [(".type", since, {"type": _SCALAR}, needs)] if not vectors else [
        ("{.vec}.type", since, {"vec": "v2", "type": _SCALAR}, needs), (".vec.type", since, {"vec": "v4", "type": _NARROW}, needs)]
    shapes.append((".type", "8.3", {"type": "b128"}, needs | {"sys": "8.4"}))
    return tuple(form(f"{opcode}{shape} {line}", slots=slots | types, since=gate, needs=gates, effects=effects, section=section, **operands)
                 for shape, gate, types, gates in shapes)


def _load(opcode: str, section: str = "ld", *, since: str = "8.0", vectors: bool = True,
          needs: dict[str, str] | None = None, **slots: str) -> tuple[Form, ...]:
    """The rows of one load; the policy is the last operand where the opcode has `L2::cache_hint`."""
    return _rows(opcode, "d, [a]", section, since, vectors, needs or {}, Effects((Access("r", "a"),)),
                 {"d": w("type", n=_LANES, wide=True, scalar=True), "a": at("space")}, slots)


def _store(opcode: str, *, since: str = "8.0", vectors: bool = True,
           needs: dict[str, str] | None = None, **slots: str) -> tuple[Form, ...]:
    """The rows of one store, as for `_load`."""
    return _rows(opcode, "[a], b", "st", since, vectors, needs or {}, Effects((Access("w", "a"),)),
                 {"a": at("space"), "b": r("type", n=_LANES, wide=True, scalar=True, imm=ANY, float_immediate=True)}, slots)


# Priorities, prefetch sizes and policies belong to the global space, and to generic addresses of it.
_LD = (
    *_load("ld{.weak}{.space}{.cop|.level1}{.L2::cache_hint}{.prefetch_size}",
           space="global", cop="ca cg cs lu cv", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ld{.weak}.space{.cop}",
           space=f"const local param param::entry param::func {_SHARED}", cop="ca cg cs lu cv", needs=_PARAM),
    *_load("ld.volatile{.space}{.prefetch_size}", space="global", prefetch_size=_PREFETCH),
    *_load("ld.volatile.space", space=_SHARED),
    *_load("ld.sem.scope{.space}{.level1}{.L2::cache_hint}{.prefetch_size}",
           sem="relaxed acquire", scope=_SCOPE, space="global", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ld.sem.scope.space", sem="relaxed acquire", scope=_SCOPE, space=_SHARED),
    *_load("ld.mmio.sem.scope{.space}", sem="relaxed", scope="sys", space="global", since="8.2", vectors=False),
    *_load("ld.space{.cop}.nc{.L2::cache_hint}{.prefetch_size}", "ld.global.nc",
           space="global", cop="ca cg cs", prefetch_size=_PREFETCH),
    *_load("ld.space.nc.level1{.L2::cache_hint}{.prefetch_size}", "ld.global.nc",
           space="global", level1=_LEVEL1, prefetch_size=_PREFETCH),
    *_load("ldu{.space}", "ldu", space="global"),
)

_ST = (
    *_store("st{.weak}{.space}{.cop|.level1}{.L2::cache_hint}", space="global", cop="wb cg cs wt", level1=_LEVEL1),
    *_store("st{.weak}.space{.cop}", space=f"local param param::func {_SHARED}", cop="wb cg cs wt", needs=_PARAM),
    *_store("st.volatile{.space}", space=f"global {_SHARED}"),
    *_store("st.sem.scope{.space}{.level1}{.L2::cache_hint}",
            sem="relaxed release", scope=_SCOPE, space="global", level1=_LEVEL1),
    *_store("st.sem.scope.space", sem="relaxed release", scope=_SCOPE, space=_SHARED),
    *_store("st.mmio.sem.scope{.space}", sem="relaxed", scope="sys", space="global", since="8.2", vectors=False),
)

_128_BYTES = imm(Range(choices=(128,)), default=128)

_CACHE = (
    form("prefetch{.space}.level [a]", slots={"space": "global local", "level": "L1 L2"}, section="prefetch, prefetchu", a=at("space")),
    form("prefetch.space.level [a]", slots={"space": "global", "level": "L2::evict_last L2::evict_normal"},
         section="prefetch, prefetchu", a=at("space")),
    form("prefetch{.space}.tensormap [a]", slots={"space": "const param"}, section="prefetch, prefetchu", a=at("space", tag="tensormap")),
    form("prefetchu.level [a]", slots={"level": "L1"}, section="prefetch, prefetchu", a=at()),
    form("applypriority{.space}.level [a], size", slots={"space": "global", "level": "L2::evict_normal"}, section="applypriority",
         a=at("space"), size=_128_BYTES),
    form("discard{.space}.level [a], size", slots={"space": "global", "level": "L2"}, section="discard",
         effects=Effects((Access("w", "a", 128),)), a=at("space"), size=_128_BYTES),
)

_PRIORITIES = {"primary_priority": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
               "secondary_priority": "L2::evict_first L2::evict_unchanged"}
_NEW_POLICY = w("b64", tag="policy", float_ok=False)

_POLICIES = (
    form("createpolicy.fractional.primary_priority{.secondary_priority}.b64 cache_policy{, fraction}", slots=_PRIORITIES,
         section="createpolicy", cache_policy=_NEW_POLICY, fraction=r("f32", float_immediate=True)),
    form("createpolicy.range{.space}.primary_priority{.secondary_priority}.b64 cache_policy, [a], primary_size, total_size",
         slots={"space": "global", **_PRIORITIES}, section="createpolicy",
         cache_policy=_NEW_POLICY, a=at("space"), primary_size=r("u32", imm=ANY, tag="bytes"), total_size=r("u32", imm=ANY, tag="bytes")),
    form("createpolicy.cvt.L2.b64 cache_policy, access_property", section="createpolicy",
         cache_policy=_NEW_POLICY, access_property=r("b64", float_ok=False)),
)

FORMS: tuple[Form, ...] = (*_LD, *_ST, *_CACHE, *_POLICIES)
