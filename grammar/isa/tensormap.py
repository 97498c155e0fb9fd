"""Changes to a tensor map in memory, and its hand-over to the tensormap proxy."""

from __future__ import annotations

from ..schema import ANY, Access, Effects, Form, Operand, Range, at, form, imm, r

_SPACES = {"ss": "global shared::cta"}
_REPLACED = Effects((Access("rw", "addr", 128),), depends="never")
# u8 u16 u32 s32 u64 s64 f16 f32 f32.ftz f64 bf16 tf32 tf32.ftz. Numbers of 8 and more differ from those of CUtensorMapDataType.
_ELEMENT = Range(0, 12)
_INTERLEAVE = Range(0, 2)      # none, 16B, 32B
_SWIZZLE = Range(0, 3)         # none, 32B, 64B, 128B
_FILL = Range(0, 1)            # zeros, NaN
_FREE = Range(0, 2**32 - 1)


def _replace(field: str, type: str, new_val: Operand, ordinal: Range | None = None) -> Form:
    syntax = f"tensormap.replace.tile.field{{.ss}}.b1024.{type} [addr], {'ord, ' if ordinal else ''}new_val"
    common = {"addr": at("ss", tag="tensormap"), "new_val": new_val}
    return form(syntax, slots={"field": field, **_SPACES}, since="8.3", target="sm_90a", effects=_REPLACED, section="tensormap.replace",
                **({**common, "ord": imm(ordinal)} if ordinal else common))  # type: ignore[arg-type]


FORMS: tuple[Form, ...] = (
    _replace("global_address", "b64", r("b64", imm=ANY)),
    _replace("rank", "b32", r("b32", imm=Range(0, 4))),
    _replace("box_dim global_dim element_stride", "b32", r("b32", imm=_FREE), Range(0, 4)),
    _replace("global_stride", "b64", r("b64", imm=ANY), Range(0, 3)),
    _replace("elemtype", "b32", imm(_ELEMENT)),
    _replace("interleave_layout", "b32", imm(_INTERLEAVE)),
    _replace("swizzle_mode", "b32", imm(_SWIZZLE)),
    _replace("fill_mode", "b32", imm(_FILL)),

    form("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [dst], [src], size",
         slots={"scope": "cta cluster gpu sys"}, since="8.3", section="tensormap.cp_fenceproxy",
         effects=Effects((Access("r", "src", 128), Access("w", "dst", 128)), sync=("fence",), fence=("generic", "tensormap"),
                         convergence="warp", depends="never"),
         dst=at("global", tag="tensormap"), src=at("shared::cta", tag="tensormap"), size=imm(Range(choices=(128,)), default=128)),
)
