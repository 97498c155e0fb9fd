"""The order of modifiers that ptxas accepts: which must keep their place, which may stand anywhere, and which may be repeated.

An opcode begins with its base, a dotted prefix such as `mad.lo` or `cp.async.bulk.tensor`. After the base types keep their order among
each other. So do state spaces, matrix layouts, eviction priorities and bit operations. Every other modifier may stand anywhere. (Measured
with ptxas 13.0.)
"""

from __future__ import annotations

from collections.abc import Sequence

from .operands import width

REPEATABLE = frozenset(("sat", "NaN", "relu", "shiftamt", "cc", "approx", "satfinite", "sync", "uni"))
"""Modifiers that may be repeated."""

_UNREAD = {
    "testp": frozenset(("finite", "infinite", "normal", "notanumber", "number", "subnormal")),
    "tensormap.replace": frozenset(("box_dim", "element_stride", "elemtype", "fill_mode", "global_address", "global_dim", "global_stride",
                            "interleave_layout", "rank", "swizzle_mode")),
    "multimem.ld_reduce": frozenset(("acc::f16", "acc::f32")),
}

_BASES = frozenset((
    *(f"{name}.{half}" for name in ("mul", "mad", "mul24", "mad24", "madc", "dp2a") for half in ("hi", "lo")), "mul.wide", "mad.wide",
    "div.full", "shf.l", "shf.r", "cvt.pack", "cvta.to", "st.async", "red.async", "createpolicy.range", "createpolicy.fractional",
    "createpolicy.cvt", "multimem.red", "multimem.st", "multimem.ld_reduce",
    "cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all", "cp.async.mbarrier.arrive",
    "cp.async.bulk", "cp.async.bulk.tensor", "cp.async.bulk.prefetch", "cp.async.bulk.prefetch.tensor", "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group", "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor",
    "tensormap.replace", "tensormap.cp_fenceproxy", "bar.warp.sync", "barrier.cluster.arrive", "barrier.cluster.wait",
    *(f"{name}{cta}.{what}" for name in ("bar", "barrier") for cta in ("", ".cta") for what in ("sync", "arrive", "red", "aligned.sync")),
    "fence.proxy", "membar.proxy",
    *(f"mbarrier.{what}" for what in ("init", "inval", "expect_tx", "complete_tx", "arrive", "arrive.expect_tx", "arrive_drop",
                                      "arrive_drop.expect_tx", "test_wait", "test_wait.parity", "try_wait", "try_wait.parity",
                                      "pending_count")),
    "pmevent.mask", "setmaxnreg.inc", "setmaxnreg.dec", "wmma.load.a", "wmma.load.b", "wmma.load.c", "wmma.store.d", "wmma.mma",
    "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group",
    "brx.idx", "tex.base", "tex.level", "tex.grad", "txq.level", "suld.b", "sust.b", "sust.p", "sured.b", "sured.p",
))
_SPACES = frozenset(("const", "global", "local", "param", "shared"))
_REFERENCES = frozenset(("pred", "samplerref", "surfref", "texref"))
_LAYOUTS = frozenset(("row", "col"))
_SMALL = frozenset(("b1", "s2", "u2", "s4", "u4"))
_ASIDE = _SMALL | {"bf16", "bf16x2", "tf32"}  # types that ptxas ignores in some places of a product
_SURPLUS = {
    **dict.fromkeys(("abs", "add", "atom", "cos", "cp.reduce.async.bulk", "cvt", "cvt.pack", "ex2", "fma", "lg2", "max", "min", "mul",
                     "multimem.ld_reduce", "multimem.red", "multimem.st", "neg", "rcp", "red", "rsqrt", "set", "setp", "sin", "sqrt", "sub",
                     "tanh", "wmma.mma"), _REFERENCES),
    **dict.fromkeys(("ldmatrix", "stmatrix"), _LAYOUTS), "movmatrix": _LAYOUTS | _ASIDE, "wgmma.mma_async": _REFERENCES | _LAYOUTS,
}
_RESTRICTIONS = frozenset(("sync_restrict::shared::cta", "sync_restrict::shared::cluster"))
_PLACES = frozenset(("global", "shared", "shared::cta", "shared::cluster"))
_FENCES = {"mbarrier_init": _RESTRICTIONS, "alias": _RESTRICTIONS, "async": _RESTRICTIONS, "async::generic": _PLACES}
_SPARSE = frozenset(("sp", "sp::ordered_metadata"))
_LISTS = {"row": "layout", "col": "layout", "and": "bits", "or": "bits", "xor": "bits", "popc": "bits"}


