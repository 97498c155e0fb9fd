"""Converts a Python argument to an operand for one parameter of a signature, or gives the reason why it does not fit."""

from __future__ import annotations

from typing import Any

from ..grammar import forms, tree
from ..grammar.errors import OpcodeError
from ..grammar.operands import accepts, layer, width
from ..grammar.schema import Operand, Range
from ..smem import MBarrier, SharedAddress
from ..types import ScalarType, pred, u32, u64
from .descriptor import Descriptor
from .function import Func
from .label import Label
from .raw import Param, Written
from .reg import Negated, Ptr, Reg, Sink, Special, Vec
from .tensormap import TensorMapParameter
from .trace import Builder


class Mismatch(Exception):
    """The value does not fit. `depth` is greater the more operands fit before and the closer the value is. The error message gives the
    reason of the overload with the greatest depth."""

    def __init__(self, depth: int, reason: str) -> None:
        super().__init__(reason)
        self.depth = depth


def convert(builder: Builder, parameter: forms.Parameter, value: Any, index: int) -> tree.Operand:
    """The operand for the tree. Raises Mismatch with what the parameter takes."""
    if isinstance(value, Written):
        return _as_written(parameter, value, index)
    try:
        return _CONVERTERS[parameter.operand.kind](builder, parameter.operand, value)
    except _Unfit as unfit:
        takes = unfit.due or due(parameter.operand)
        not_this = f"not {shown(value)}{_way_out(parameter.operand, value)}"
        raise Mismatch(2 * index + 1 + _alike(parameter.operand, value), f"operand `{parameter.name}` takes {takes}, {not_this}") from None


def _as_written(parameter: forms.Parameter, value: Written, index: int) -> tree.Operand:
    """An operand that was written as PTX text. Only addresses are checked against the table."""
    from ..grammar.match import mismatch

    if isinstance(value, Param) and parameter.operand.kind != "address":
        if parameter.operand.kind == "symbol":
            return tree.Name(value.name)
        raise Mismatch(2 * index + 1, f"operand `{parameter.name}` takes {due(parameter.operand)}, not a parameter: `ld.param` reads it")
    wrong = None if value.types is None else mismatch(parameter, value.operand(), value.types.get)
    if wrong is not None:
        raise Mismatch(2 * index + 1, wrong)
    return value.operand()


def _alike(operand: Operand, value: Any) -> bool:
    """Whether the value is of the kind that the operand takes, even if its type is wrong."""
    if isinstance(value, Vec | tuple | list):
        return operand.kind in ("vector", "coordinates")
    return (operand.kind == "special") == isinstance(value, Special) and operand.kind != "vector"


class _Unfit(Exception):
    def __init__(self, due: str = "") -> None:
        self.due = due


def due(operand: Operand) -> str:
    """A description of what an operand takes."""
    tags = {"descriptor": "a matrix descriptor (`tile[stage].desc(k)`)", "mbarrier": "an mbarrier (`barriers[i]`)",
            "tensormap": "a TensorMap"}
    if operand.tag in tags and (operand.tag != "mbarrier" or operand.space):
        return tags[operand.tag]
    width = "wider or equal " if operand.wide else ""
    words = {
        "register": f"a {width}register of type .{operand.type}",
        "predicate": "a predicate register" + (" or its negation" if operand.negate else ""),
        "address": _address_due(str(operand.space)),
        "coordinates": f"{operand.count} coordinates",
        "vector": f"a Vec of {operand.count} .{operand.type}",
        "special": "a special register (`tid.x`)",
        "label": "a label",
        "function": "a @func function",
    }
    what = words.get(operand.kind, "an immediate" if operand.kind == "immediate" else operand.kind)
    if operand.kind == "vector" and operand.access == "rw":
        what += " (the opcode's `.fragment()`)"
    if operand.immediate is not None and operand.kind != "coordinates":
        assert isinstance(operand.immediate, Range)
        number = f"an int{_range(operand.immediate) or f' of {_immediate_bits(operand)} bits'}"
        what = number if operand.kind == "immediate" else f"{what} or {number}"
    return f"{what} or a float" if operand.float_immediate and operand.kind == "register" else what


def _address_due(space: str) -> str:
    if space.startswith("shared"):
        return f"an address in .{space} memory (of `smem`, or a 32-bit register)"
    return f"an address in .{space} memory (a Ptr or a 64-bit register)" if space else "a generic address (a Ptr or a 64-bit register)"


