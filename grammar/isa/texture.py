"""Textures and surfaces, by handle or by reference: fetch, gather, query, and loads, stores and reductions of surfaces."""

from __future__ import annotations

from typing import Any

from ..schema import ANY, Access, Effects, Form, Operand, Per, at, coordinates, form, r, w

_TEXTURE, _SAMPLER, _SURFACE = (at(tag=tag) for tag in ("texture", "sampler", "surface"))
_READS, _QUERY = Effects((Access("r", "a", "type"),), depends="never"), Effects(sync=("query",))
_P = w("pred")

# Lanes of the coordinates. In an array the first lane is the layer. In three dimensions the fourth lane is ignored.
_LANES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
_ARRAYS = ("a1d", "a2d", "acube", "a2dms")
# Lanes of a gradient and of an offset in texels, without the layer. Cubes have no offsets.
_GRADIENTS = {"1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 2, "cube": 4, "acube": 4}
_OFFSETS = {"1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 2, "2dms": 2, "a2dms": 2}


def _coordinates(geometries: str, type: str) -> Operand:
    lanes = Per("geom", {geometry: _LANES[geometry] for geometry in geometries.split()})
    literals: dict[str, Any] = {"float_immediate": True} if type == "f32" else {}
    return coordinates(lanes, type, scalar=True, padded=True, integer_ok=type == "f32", index=geometries.split()[0] in _ARRAYS, **literals)


def _lanes(geometries: str, counts: dict[str, int], type: str) -> Operand:
    literals: dict[str, Any] = {"float_immediate": True} if type == "f32" else {"scalar": True}
    return coordinates(Per("geom", {geometry: counts[geometry] for geometry in geometries.split()}), type, padded=type == "s32", **literals)


def _fetch(opcode: str, geometries: str, ctype: str, *, mip: str = "", section: str = "tex", **slots: str) -> tuple[Form, ...]:
    """A fetch into four lanes, or into two lanes of f16x2. `p` says whether the texel is resident. `mip`: how the mipmap level is given."""
    offset = geometries.split()[0] in _OFFSETS
    texels = {"dtype": "u32 s32 f32" if section == "tld4" else "u32 s32 f16 f32"}
    rest = {"e": _lanes(geometries, _OFFSETS, "s32")} if offset else {}
    operands: dict[str, Any] = {"p": _P, "a": _TEXTURE, "b": _SAMPLER, "c": _coordinates(geometries, ctype), **rest}
    compare = ctype == "f32" and "3d" not in geometries
    if compare:
        operands["f"] = r("f32", float_immediate=True)
    if mip == "lod":
        operands["lod"] = r(ctype, float_immediate=ctype == "f32", imm=ANY)
    elif mip:
        operands["dPdx"] = operands["dPdy"] = _lanes(geometries, _GRADIENTS, "f32")
    line = (f"d{{|p}}, [a, {{b,}} c]{', lod' if mip == 'lod' else ', dPdx, dPdy' if mip else ''}{'{, e}' * offset}{'{, f}' * compare}")
    return tuple(
        form(f"{opcode}.geom.{shape}.{ctype} {line}", slots={**slots, "geom": geometries, **types}, section=section, effects=_READS,
             d=w("dtype" if types else "f16x2", n=lanes, sink=bool(types), integer_ok=bool(types)), **operands)
        for shape, types, lanes in (("v4.dtype", texels, 4), ("v2.f16x2", {}, 2)) if section == "tex" or types)


_FLAT, _SOLID, _LAYERED, _CUBE, _CUBES = "1d 2d", "3d", "a1d a2d", "cube", "acube"

_TEX = (
    *(row for geometries in (_FLAT, _SOLID, _LAYERED) for ctype in ("s32", "f32") for opcode, mip in (
        ("tex{.base}", ""), ("tex.level", "lod"), ("tex.grad", "grad")) for row in _fetch(opcode, geometries, ctype, mip=mip)),
    *(row for geometries in (_CUBE, _CUBES) for opcode, mip in (("tex{.base}", ""), ("tex.level", "lod"), ("tex.grad", "grad"))
      for row in _fetch(opcode, geometries, "f32", mip=mip)),
    *(row for geometries in ("2dms", "a2dms") for row in _fetch("tex{.base}", geometries, "s32")),
)


def _gather(geometries: str) -> Form:
    row, = (row for row in _fetch("tld4.comp", geometries, "f32", section="tld4", comp="r g b a"))
    return row


_QUERIES = (
    form("txq.query.b32 d, [a]", slots={"query": "width height depth channel_data_type channel_order normalized_coords array_size "
         "num_mipmap_levels num_samples memory_layout filter_mode addr_mode_0 addr_mode_1 addr_mode_2"},
         effects=_QUERY, section="txq", d=w("b32"), a=_TEXTURE),
    form("txq.force_unnormalized_coords.b32 d, [a]", effects=_QUERY, section="txq", d=w("b32"), a=_SAMPLER),
    form("txq.level.query.b32 d, [a], lod", slots={"query": "width height depth"}, effects=_QUERY, section="txq",
         d=w("b32"), a=_TEXTURE, lod=r("u32", imm=ANY)),
    form("suq.query.b32 d, [a]", slots={"query": "width height depth channel_data_type channel_order array_size memory_layout"},
         effects=_QUERY, section="suq", d=w("b32"), a=_SURFACE),
    form("istypep.type p, a", slots={"type": "texref samplerref surfref"}, section="istypep", p=w("pred"), a=r("u64", imm=ANY)),
)

_MODE = "trap clamp zero"
_SURFACES = "1d 2d 3d a1d a2d"
_VECTORS: tuple[tuple[str, dict[str, str], dict[str, Any]], ...] = (
    ("", {"type": "b8 b16 b32 b64"}, {}), (".vec", {"vec": "v2", "type": "b8 b16 b32 b64"}, {"n": 2}),
    (".vec", {"vec": "v4", "type": "b8 b16 b32"}, {"n": 4}))


def _place(geometries: str) -> dict[str, Any]:
    return {"a": _SURFACE, "b": coordinates(Per("geom", {g: _LANES[g] for g in geometries.split()}), "s32", scalar=True, padded=True)}


_SURFACE_ROWS = (
    *(form(f"suld.b.geom{{.cop}}{vec}.type.mode d, [a, b]", slots={"geom": _SURFACES, "cop": "ca cg cs cv", **types, "mode": _MODE},
           effects=_READS, section="suld", d=w("type", wide=True, sink="n" in lanes, **lanes), **_place(_SURFACES))
      for vec, types, lanes in _VECTORS),
    *(form(f"sust.b.geom{{.cop}}{vec}.type.mode [a, b], c", slots={"geom": _SURFACES, "cop": "wb cg cs wt", **types, "mode": _MODE},
           effects=Effects((Access("w", "a", "type"),), depends="never"), section="sust",
           c=r("type", wide=True, imm=ANY, float_immediate=True, **lanes), **_place(_SURFACES))
      for vec, types, lanes in _VECTORS),
    *(form(f"sust.p.geom{vec}.b32.mode [a, b], c", slots={"geom": "1d 2d 3d", **types, "mode": _MODE},
           effects=Effects((Access("w", "a", "type"),), depends="never"), section="sust",
           c=r("b32", wide=True, imm=ANY, float_immediate=True, **lanes), **_place("1d 2d 3d"))
      for vec, types, lanes in (("", {}, {}), (".vec", {"vec": "v2"}, {"n": 2}), (".vec", {"vec": "v4"}, {"n": 4}))),
    *(form(f"sured.{how}.op.geom.type.mode [a, b], c", since=since, slots={"op": ops, "geom": "1d 2d 3d", "type": types, "mode": _MODE},
           effects=Effects((Access("rw", "a", "type"),), depends="order"), section="sured", c=r("type", wide=True, imm=ANY),
           **_place("1d 2d 3d"))
      for how, ops, types, since in (
          ("b", "add", "u32 s32 u64", "8.0"), ("b", "min max", "u32 s32", "8.0"), ("b", "min max", "u64 s64", "8.1"),
          ("b", "and or", "b32", "8.0"), ("p", "add min max and or", "b32", "8.0"), ("p", "min max", "b64", "8.1"))),
)

FORMS: tuple[Form, ...] = (*_TEX, *(_gather(geometries) for geometries in ("2d", "a2d", "cube", "acube")), *_QUERIES, *_SURFACE_ROWS)
