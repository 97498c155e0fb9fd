"""Operations of a whole warp: shuffles, votes, reductions, elections."""

from __future__ import annotations

from ..schema import ANY, Effects, Form, form, r, w

_WARP = Effects(convergence="warp")
_MEMBERS = r("b32", imm=ANY, tag="members", float_ok=False)
_PREDICATE = r("pred", negate=True, imm=ANY)

FORMS: tuple[Form, ...] = (
    form("shfl.sync.mode.b32 d{|p}, a, b, c, membermask", slots={"mode": "up down bfly idx"}, effects=_WARP, section="shfl.sync",
         d=w("b32"), p=w("pred", sink=True), a=r("b32", imm=ANY), b=r("u32", imm=ANY), c=r("u32", imm=ANY), membermask=_MEMBERS),
    form("vote.sync.mode.pred d, a, membermask", slots={"mode": "all any uni"}, effects=_WARP, section="vote.sync",
         d=w("pred"), a=_PREDICATE, membermask=_MEMBERS),
    form("vote.sync.ballot.b32 d, a, membermask", effects=_WARP, section="vote.sync", d=w("b32"), a=_PREDICATE, membermask=_MEMBERS),
    form("match.any.sync.type d, a, membermask", slots={"type": "b32 b64"}, effects=_WARP, section="match.sync",
         d=w("b32", float_ok=False), a=r("type", imm=ANY), membermask=_MEMBERS),
    form("match.all.sync.type d{|p}, a, membermask", slots={"type": "b32 b64"}, effects=_WARP, section="match.sync",
         d=w("b32", sink=True, float_ok=False), p=w("pred", sink=True), a=r("type", imm=ANY), membermask=_MEMBERS),
    form("redux.sync.op.type dst, src, membermask", slots={"op": "add min max", "type": "u32 s32"}, effects=_WARP, section="redux.sync",
         dst=w("type", float_ok=False), src=r("type", imm=ANY, float_ok=False), membermask=_MEMBERS),
    form("redux.sync.op.b32 dst, src, membermask", slots={"op": "and or xor"}, effects=_WARP, section="redux.sync",
         dst=w("b32", float_ok=False), src=r("b32", imm=ANY, float_ok=False), membermask=_MEMBERS),
    form("elect.sync d|p, membermask", effects=Effects(convergence="warp", depends="election"), section="elect.sync",
         d=w("b32", sink=True, float_ok=False), p=w("pred"), membermask=_MEMBERS),
    form("activemask.b32 d", effects=Effects(depends="lanes"), section="activemask", d=w("b32")),
    form("bar.warp.sync membermask", effects=Effects(sync=("warp.barrier",), convergence="warp"), section="bar.warp.sync",
         membermask=_MEMBERS),
)
