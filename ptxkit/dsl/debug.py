"""Printing and asserting in a kernel, on the GPU and on the CPU device alike.

`debug.print("row %d: %f\\n", row, x)` and `debug.check(p, "row is in range")`. Each prints per thread; on the GPU output appears when the
device is synchronised, and a failed check ends the context with an assertion error (CUDA_ERROR_ASSERT). On the CPU device output is
`Report.output`, and a failed check is a finding of the rule `assertion`.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from .. import ptx
from ..errors import TraceError
from ..flow import if_
from ..grammar import tree
from ..types import f32, f64, pred, u64
from .ambient import current
from .module import package_path
from .reg import Reg, Special
from .source import user_position
from .trace import Builder

_CONVERSION = re.compile(r"%(?:%|[-+ #0]*\d*(?:\.\d+)?(hh|h|ll|l)?([diouxXcaAeEfFgGp]))")
_REGISTER = re.compile(r"(?:Reg|Special)\[\w+\]\(%[\w.]+\)")
"""What Python writes of a register."""
_EXTERNAL = {
    "vprintf": ((("b32", "result"),), (("b64", "format"), ("b64", "arguments"))),
    "__assertfail": ((), (("b64", "message"), ("b64", "file"), ("b32", "line"), ("b64", "function"), ("b64", "size"))),
}


def print(template: str, *values: Reg[Any] | Special[Any] | int) -> None:
    """Print a line per thread, as C's printf, by a call of the driver's `vprintf`.

    `%d %u %x %c` take 32 bits; with `l` or `ll`, and `%p`, 64 bits. `%f %e %g` take f32 and f64.
    """
    builder = current()
    if found := _REGISTER.search(template):
        raise TraceError(f"an f-string writes `{found[0]}` and no value, which is known on the GPU only: write "
                         "`debug.print(\"n is %u\", n)`")
    conversions = [found for found in _CONVERSION.finditer(template) if found[0] != "%%"]
    left = _CONVERSION.sub("", template)
    if "%" in left:
        raise TraceError(f"{template!r} has a conversion that debug.print has not: it has %d %i %u %o %x %c %f %e %g %a %p, with l or ll "
                         "for 64 bits, and %% for a percent sign")
    if len(conversions) != len(values):
        raise TraceError(f"the template has {len(conversions)} conversions, {len(values)} values were given")
    words = [_word(found[0], found[1] or "", found[2], value) for found, value in zip(conversions, values, strict=True)]
    offset, places = 0, []
    for word in words:
        size = word.type.bits // 8
        offset = -(-offset // size) * size
        places.append(offset)
        offset += size
    name = f"$arguments_{builder.new_label('print')[1:]}"
    if words:
        builder.body.append(tree.Variable("local", "b8", name, align=8, shape=(offset,)))
        for word, place in zip(words, places, strict=True):
            builder.emit(f"st.local.b{word.type.bits}", (tree.Address(tree.Name(name), place), word.operand()))
        here = builder.register(u64)
        builder.emit("mov.u64", (here.operand(), tree.Name(name)))
        builder.emit("cvta.local.u64", (here.operand(), here.operand()))
    else:
        here = ptx.mov.u64(0)
    _call(builder, "vprintf", (_text(builder, template), here))


def check(p: Reg[pred], message: str) -> None:
    """End the run with `message` and this line if `p` does not hold in a thread: a call of `__assertfail` in a branch."""
    builder = current()
    position = user_position()
    with if_(~p):
        file = _text(builder, package_path(position.file) if position is not None and position.file else "")
        line = ptx.mov.u32(0 if position is None else position.line)
        _call(builder, "__assertfail", (_text(builder, message), file, line, _text(builder, builder.name), ptx.mov.u64(1)))


def _word(conversion: str, length: str, kind: str, value: Any) -> Reg[Any]:
    """The value as an argument of vprintf: 4 or 8 bytes."""
    floating = kind in "aAeEfFgG"
    bits = 64 if floating or kind == "p" or length in ("l", "ll") else 32
    if isinstance(value, int):
        if floating:
            raise TraceError(f"`{conversion}` prints a float, not {value!r}")
        return ptx.mov.u64(value) if bits == 64 else ptx.mov.b32(value)
    register: Any = value
    if isinstance(value, Special):
        register = ptx.mov.u64(value) if value.type.bits == 64 else ptx.mov.u32(value)
    if not isinstance(register, Reg):
        raise TraceError(f"debug.print takes registers and ints, not {value!r}")
    if floating:
        if register.type is f64:
            return register
        if register.type is f32:
            return ptx.cvt.f64.f32(register)
        raise TraceError(f"`{conversion}` prints an f32 or f64 register, not {register!r}: convert it first")
    if register.type is pred:
        return ptx.selp.b32(1, 0, register)
    if register.type.bits == 16 and bits == 32:
        return ptx.cvt.u32.u16(register)
    if register.type.bits != bits:
        raise TraceError(f"`{conversion}` prints {bits} bits, {register!r} has {register.type.bits}")
    return register


def _text(builder: Builder, text: str) -> Reg[u64]:
    """The generic address of a string in global memory. Equal strings of a module are one variable."""
    data = (*text.encode(), 0)
    initializer = tree.Aggregate(tuple(tree.Integer(byte) for byte in data))
    variables = builder.module.variables
    found = next((v for v in variables if v.initializer == initializer), None)
    if found is None:
        name = f"$text_{sha256(bytes(data)).hexdigest()[:16]}"                  # the same in each entry of a module
        found = tree.Variable("global", "b8", name, align=1, shape=(len(data),), initializer=initializer)
        variables.append(found)
    made = builder.register(u64)
    builder.emit("mov.u64", (made.operand(), tree.Name(found.name)))
    builder.emit("cvta.global.u64", (made.operand(), made.operand()))
    return made


def _call(builder: Builder, name: str, arguments: tuple[Reg[Any], ...]) -> None:
    """Call a function that the driver provides."""
    returns, parameters = _EXTERNAL[name]
    if name not in builder.module.functions:
        declared = tree.Function("func", name, tuple(tree.Variable("param", type, word) for type, word in parameters),
                                 tuple(tree.Variable("param", type, word) for type, word in returns), linkage="extern")
        builder.module.functions = {name: declared, **builder.module.functions}
    outer, builder.body = builder.body, []
    sent = [tree.Variable("param", type, builder.free(f"argument{i}", name)) for i, (type, _) in enumerate(parameters)]
    received = [tree.Variable("param", type, builder.free("result", name)) for type, _ in returns]
    for variable, value in zip(sent, arguments, strict=True):
        builder.emit(f"st.param.{variable.type}", (tree.Address(tree.Name(variable.name)), value.operand()))
    operands: list[tree.Operand] = [tree.Arguments((tree.Name(received[0].name),))] if received else []
    operands += [tree.Name(name), tree.Arguments(tuple(tree.Name(variable.name) for variable in sent))]
    builder.emit("call.uni", tuple(operands))
    block, builder.body = builder.body, outer
    builder.body.append(tree.Block((*sent, *received, *block)))


__all__ = ["check", "print"]
