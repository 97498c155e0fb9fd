"""Video instructions: scalar operations on parts of 32-bit registers, and SIMD operations on two halves or four bytes."""

from __future__ import annotations

from ..schema import ANY, Form, Operand, form, r, w

_TYPES = "u32 s32"
_TYPED = {"dtype": _TYPES, "atype": _TYPES, "btype": _TYPES}
_COMPARE = {"atype": _TYPES, "btype": _TYPES, "cmp": "eq ne lt le gt ge"}
_SHIFT = {"dtype": _TYPES, "atype": _TYPES, "mode": "clamp wrap"}
_ACCUMULATE = {"op2": "add min max"}


def _source(type: str, selector: str = "part", *, minus: bool = False) -> Operand:
    """A register, or a part of one that `selector` names. A SIMD source has no literals."""
    return r(type, imm=None if selector in ("halves", "bytes") else ANY, selector=selector, minus=minus)


def _result(selector: str = "") -> Operand:
    return w("u32", selector=selector)


def _scalar(name: str, types: str, slots: dict[str, str], section: str) -> tuple[Form, ...]:
    """Three rows: the result; the result in one part of `d` with the other parts from `c`; a second operation on the result and `c`."""
    a, b, c = _source("atype"), _source("btype" if "btype" in types else "u32"), r("u32", imm=ANY)
    return (form(f"{name}{types} d, a, b", slots=slots, section=section, d=_result(), a=a, b=b),
            form(f"{name}{types} d, a, b, c", slots=slots, section=section, d=_result("part"), a=a, b=b, c=c),
            form(f"{name}{types}.op2 d, a, b, c", slots=slots | _ACCUMULATE, section=section, d=_result(), a=a, b=b, c=c))


def _simd(name: str, lanes: int, types: str, slots: dict[str, str], section: str, saturate: str = "") -> tuple[Form, ...]:
    """Two rows: the result in the lanes of `d` that its mask names, with the other lanes from `c`; and the sum of those lanes and `c`."""
    chosen = "halves" if lanes == 2 else "bytes"
    d, a, b, c = _result(f"mask{lanes}"), _source("atype", chosen), _source("btype", chosen), r("u32")
    return (form(f"{name}{lanes}{types}{saturate} d, a, b, c", slots=slots, section=section, d=d, a=a, b=b, c=c),
            form(f"{name}{lanes}{types}.add d, a, b, c", slots=slots, section=section, d=d, a=a, b=b, c=c))


_ARITHMETIC = ".dtype.atype.btype{.sat}"
_SUMS = "vadd, vsub, vabsdiff, vmin, vmax"

FORMS: tuple[Form, ...] = (
    *(row for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax") for row in _scalar(name, _ARITHMETIC, _TYPED, _SUMS)),
    *(row for name in ("vshl", "vshr") for row in _scalar(name, ".dtype.atype.u32{.sat}.mode", _SHIFT, "vshl, vshr")),
    form("vmad.dtype.atype.btype{.sat}{.scale} d, a, b, c", slots=_TYPED | {"scale": "shr7 shr15"}, section="vmad",
         rules=("a excludes c", "b excludes c"), d=_result(),
         a=_source("atype", minus=True), b=_source("btype", minus=True), c=r("u32", imm=ANY, minus=True)),
    form("vmad.dtype.atype.btype.po{.sat}{.scale} d, a, b, c", slots=_TYPED | {"scale": "shr7 shr15"}, section="vmad",
         d=_result(), a=_source("atype"), b=_source("btype"), c=r("u32", imm=ANY)),
    *_scalar("vset", ".atype.btype.cmp", _COMPARE, "vset"),
    *(row for lanes in (2, 4) for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
      for row in _simd(name, lanes, ".dtype.atype.btype", _TYPED, f"vadd{lanes}, vsub{lanes}, vavrg{lanes}, vabsdiff{lanes}, vmin{lanes}, "
                                                                  f"vmax{lanes}", "{.sat}")),
    *(row for lanes in (2, 4) for row in _simd("vset", lanes, ".atype.btype.cmp", _COMPARE, f"vset{lanes}")),
)
