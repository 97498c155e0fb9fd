"""Arithmetic in f16, bf16, f16x2 and bf16x2. These types have no literals."""

from __future__ import annotations

from typing import Any

from ..schema import Form, form, r, w

_F16 = "f16 f16x2"
_BF16 = "bf16 bf16x2"


def _row(opcode: str, types: str, sources: int = 1, since: str = "8.0") -> Form:
    """`d` and one to three sources, all of one type."""
    operands: dict[str, Any] = {"d": w("type"), **{name: r("type") for name in "abc"[:sources]}}
    return form(f"{opcode}.type {', '.join(operands)}", slots={"type": types}, since=since,
                section=opcode.partition(".")[0].partition("{")[0],
                **operands)


FORMS: tuple[Form, ...] = (
    *(row for opcode in ("add", "sub", "mul") for row in (
        _row(f"{opcode}{{.rn}}{{.ftz}}{{.sat}}", _F16, 2),
        _row(f"{opcode}{{.rn}}", _BF16, 2))),
    _row("fma.rn{.ftz}{.sat|.relu}", _F16, 3),
    _row("fma.rn{.relu}", _BF16, 3),
    _row("fma.rn.oob{.relu}", f"{_F16} {_BF16}", 3, since="8.1"),
    *(row for opcode in ("abs", "neg") for row in (_row(f"{opcode}{{.ftz}}", _F16), _row(opcode, _BF16))),
    *(row for opcode in ("min", "max") for row in (
        _row(f"{opcode}{{.ftz}}{{.NaN}}{{.xorsign.abs}}", _F16, 2),
        _row(f"{opcode}{{.NaN}}{{.xorsign.abs}}", _BF16, 2))),
    _row("ex2.approx", _F16),
    _row("ex2.approx.ftz", _BF16),
    _row("tanh.approx", f"{_F16} {_BF16}"),
)
