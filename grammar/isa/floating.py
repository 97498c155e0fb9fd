"""Arithmetic in f32 and f64. Arithmetic in f16 and bf16 is in `half`."""

from __future__ import annotations

import re
from typing import Any

from ..schema import Form, form, r, w

_RND = "rn rz rm rp"


def _row(opcode: str, types: str, sources: int = 1, **slots: str) -> Form:
    """`d` and one to three sources, all of one type."""
    operands: dict[str, Any] = {"d": w("type"), **{name: r("type", float_immediate=True) for name in "abc"[:sources]}}
    return form(f"{opcode}.type {', '.join(operands)}", slots={**slots, "type": types}, section=re.split(r"\W", opcode)[0],
                **operands)


FORMS: tuple[Form, ...] = (
    *(row for opcode in ("add", "sub", "mul") for row in (
        _row(f"{opcode}{{.rnd}}{{.ftz}}{{.sat}}", "f32", 2, rnd=_RND),
        _row(f"{opcode}{{.rnd}}", "f64", 2, rnd=_RND))),
    *(row for opcode in ("fma", "mad") for row in (
        _row(f"{opcode}.rnd{{.ftz}}{{.sat}}", "f32", 3, rnd=_RND),
        _row(f"{opcode}.rnd", "f64", 3, rnd=_RND))),
    _row("div(.approx|.full|.rnd){.ftz}", "f32", 2, rnd=_RND),
    _row("div.rnd", "f64", 2, rnd=_RND),
    *(row for opcode in ("abs", "neg") for row in (_row(f"{opcode}{{.ftz}}", "f32"), _row(opcode, "f64"))),
    *(row for opcode in ("min", "max") for row in (
        _row(f"{opcode}{{.ftz}}{{.NaN}}{{.xorsign.abs}}", "f32", 2),
        _row(opcode, "f64", 2))),
    _row("rcp(.approx|.rnd){.ftz}", "f32", rnd=_RND),
    _row("rcp(.rnd|.approx.ftz)", "f64", rnd=_RND),
    _row("sqrt(.approx|.rnd){.ftz}", "f32", rnd=_RND),
    _row("sqrt.rnd", "f64", rnd=_RND),
    _row("rsqrt.approx{.ftz}", "f32 f64"),
    *(_row(f"{opcode}.approx{{.ftz}}", "f32") for opcode in ("sin", "cos", "lg2", "ex2")),
    _row("tanh.approx", "f32"),
    form("testp.op.type p, a", slots={"op": "finite infinite number notanumber normal subnormal", "type": "f32 f64"}, section="testp",
         p=w("pred"), a=r("type", float_immediate=True)),
    _row("copysign", "f32 f64", 2),
)