def _way_out(operand: Operand, value: Any) -> str:
    """Advice for a register of the wrong width or class, and for a special one."""
    if operand.float_immediate and type(value) is int:
        return f"; write {float(value)}"
    if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1):
        return "; a number of numpy becomes one of Python with `int(i)` or `float(x)`"
    if isinstance(value, Special):
        return f"; read it into a register: `mov.{value.type.__name__}({value.name[1:]})`" if operand.kind == "register" else ""
    if not isinstance(value, Reg) or value.type is pred:
        return ""
    if operand.kind == "predicate":
        return "; compare first, as in `x != 0`"
    if operand.kind != "register" or operand.tag or operand.type == "pred":
        return ""
    wanted, given = str(operand.type), value.type.__name__
    alike = f"`mov.b{width(given)}(x)` takes its bits as they are" if width(wanted) == width(given) else ""
    wanted, given = (f"u{name[1:]}" if name.startswith("b") and name[1:].isdigit() else name for name in (wanted, given))
    for opcode in (f"cvt.{wanted}.{given}", f"cvt.rn.{wanted}.{given}", f"cvt.rzi.{wanted}.{given}"):
        try:
            forms.lookup(opcode)
        except OpcodeError:
            continue
        return f"; `{opcode}(x)` converts its value, {alike}" if alike else f"; convert it: `{opcode}(x)`"
    return f"; {alike}" if alike else ""


def _range(allowed: Range) -> str:
    if allowed.choices:
        return f" ({', '.join(map(str, allowed.choices))})"
    if allowed.low is None and allowed.high is None:
        return ""
    step = f" in steps of {allowed.multiple}" if allowed.multiple > 1 else ""
    return f" ({'' if allowed.low is None else allowed.low}..{'' if allowed.high is None else allowed.high}{step})"


def shown(value: Any) -> str:
    if isinstance(value, Vec | tuple | list):
        elements = list(value)
        kinds = {e.type.__name__ if isinstance(e, Reg) else type(e).__name__ for e in elements}
        return f"{len(elements)} values of {', '.join(sorted(kinds))}"
    if isinstance(value, SharedAddress):
        remote = isinstance(value, MBarrier) and value.remote
        return f"{type(value).__name__} ({'shared memory of another CTA' if remote else 'shared memory'})"
    return repr(value)


def fits(operand: Operand, type: ScalarType) -> bool:
    """Whether the operand accepts a register of `type`, by the ISA's type compatibility (ld, st and cvt accept wider ones)."""
    return accepts(operand, type.__name__)


def _immediate(operand: Operand, value: int) -> tree.Integer:
    allowed = operand.immediate
    if not isinstance(allowed, Range):
        raise _Unfit
    bits = _immediate_bits(operand)
    if allowed.choices:
        inside = value in allowed.choices
    else:
        above, below = allowed.low is None or value >= allowed.low, allowed.high is None or value <= allowed.high
        inside = above and below and value % allowed.multiple == 0
    if not inside or not -(1 << bits - 1) <= value < 1 << bits:
        raise _Unfit
    return tree.Integer(value)


def _immediate_bits(operand: Operand) -> int:
    return 64 if operand.type in ("", "b64", "u64", "s64", "f64") else 32 if operand.kind == "immediate" else _bits(operand)


def _bits(operand: Operand) -> int:
    from ..types import TYPES

    return TYPES[str(operand.type)].bits if str(operand.type) in TYPES else 32


