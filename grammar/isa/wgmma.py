"""Asynchronous warpgroup matrix multiply: wgmma, dense and sparse, with A from shared memory (a descriptor) or from registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..schema import ANY, Access, Effects, Form, Operand, Per, Range, form, imm, r, rw

_FLOAT_N = tuple(range(8, 257, 8))
# The manual stops at 224 for the integer types. ptxas and CUTLASS also have 240 and 256.
_INTEGER_N = (8, 16, 24, *range(32, 257, 16))

_SECTION = "wgmma.mma_async"
_DESCRIPTOR = r("b64", imm=ANY, tag="descriptor", float_ok=False)
_FRAGMENT = r("b32", n=4, float_ok=False)
_SCALE_D = Operand("predicate", "pred", immediate=Range(choices=(0, 1)), negate=True)
_SCALES = "imm_scale_a imm_scale_b"
_IMMEDIATES = {
    "imm_scale_a": imm(Range(choices=(-1, 1)), default=1),
    "imm_scale_b": imm(Range(choices=(-1, 1)), default=1),
    "imm_trans_a": imm(Range(choices=(0, 1)), tag="transpose", space="a_desc", default=0),
    "imm_trans_b": imm(Range(choices=(0, 1)), tag="transpose", space="b_desc", default=0),
}


def _read(descriptor: str) -> Access:
    return Access("r", descriptor, "tile", "async")


_FROM_SHARED = Effects((_read("a_desc"), _read("b_desc")), sync=("wgmma.issue",), convergence="warpgroup", in_flight=("d",),
                       depends="never")
_FROM_REGISTERS = Effects((_read("b_desc"),), sync=("wgmma.issue",), convergence="warpgroup", in_flight=("d", "a"), depends="never")


def _rows(types: str, columns: tuple[int, ...], k: int, d: str, columns_per_register: int, immediates: str = "", *,
          since: str = "8.0", selectors: int = 0, **slots: str) -> tuple[Form, Form]:
    """The two rows of one `types` list: A by a descriptor, and A in four registers, which cannot be transposed.

    A sparse A has half of its elements. `sp_meta` says which; `sp_sel` (less than `selectors`) says which threads provide `sp_meta`.
    """
    shapes = {f"m64n{n}k{k}": n // columns_per_register for n in columns}
    opcode = f"wgmma.mma_async{'.sp' * bool(selectors)}.sync.aligned.shape{types} d"
    selector = imm(Range(choices=tuple(range(selectors))))
    sparse: dict[str, Any] = {"sp_meta": r("b32", float_immediate=True), "sp_sel": selector} if selectors else {}
    fragment = rw(d, n=Per("shape", shapes), float_ok=d == "f32")

    def row(a: str, operand: Operand, names: list[str], effects: Effects) -> Form:
        operands: dict[str, Any] = {a: operand, **sparse, **{name: _IMMEDIATES[name] for name in names}}
        return form(f"{opcode}, {', '.join((a, 'b_desc', *sparse, 'scale_d', *names))}", slots={"shape": " ".join(shapes), **slots},
                    since=since, target="sm_90a", effects=replace(effects, semantics="wgmma.mma_async.sp") if selectors else effects,
                    section=f"{_SECTION}{'.sp' * bool(selectors)}",
                    d=fragment, b_desc=_DESCRIPTOR, scale_d=_SCALE_D, **operands)

    names = immediates.split()
    return (row("a_desc", _DESCRIPTOR, names, _FROM_SHARED),
            row("a", _FRAGMENT, [name for name in names if name != "imm_trans_a"], _FROM_REGISTERS))


_FP8 = "e4m3 e5m2"

FORMS: tuple[Form, ...] = (
    *_rows(".f16.f16.f16", _FLOAT_N, 16, "b32", 4, f"{_SCALES} imm_trans_a imm_trans_b"),
    *_rows(".f32.f16.f16", _FLOAT_N, 16, "f32", 2, f"{_SCALES} imm_trans_a imm_trans_b"),
    *_rows(".f32.bf16.bf16", _FLOAT_N, 16, "f32", 2, f"{_SCALES} imm_trans_a imm_trans_b"),
    *_rows(".f32.tf32.tf32", _FLOAT_N, 8, "f32", 2, _SCALES),
    *_rows(".f16.atype.btype", _FLOAT_N, 32, "b32", 4, _SCALES, atype=_FP8, btype=_FP8),
    *_rows(".f32.atype.btype", _FLOAT_N, 32, "f32", 2, _SCALES, atype=_FP8, btype=_FP8),
    *_rows("{.satfinite}.s32.s8.s8", _INTEGER_N, 32, "s32", 2),
    *_rows("{.satfinite}.s32.s8.u8", _INTEGER_N, 32, "s32", 2, since="8.4"),
    *_rows("{.satfinite}.s32.u8.s8", _INTEGER_N, 32, "s32", 2, since="8.4"),
    *_rows("{.satfinite}.s32.u8.u8", _INTEGER_N, 32, "s32", 2),
    *_rows(".s32.b1.b1.and.popc", _INTEGER_N, 256, "s32", 2),

    *_rows(".f16.f16.f16", _FLOAT_N, 32, "b32", 4, f"{_SCALES} imm_trans_a imm_trans_b", since="8.2", selectors=2),
    *_rows(".f32.f16.f16", _FLOAT_N, 32, "f32", 2, f"{_SCALES} imm_trans_a imm_trans_b", since="8.2", selectors=2),
    *_rows(".f32.bf16.bf16", _FLOAT_N, 32, "f32", 2, f"{_SCALES} imm_trans_a imm_trans_b", since="8.2", selectors=2),
    *_rows(".f32.tf32.tf32", _FLOAT_N, 16, "f32", 2, _SCALES, since="8.2", selectors=2),
    *_rows(".f16.atype.btype", _FLOAT_N, 64, "b32", 4, _SCALES, since="8.2", selectors=1, atype=_FP8, btype=_FP8),
    *_rows(".f32.atype.btype", _FLOAT_N, 64, "f32", 2, _SCALES, since="8.2", selectors=1, atype=_FP8, btype=_FP8),
    *_rows("{.satfinite}.s32.s8.s8", _INTEGER_N, 64, "s32", 2, since="8.2", selectors=1),
    *_rows("{.satfinite}.s32.s8.u8", _INTEGER_N, 64, "s32", 2, since="8.4", selectors=1),
    *_rows("{.satfinite}.s32.u8.s8", _INTEGER_N, 64, "s32", 2, since="8.4", selectors=1),
    *_rows("{.satfinite}.s32.u8.u8", _INTEGER_N, 64, "s32", 2, since="8.2", selectors=1),

    form("wgmma.fence.sync.aligned", target="sm_90a", section="wgmma.fence",
         effects=Effects(sync=("wgmma.fence",), convergence="warpgroup")),
    form("wgmma.commit_group.sync.aligned", target="sm_90a", section="wgmma.commit_group",
         effects=Effects(sync=("wgmma.commit",), convergence="warpgroup")),
    form("wgmma.wait_group.sync.aligned n", target="sm_90a", section="wgmma.wait_group",
         effects=Effects(sync=("wgmma.wait",), convergence="warpgroup"), n=imm(Range(0))),
)
