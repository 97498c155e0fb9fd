"""Asynchronous copies: cp.async by threads, bulk copies and reductions, and tensor copies through a tensor map (TMA).

A bulk copy into shared memory completes on an mbarrier. A bulk copy out of it completes in the thread's bulk async-group.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ..schema import ANY, Access, Effects, Form, Operand, Per, Range, at, coordinates, form, imm, r

_SHARED = at("shared::cta")
_CLUSTER = at("shared::cluster")
_GLOBAL = at("global")
_RANK = {"1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5}

_OPERANDS: dict[str, Operand] = {
    "size": r("u32", imm=Range(0, multiple=16), tag="bytes"),
    "ctaMask": r("b16", imm=Range(0, 65535), tag="mask", when="multicast::cluster", float_ok=False),
    "cache_policy": r("b64", imm=ANY, tag="policy", when="L2::cache_hint", float_ok=False),
    "tensorMap": at(tag="tensormap"),
    "tensorCoords": coordinates(Per("dim", _RANK)),
    # Offsets of the filter in the spatial dimensions, which are all dimensions but channels and images.
    "im2colInfo": coordinates(Per("dim", {"3d": 1, "4d": 2, "5d": 3}), "b16", float_ok=False),
}


def _row(syntax: str, effects: Effects, *, since: str = "8.0", section: str = "", dst: Operand = _GLOBAL, src: Operand = _SHARED,
         **slots: str) -> Form:
    """A bulk row with the operands that its syntax names. The mbarrier is in the space of the destination."""
    bare = ".tensor." in syntax  # ptxas takes `array[3]` here
    operands = {**_OPERANDS, "dstMem": replace(dst, element=bare), "srcMem": replace(src, element=bare),
                "mbar": at(dst.space, tag="mbarrier", element=bare)}
    names: dict[str, Any] = {name: operands[name] for name in operands if name in syntax.partition(" ")[2]}
    return form(syntax, slots=slots, since=since, effects=effects, section=section, **names)


# ------------------------------------------------------------------------------------------- by threads, since sm_80


def _by_thread(cop: str, cp_size: Range) -> tuple[Form, ...]:
    """Bytes after the first `src_size` are written as zero. All are if `ignore_src` is true."""
    opcode = f"cp.async.{cop}.state.global{{.L2::cache_hint}}{{.prefetch_size}} [dst], [src], cp_size"
    how: dict[str, Any] = {
        "slots": {"state": "shared shared::cta", "prefetch_size": "L2::64B L2::128B L2::256B"}, "target": "sm_80", "section": "cp.async",
        "effects": Effects((Access("r", "src", "cp_size"), Access("w", "dst", "cp_size")), sync=("async.issue",), depends="never"),
        "dst": at("state"), "src": _GLOBAL, "cp_size": imm(cp_size), "cache_policy": _OPERANDS["cache_policy"]}
    return (form(f"{opcode}{{, src_size}}{{, cache_policy}}", src_size=r("u32", imm=Range(0, 16)), rules=("src_size <= cp_size",), **how),
            form(f"{opcode}, ignore_src{{, cache_policy}}", ignore_src=r("pred", negate=True), **how))


_THREADS = (
    *_by_thread("ca", Range(choices=(4, 8, 16))),
    *_by_thread("cg", Range(choices=(16,))),
    form("cp.async.commit_group", target="sm_80", section="cp.async.commit_group", effects=Effects(sync=("async.commit",))),
    form("cp.async.wait_group n", target="sm_80", section="cp.async.wait_group", effects=Effects(sync=("async.wait",)),
         n=imm(Range(0, wraps=True))),
    form("cp.async.wait_all", target="sm_80", section="cp.async.wait_group", effects=Effects(sync=("async.wait",))),
    form("cp.async.mbarrier.arrive{.noinc}{.state}.b64 [addr]", slots={"state": "shared shared::cta"}, target="sm_80",
         section="cp.async.mbarrier.arrive", addr=at("state", tag="mbarrier"),
         effects=Effects((Access("rw", "addr", 8),), sync=("mbarrier.arrive_async",), depends="never")),
)

# ------------------------------------------------------------------------------------------- bulk copies

_TO_BARRIER = ".mbarrier::complete_tx::bytes"
_HINT = "{.L2::cache_hint}"
_INTEGER_TO_CLUSTER = (("and or xor", "b32"), ("add", "u32 s32 u64"), ("inc dec", "u32"), ("min max", "u32 s32"))
_TO_GLOBAL = (("and or xor", "", "b32 b64"), ("add", "", "u32 s32 u64 f32 f64"), ("add", ".noftz", "f16 bf16"),
              ("inc dec", "", "u32"), ("min max", "", "u32 s32 u64 s64 f16 bf16"))


def _copies(mode: Literal["w", "rw"], *completion: str) -> Effects:
    """A bulk copy ("w") or reduction ("rw") that completes on an mbarrier or in the bulk async-group."""
    barrier = (Access("rw", "mbar", 8, "async"),) if completion[0].startswith("mbarrier") else ()
    return Effects((Access("r", "srcMem", "size", "async"), Access(mode, "dstMem", "size", "async"), *barrier), sync=completion,
                   depends="order" if mode == "rw" else "never")


_BULK = (
    _row(f"cp.async.bulk.shared::cta.global{_TO_BARRIER}{_HINT} [dstMem], [srcMem], size, [mbar]{{, cache_policy}}",
         _copies("w", "mbarrier.complete_tx"), section="cp.async.bulk", since="8.6", dst=_SHARED, src=_GLOBAL),
    _row(f"cp.async.bulk.shared::cluster.global{_TO_BARRIER}{{.multicast::cluster}}{_HINT} "
         "[dstMem], [srcMem], size, [mbar]{, ctaMask}{, cache_policy}",
         _copies("w", "mbarrier.complete_tx"), section="cp.async.bulk", dst=_CLUSTER, src=_GLOBAL),
    _row(f"cp.async.bulk.shared::cluster.shared::cta{_TO_BARRIER} [dstMem], [srcMem], size, [mbar]",
         _copies("w", "mbarrier.complete_tx"), section="cp.async.bulk", dst=_CLUSTER),
    _row(f"cp.async.bulk.global.shared::cta.bulk_group{_HINT} [dstMem], [srcMem], size{{, cache_policy}}",
         _copies("w", "bulk.issue"), section="cp.async.bulk"),
    _row(f"cp.async.bulk.prefetch.L2.global{_HINT} [srcMem], size{{, cache_policy}}",
         Effects(sync=("prefetch",)), section="cp.async.bulk.prefetch", src=_GLOBAL),
    *(_row(f"cp.reduce.async.bulk.shared::cluster.shared::cta{_TO_BARRIER}.redOp.type [dstMem], [srcMem], size, [mbar]",
           _copies("rw", "mbarrier.complete_tx"), section="cp.reduce.async.bulk", dst=_CLUSTER, redOp=operations, type=types)
      for operations, types in _INTEGER_TO_CLUSTER),
    *(_row(f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.redOp{noftz}.type [dstMem], [srcMem], size{{, cache_policy}}",
           _copies("rw", "bulk.issue"), section="cp.reduce.async.bulk", redOp=operations, type=types)
      for operations, noftz, types in _TO_GLOBAL),
    form("cp.async.bulk.commit_group", section="cp.async.bulk.commit_group", effects=Effects(sync=("bulk.commit",))),
    form("cp.async.bulk.wait_group{.read} n", section="cp.async.bulk.wait_group", effects=Effects(sync=("bulk.wait",)),
         n=imm(Range(0, wraps=True))),
)

# ------------------------------------------------------------------------------------------- tensor copies

_MAP = Access("r", "tensorMap", 128, "tensormap")
_LOADS = Effects((_MAP, Access("r", "tensorMap", "box", "async"), Access("w", "dstMem", "box", "async"),
                  Access("rw", "mbar", 8, "async")), sync=("mbarrier.complete_tx",), depends="never")
_STORES = Effects((_MAP, Access("r", "srcMem", "box", "async"), Access("w", "tensorMap", "box", "async")), sync=("bulk.issue",),
                  depends="never")
_REDUCES = Effects((_MAP, Access("r", "srcMem", "box", "async"), Access("rw", "tensorMap", "box", "async")), sync=("bulk.issue",),
                   depends="order")
_PREFETCHES = Effects((_MAP,), sync=("prefetch",), depends="never")
_TILE_DIM = "1d 2d 3d 4d 5d"
_IM2COL_DIM = "3d 4d 5d"
_OPS = "add min max inc dec and or xor"

_TENSOR = tuple(row for mode, dim, offsets in (("{.tile}", _TILE_DIM, ""), (".im2col", _IM2COL_DIM, ", im2colInfo")) for row in (
    _row(f"cp.async.bulk.tensor.dim.shared::cta.global{mode}{_TO_BARRIER}{_HINT} "
         f"[dstMem], [tensorMap, tensorCoords], [mbar]{offsets}{{, cache_policy}}",
         _LOADS, section="cp.async.bulk.tensor", since="8.6", dst=_SHARED, dim=dim),
    _row(f"cp.async.bulk.tensor.dim.shared::cluster.global{mode}{_TO_BARRIER}{{.multicast::cluster}}{_HINT} "
         f"[dstMem], [tensorMap, tensorCoords], [mbar]{offsets}{{, ctaMask}}{{, cache_policy}}",
         _LOADS, section="cp.async.bulk.tensor", dst=_CLUSTER, dim=dim),
    _row(f"cp.async.bulk.prefetch.tensor.dim.L2.global{mode}{_HINT} [tensorMap, tensorCoords]{offsets}{{, cache_policy}}",
         _PREFETCHES, section="cp.async.bulk.prefetch.tensor", dim=dim),
)) + tuple(row for mode, dim in (("{.tile}", _TILE_DIM), (".im2col_no_offs", _IM2COL_DIM)) for row in (
    _row(f"cp.async.bulk.tensor.dim.global.shared::cta{mode}.bulk_group{_HINT} [tensorMap, tensorCoords], [srcMem]{{, cache_policy}}",
         _STORES, section="cp.async.bulk.tensor", dim=dim),
    _row(f"cp.reduce.async.bulk.tensor.dim.global.shared::cta.redOp{mode}.bulk_group{_HINT} "
         "[tensorMap, tensorCoords], [srcMem]{, cache_policy}",
         _REDUCES, section="cp.reduce.async.bulk.tensor", dim=dim, redOp=_OPS),
))

FORMS: tuple[Form, ...] = (
    *_THREADS,
    *_BULK,
    *_TENSOR,
)