def _register(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if isinstance(value, Reg) and operand.tag != "descriptor":
        if operand.type != value.type.__name__ and not fits(operand, value.type):
            raise _Unfit
        if value.builder is not builder:
            builder.own(value)
        return value.operand()
    if isinstance(value, bool):
        raise _Unfit
    if (isinstance(value, Written) and not isinstance(value, Param)) or (isinstance(value, Sink) and operand.sink):
        return value.operand()
    if operand.tag == "descriptor":
        if isinstance(value, Descriptor):
            builder.own(value.reg)
            return value.operand()
        if isinstance(value, int):
            return _immediate(operand, value)
        raise _Unfit
    if isinstance(value, int):
        return _immediate(operand, value)
    if isinstance(value, float):
        if not operand.float_immediate:
            raise _Unfit
        return tree.Float.of(value, 32 if operand.type == "f32" else 64)
    if isinstance(value, SharedAddress) and operand.access == "r" and _bits(operand) == 32 and fits(operand, u32):
        return value.register().operand()
    if isinstance(value, Ptr) and operand.access == "r" and _bits(operand) == 64 and fits(operand, u64) and not value.offset:
        builder.own(value.reg)
        return value.reg.operand()
    if isinstance(value, TensorMapParameter) and operand.access == "r" and _bits(operand) == 64 and fits(operand, u64):
        builder.own(value.reg)
        return value.reg.operand()
    raise _Unfit


def _predicate(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if isinstance(value, Reg) and value.type is pred:
        builder.own(value)
        return value.operand()
    if isinstance(value, Sink) and operand.sink:
        return value.operand()
    if isinstance(value, Negated) and operand.negate:
        builder.own(value.reg)
        return value.operand()
    if isinstance(value, int) and isinstance(operand.immediate, Range) and value in (0, 1):
        return tree.Integer(int(value))
    raise _Unfit


def _only_immediate(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if isinstance(value, float) and operand.float_immediate:
        return tree.Float.of(value, 32 if operand.type == "f32" else 64)
    if isinstance(value, Reg) or not isinstance(value, int):
        raise _Unfit
    return _immediate(operand, int(value))


def _address(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    space = str(operand.space)
    if operand.tag == "mbarrier" and space:
        if not isinstance(value, MBarrier):
            raise _Unfit
        if value.remote and space != "shared::cluster":
            raise _Unfit("a barrier of this CTA (`.shared::cluster` reaches those of others)")
        return value.operand()
    if operand.tag == "tensormap" and isinstance(value, TensorMapParameter) and not space.startswith("shared"):
        builder.own(value.reg)
        return value.operand()
    if isinstance(value, SharedAddress):
        if space and not space.startswith("shared"):
            raise _Unfit
        if not space:
            way = "; for a barrier of this CTA say `.shared::cta`" if operand.tag == "mbarrier" else ""
            raise _Unfit(f"a generic address (a Ptr or a 64-bit register; cvta.shared.u64 makes one){way}")
        if isinstance(value, MBarrier) and operand.tag == "tensormap":
            raise _Unfit
        return value.operand()
    if isinstance(value, Ptr):
        if space and value.space != space and not (value.space == "global" and space == "const"):
            raise _Unfit
        builder.own(value.reg)
        return value.operand()
    if isinstance(value, Reg) and value.type.register in ("b32", "b64") and (value.type.bits == 64 or space.startswith("shared")):
        builder.own(value)
        if value.name in builder.remote and space in ("shared", "shared::cta"):
            raise _Unfit("an address in this CTA's shared memory; one that mapa made is for `.shared::cluster`, so say that in the opcode")
        return tree.Address(value.operand())
    if isinstance(value, TensorMapParameter) and not space:
        builder.own(value.reg)
        return value.operand()
    raise _Unfit


def _coordinates(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    values = list(value) if isinstance(value, tuple | list | Vec) else [value]
    if len(values) != operand.count or (operand.index and isinstance(value, Vec)):
        raise _Unfit
    lanes = [layer(operand) if operand.index and lane == 0 else operand for lane in range(len(values))]
    return tree.Vector(tuple(_register(builder, lane, element) for lane, element in zip(lanes, values, strict=True)))


def _vector(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if not isinstance(value, Vec | tuple | list):
        if operand.count == 1:
            value = (value,)
        else:
            raise _Unfit
    if len(value) != operand.count:
        raise _Unfit
    return tree.Vector(tuple(_register(builder, operand, element) for element in value))


def _special(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if isinstance(value, Special) and (not operand.type or fits(operand, value.type)):
        return value.operand()
    raise _Unfit


def _label(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    return _symbol(builder, operand, value.name if isinstance(value, Label) else value)


def _function(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    return _symbol(builder, operand, value.name if isinstance(value, Func) else value)


def _symbol(builder: Builder, operand: Operand, value: Any) -> tree.Operand:
    if not isinstance(value, str):
        raise _Unfit
    return tree.Name(value)


_CONVERTERS = {
    "register": _register,
    "predicate": _predicate,
    "immediate": _only_immediate,
    "address": _address,
    "coordinates": _coordinates,
    "vector": _vector,
    "special": _special,
    "label": _label,
    "function": _function,
    "symbol": _symbol,
    "arguments": _symbol,
}
