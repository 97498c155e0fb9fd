"""8x8 matrices of 16-bit elements between shared memory and the registers of a warp."""

from __future__ import annotations

from ..schema import Access, Effects, Form, Per, at, form, r, w

_SLOTS = {"num": "x1 x2 x4", "ss": "shared shared::cta"}
_REGISTERS = Per("num", {"x1": 1, "x2": 2, "x4": 4})

FORMS: tuple[Form, ...] = (
    form("ldmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16 r, [p]", slots=_SLOTS, target="sm_75", section="ldmatrix",
         effects=Effects((Access("r", "p", "tile"),), convergence="warp", depends="never"),
         r=w("b32", n=_REGISTERS, sink=True), p=at("ss")),
    form("stmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16 [p], r", slots=_SLOTS, section="stmatrix",
         effects=Effects((Access("w", "p", "tile"),), convergence="warp", depends="never"), p=at("ss"), r=r("b32", n=_REGISTERS)),
    form("movmatrix.sync.aligned.m8n8.trans.b16 d, a", target="sm_75", section="movmatrix",
         effects=Effects(convergence="warp"), d=w("b32"), a=r("b32")),
)