def base(mnemonic: str, tokens: Sequence[str]) -> int:
    """How many of the modifiers belong to the base."""
    return max((n for n in range(1, len(tokens) + 1) if ".".join((mnemonic, *tokens[:n])) in _BASES), default=0)


def ordered(token: str) -> str:
    """The list that a modifier belongs to; modifiers of one list keep their order (`cvt.f32.f64` is not `cvt.f64.f32`). "" is no list."""
    if width(token) or token in _SMALL:
        return "type"
    if token.startswith("L2::evict"):
        return "priority"
    return "space" if token.partition("::")[0] in _SPACES else _LISTS.get(token, "")


def relevant(mnemonic: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """The modifiers without those that ptxas ignores.

    ptxas ignores repetitions of some modifiers, modifiers that belong to another instruction, and in some instructions surplus types and
    layouts.
    """
    whole = ".".join((mnemonic, *tokens[:base(mnemonic, tokens)]))
    unread = [_SURPLUS.get(whole, frozenset())]
    alone = [words for owner, words in _UNREAD.items() if owner not in (mnemonic, whole)]
    if mnemonic == "fence":
        unread += [words for kind, words in _FENCES.items() if kind in tokens]
        unread += [_PLACES, _RESTRICTIONS] * ("tensormap::generic" in tokens and "release" in tokens)
    if mnemonic == "mma":
        tokens = _product(tokens)
    if whole in ("wmma.load.c", "wmma.store.d"):
        tokens = _sums(tokens)
    seen: set[str] = set()
    kept = []
    for token in tokens:
        one = next((words for words in alone if token in words), frozenset())
        passed = one.isdisjoint(seen) if one else token not in seen and any(token in words for words in unread)
        if not passed and (token not in seen or token not in REPEATABLE):
            kept.append(token)
        seen.add(token)
    return tuple(kept)


def _product(tokens: Sequence[str]) -> Sequence[str]:
    """The modifiers of a product with five types, without the one that ptxas ignores."""
    places = [i for i, token in enumerate(tokens) if ordered(token) == "type" or token == "bf16x2"]
    if len(places) != 5:
        return tokens
    for place, i in enumerate(places):
        others = [tokens[each] for each in places if each != i]
        if tokens[i] in _ASIDE and _overlooked(others, tokens[i], place, _SPARSE.isdisjoint(tokens)):
            return [*tokens[:i], *tokens[i + 1:]]
    return tokens


def _overlooked(types: list[str], token: str, place: int, dense: bool) -> bool:
    """Whether ptxas ignores the type `token` at this place. `types`: the other four, of d, a, b and c."""
    d, a, _, c = types
    if a == "f64":
        return True
    if place == 4:
        return a in ("f16", "e4m3", "e5m2") or (dense and a in ("s8", "u8", "s4", "u4"))
    if place == 3 and d != "f16" and token in ("tf32", "bf16x2"):
        return (a == "f16" and c == d) or a in ("e4m3", "e5m2") or (dense and a in ("s8", "u8", "s4", "u4"))
    if place == 3 and a in ("e4m3", "e5m2"):
        return token in _SMALL or (token == "bf16" and d == "f16")
    if a == "f16" and c == "f16" and token == "bf16":
        return place in (2, 3) or (d == "f16" and (place == 0 or not dense))
    return False


def _sums(tokens: Sequence[str]) -> Sequence[str]:
    """The modifiers of a load of C or a store of D without the types that ptxas ignores in shapes of small elements."""
    if "s32" not in tokens or not {"m8n8k32", "m8n8k128"}.intersection(tokens):
        return tokens
    last = tokens.index("s32")
    return [token for i, token in enumerate(tokens) if token not in _ASIDE or (i < last and token not in ("tf32", "bf16x2"))]
