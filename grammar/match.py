"""Compares an instruction with the table: which operand is wrong, and why. It serves parsed text and the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from . import tree, wording
from .errors import OpcodeError
from .forms import Group, Parameter, Signature, accepted, lookup
from .operands import accepts, layer, legal, width, within
from .schema import SELECTORS, Operand, Range
from .special import SPECIAL, VECTORS, readable, readable_whole

Types = Callable[[str], "str | None"]
Values = tuple["tree.Operand | None", ...]
Bound = tuple[Signature, Values]

# Generic and global addresses have 64 bits. Addresses in the other spaces fit in 32 bits, and ptxas accepts both widths.
_NARROW_SPACES = ("shared", "shared::cta", "shared::cluster", "local", "const", "param", "param::entry", "param::func")
_LANE_CLASS = {"u": "integer", "s": "integer"}
_INTEGERS_AMONG = {"f16": ("u16", "s16"), "bf16": ("u16", "s16"), "f32": ("u32", "s32"), "f64": ("u64", "s64")}
_VECTORS = frozenset(("v2", "v4", "v8"))
_AXES = ("x", "y", "z", "w", "r", "g", "b", "a")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why operands do not fit a signature.

    `depth` is how many of them fit: the message comes from the signature that fits best. `words` is what does not fit, as it is written.
    `expected` says what may stand there.
    """

    depth: int
    sentence: str
    words: str = ""
    expected: tuple[str, ...] = ()


def check(instruction: tree.Instruction, types: Mapping[str, str] | Types, *, strict: bool = False) -> str | None:
    """Why the instruction is illegal, in one sentence. None: it is legal.

    `types` gives the type of a register ("u32", "pred", for a vector "v4.f32"), "." with the state space for a variable, and None for any
    other name. ptxas accepts modifiers in most orders; `strict` accepts only the order of the manual.
    """
    found = explain(instruction, types, strict=strict)
    return found.sentence if isinstance(found, Mismatch) else None


def explain(instruction: tree.Instruction, types: Mapping[str, str] | Types, *, strict: bool = False) -> tuple[Bound, ...] | Mismatch:
    """Each signature that the operands fit, with one value per parameter, or why there is none. Arguments are as for `check`."""
    known: Types = types.get if isinstance(types, Mapping) else types
    guard = instruction.guard
    if guard is not None and (kind := known(guard.predicate) or _own_type(guard.predicate)) != "pred":
        return Mismatch(-1, f"`{instruction.opcode}`: the guard `{guard.predicate}` is a .{kind.lstrip('.')} "
                        f"{'variable' if kind[0] == '.' else 'register'}, not a predicate", guard.predicate, ("a predicate",))
    signatures = () if strict else accepted(instruction.opcode)
    if not signatures:
        try:
            signatures = lookup(instruction.opcode)
        except OpcodeError as error:
            return Mismatch(-1, str(error), instruction.opcode, error.expected)
    fitting, failures = [], []
    for signature in signatures:
        found = bind(signature, instruction.operands, known)
        if isinstance(found, Mismatch):
            failures.append(found)
        else:
            fitting.append((signature, found))
    if fitting:
        return tuple(fitting)
    nearest = max(failures, key=lambda failure: failure.depth)
    return replace(nearest, sentence=f"`{instruction.opcode}`: {nearest.sentence}")


def lone(signature: Signature, parameter: Parameter) -> bool:
    """Whether the operand is one value for all lanes of a move of a vector."""
    return (signature.form.mnemonic == "mov" and parameter.operand.access == "r" and parameter.operand.kind != "vector"
            and not _VECTORS.isdisjoint(signature.opcode.split(".")))


def _own_type(name: str) -> str:
    """The type of a special register, and of a name that is not known the one that is asked for."""
    return "u32" if name in VECTORS else SPECIAL.get(name, "pred")


def bind(signature: Signature, operands: tuple[tree.Operand, ...], types: Types) -> Values | Mismatch:
    """One value per parameter (None: left out), or why the operands do not fit. The inverse of `Signature.render`."""
    first = operands[0] if operands else None  # ptxas accepts `d|_` for any register `d`
    if (isinstance(first, tree.Pair) and first.second == tree.Name("_") and isinstance(first.first, tree.Name)
            and signature.layout and signature.layout[0].kind == "plain"):
        operands = (first.first, *operands[1:])
    nearest = None
    for layout in _layouts(signature):
        if len(layout) != len(operands):
            continue
        values: list[tree.Operand | None] = [None] * len(signature.parameters)
        failure = _fill(signature, layout, operands, values, types)
        if failure is None:
            return tuple(values)
        if nearest is None or failure.depth > nearest.depth:
            nearest = failure
    if nearest is not None:
        return nearest
    due = signature.form.syntax.partition(" ")[2]
    given = f"{len(operands)} operand{'s' * (len(operands) != 1)}"
    return Mismatch(-1, f"{given} where `{due}` is due" if operands else f"the operands `{due}` are missing", "", (due,))


_known_layouts: dict[int, tuple[tuple[Group, ...], list[list[Group]]]] = {}


def _layouts(signature: Signature) -> list[list[Group]]:
    """One list of groups for each choice of optional operands, the longest first. Signatures with one layout share the lists."""
    known = _known_layouts.get(id(signature.layout))
    if known is None or known[0] is not signature.layout:
        known = signature.layout, [_layout(signature, present) for present in _presences(signature)]
        _known_layouts[id(signature.layout)] = known
    return known[1]


def _presences(signature: Signature) -> list[frozenset[int]]:
    """The sets of optional brackets that may be filled, the largest first."""
    nested = {parameter.regions for parameter in signature.parameters if parameter.regions}
    regions = sorted({region for path in nested for region in path})
    sets = [frozenset(chosen) for size in range(len(regions), -1, -1) for chosen in combinations(regions, size)]
    return [chosen for chosen in sets if all(chosen.issuperset(path[:-1]) for path in nested if path[-1] in chosen)]


def _layout(signature: Signature, present: frozenset[int]) -> list[Group]:
    """The groups that are written when these brackets are filled."""
    written = []
    for group in signature.layout:
        there = tuple(i for i in group.indices if present.issuperset(signature.parameters[i].regions))
        if there or group.kind == "literal":
            written.append(Group("plain" if group.kind == "pair" and len(there) == 1 else group.kind, there))
    return written


def _fill(signature: Signature, layout: list[Group], operands: tuple[tree.Operand, ...], values: list[tree.Operand | None],
          types: Types) -> Mismatch | None:
    loads_or_stores = signature.form.mnemonic in ("ld", "ldu", "st", "suld", "sust") and _VECTORS.isdisjoint(signature.opcode.split("."))
    for depth, (group, operand) in enumerate(zip(layout, operands, strict=True)):
        unbraced = loads_or_stores and group.kind == "plain" and signature.parameters[group.indices[0]].name in ("d", "b", "c")
        if unbraced and isinstance(operand, tree.Vector) and len(operand.elements) == 1:
            operand = operand.elements[0]  # Triton writes `ld.global.b32 {%r1}, [%rd1]`
        if group.kind == "literal":
            if operand != tree.Name("_"):
                return Mismatch(depth, "the result must be `_`: nothing is returned from another CTA's barrier",
                                wording.written(operand), ("_",))
            continue
        parts = _parts(group, operand)
        names = "|".join(signature.parameters[i].name for i in group.indices)
        if parts is None:
            wanted, written = wording.shape(group), wording.written(operand)
            return Mismatch(depth, f"operand `{names}` must be {wanted}, not `{written}`", written, (wanted,))
        for index, part in zip(group.indices, parts, strict=True):
            paired = group.kind in ("pair", "tensor") or any(index in pair.indices for pair in signature.layout if pair.kind == "pair")
            wrong = mismatch(signature.parameters[index], part, types, paired=paired)
            wrong = wrong or _misplaced(signature, signature.parameters[index], part, types)
            if wrong is not None:
                return Mismatch(depth, wrong, wording.written(part), wording.expected(signature.parameters[index].operand))
            values[index] = part
    return _broken_rule(signature, values, len(operands))


def _parts(group: Group, operand: tree.Operand) -> tuple[tree.Operand, ...] | None:
    """The parts of a written operand, one per parameter of the group. None: the operand has another shape."""
    if group.kind == "tensor":
        if not isinstance(operand, tree.TensorAddress) or len(group.indices) != (2 if operand.sampler is None else 3):
            return None
        if operand.sampler is not None and isinstance(operand.coordinates, tree.Name):
            return None
        sampler = () if operand.sampler is None else (tree.Address(operand.sampler),)
        return (tree.Address(operand.tensormap), *sampler, operand.coordinates)
    if group.kind == "pair":
        both = (operand.first, operand.second) if isinstance(operand, tree.Pair) else None
        return None if both == (tree.Name("_"), tree.Name("_")) else both
    if group.kind == "address":
        return (operand,) if isinstance(operand, (tree.Address, tree.Element)) else None
    return (operand,) if group.kind != "arguments" or isinstance(operand, tree.Arguments) else None


def _misplaced(signature: Signature, parameter: Parameter, value: tree.Operand, types: Types) -> str | None:
    """Only loads from global memory at a register accept `[a].unified`. A product accepts no special register in a lane."""
    if isinstance(value, tree.Address) and value.unified:
        at_register = isinstance(value.base, tree.Name) and (types(value.base.name) or ".")[0] != "."
        if at_register and signature.parameters[0].operand.access == "w" and parameter.operand.space in ("", "global"):
            return None
        return f"operand `{parameter.name}` cannot be `.unified`: only loads from global memory can"
    if isinstance(value, tree.Vector) and signature.form.mnemonic in ("mma", "wmma"):
        for name in (each.name for each in value.elements if isinstance(each, tree.Name) and types(each.name) is None):
            if name in SPECIAL:
                return f"operand `{parameter.name}` has the special register `{name}`, which is read by `mov.{SPECIAL[name]}` first"
    return None


def _broken_rule(signature: Signature, values: list[tree.Operand | None], depth: int) -> Mismatch | None:
    numbers = {p.name: v.value for p, v in zip(signature.parameters, values, strict=True) if isinstance(v, tree.Integer)}
    minus = {p.name for p, v in zip(signature.parameters, values, strict=True) if isinstance(v, tree.Minus)}
    for rule in signature.form.rules:
        low, relation, high = rule.split()
        if relation == "in":
            literal = values[[p.name for p in signature.parameters].index(low)]
            if isinstance(literal, tree.Float) and not 0 < literal.value <= 1:
                return Mismatch(depth, f"operand `{low}` is {literal.value}; legal is more than 0 to 1", wording.written(literal), (high,))
            continue
        if relation == "excludes":
            if not {low, high} <= minus:
                continue
            return Mismatch(depth, f"`{low}` and `{high}` cannot both be negated")
        if low in numbers and high in numbers and numbers[low] % (1 << 32) > numbers[high] % (1 << 32):
            return Mismatch(depth, f"`{low}` is {numbers[low]}, more than `{high}`, which is {numbers[high]}")
    return None


# ------------------------------------------------------------------------------------------------ one operand


def mismatch(parameter: Parameter, value: tree.Operand, types: Types, *, paired: bool = False) -> str | None:
    """Why a value cannot stand for a parameter. `paired`: it is written as part of a pair or of a tensor address."""
    operand = parameter.operand
    kind = operand.kind
    if kind == "immediate":
        wrong = _integer(operand, value)
    elif kind == "address":
        wrong = _address(operand, value, types, paired)
    elif kind in ("vector", "coordinates"):
        wrong = _vector(operand, value, types, paired)
    elif kind in ("register", "predicate"):
        wrong = _register(operand, value, types, paired or parameter.operand.access != "w" or operand.type != "pred")
    elif kind == "special":
        wrong = _special(operand, value)
    elif kind == "arguments":
        wrong = None if isinstance(value, tree.Arguments) else "must be a list in parentheses"
    elif kind == "symbol":
        wrong = _variable(operand, value, types)
    else:
        special = isinstance(value, tree.Name) and kind != "label" and (value.name in SPECIAL or value.name in VECTORS)
        named = (isinstance(value, tree.Name) and value.name != "_" and "." not in value.name and not special
                 and types(value.name) is None)
        wrong = None if named else f"must be the name of a {kind}, not `{wording.written(value)}`"
    return None if wrong is None else f"operand `{parameter.name}` {wrong}"


def _register(operand: Operand, value: tree.Operand, types: Types, sinkable: bool = True) -> str | None:
    if isinstance(value, tree.Not):
        if not operand.negate:
            return f"cannot be negated: `{wording.written(value)}`"
        return _register(operand, value.operand, types, False)
    if isinstance(value, tree.Minus):
        if not operand.minus or not isinstance(value.operand, tree.Name):
            return f"cannot be negated: `{wording.written(value)}`"
        return _register(operand, value.operand, types, False)
    if isinstance(value, tree.Integer):
        if operand.immediate is None:
            literal = ", or a floating-point literal" if operand.float_immediate else ""
            return f"must be {wording.wanted(operand)}{literal}, not the integer {value.value}"
        return _integer(operand, value)
    if isinstance(value, tree.Float):
        return _float(operand, value)
    if isinstance(value, tree.Offset) and operand.access == "r" and not operand.selector and (types(value.base.name) or ".")[0] != ".":
        # a register plus a number, which ptxas adds up with another instruction
        return _register(operand, value.base, types, False)
    if isinstance(value, (tree.Offset, tree.Element)):
        return _variable(operand, value, types) if operand.variable else f"must be {wording.wanted(operand)}, not an address expression"
    if not isinstance(value, tree.Name):
        return f"must be {wording.wanted(operand)}, not `{wording.written(value)}`"
    if value.name == "_":
        return None if operand.sink and sinkable else f"must be {wording.wanted(operand)}: it cannot be left out with `_`"
    register, dot, word = value.name.rpartition(".")
    selected = bool(operand.selector and dot and re.fullmatch(SELECTORS[str(operand.selector)], word))
    type = _lane(register if selected else value.name, types)
    if type is None or type[0] == ".":
        return _no_register(operand, value, types)
    return None if accepts(operand, type) else f"must be {wording.wanted(operand)}; `{value.name}` is .{type}"


def _float(operand: Operand, value: tree.Float) -> str | None:
    """A floating type accepts literals of both widths, a bit type only literals of its own width."""
    if not operand.float_immediate and not (operand.immediate is not None and operand.float_ok and not operand.tag
                                           and operand.type in ("b32", "b64")):
        return f"must be {wording.wanted(operand)}, not a floating-point literal"
    bits = width(str(operand.type))
    wrong = bits != value.width and str(operand.type) not in ("f32", "f64")
    return f"takes a {bits}-bit floating-point literal (`{'0f' if bits == 32 else '0d'}...`)" if wrong else None


def _lane(name: str, types: Types) -> str | None:
    """The type of a register, or of a lane `v.x` of a vector register `v`, which has a type such as "v4.f32"."""
    type = types(name)
    vector, dot, axis = name.rpartition(".")
    if type is None and dot and axis in _AXES:
        shape, _, lane = (types(vector) or "").partition(".")
        return lane if shape[:1] == "v" else None
    return type


def _no_register(operand: Operand, value: tree.Name, types: Types) -> str | None:
    name = value.name
    if name == "WARP_SZ":
        return None if operand.immediate is not None else f"must be {wording.wanted(operand)}, not a constant"
    if name in SPECIAL:
        return f"must be {wording.wanted(operand)}; the special register `{name}` is read by `mov.{SPECIAL[name]}` first"
    return _variable(operand, value, types) if operand.variable else f"must be {wording.wanted(operand)}; `{name}` is not a register"


def _variable(operand: Operand, value: tree.Operand, types: Types) -> str | None:
    """The value must be the name of a variable in the operand's space, with an offset or without."""
    name = value.base.name if isinstance(value, (tree.Offset, tree.Element)) else value.name if isinstance(value, tree.Name) else "_"
    type = types(name)
    if name == "_" or name in SPECIAL or (name in VECTORS and type is None) or (type is not None and type[0] != "."):
        return f"must be the name of a variable, not `{wording.written(value)}`"
    return _in_space(operand, name, type)


def _in_space(operand: Operand, name: str, type: str | None, tensor: bool = False) -> str | None:
    """A variable must be in the operand's space, or in a space that a generic address of this kind can point to. `type`: its ".space"."""
    if type is None and "." in name:
        return f"must be an address; `{name}` is not one"
    spaces: tuple[str, ...] = (str(operand.space).partition("::")[0],)
    if operand.kind == "address" and not operand.space:
        opaque = tensor or operand.tag in ("texture", "sampler", "surface")
        spaces = ("global",) if opaque else ("shared",) if operand.tag == "mbarrier" else ("global", "shared", "local")
    if type is None or not spaces[0] or type[1:] in spaces:
        return None
    return f"must be in .{' or .'.join(spaces)}; `{name}` is in {type}"


def _special(operand: Operand, value: tree.Operand) -> str | None:
    if operand.negate and isinstance(value, tree.Not):
        value = value.operand
    if operand.tag == "whole" and isinstance(value, tree.Name) and value.name in VECTORS:
        return None
    if not isinstance(value, tree.Name) or value.name not in SPECIAL or operand.tag == "whole":
        return f"must be a special register, not `{wording.written(value)}`"
    bits, type = width(str(operand.type)), SPECIAL[value.name]
    read = readable(value.name, 16 if operand.tag == "half" else bits, converted=operand.tag == "converted")
    return None if read else f"is {bits} bits wide, and `{value.name}` is .{type}"


def _integer(operand: Operand, value: tree.Operand) -> str | None:
    if isinstance(value, tree.Name) and value.name == "WARP_SZ":
        value = tree.Integer(32)
    if not isinstance(value, tree.Integer):
        return f"must be an immediate, not `{wording.written(value)}`"
    allowed = operand.immediate
    bits = width(str(operand.type))
    signed = value.value - (1 << 64) if value.value >= 1 << 63 else value.value  # `~0` is unsigned and has 64 bits
    if not isinstance(allowed, Range) or within(allowed, signed if bits < 64 else value.value):
        return None
    if allowed.wraps and within(allowed, value.value & 0xFFFFFFFF):
        return None
    return f"is {value.value}; legal is {legal(allowed)}"


def cut(operand: Operand, value: tree.Integer) -> int | None:
    """What is left of a number that is wider than its operand: PTX converts it at its use. None where all of it is."""
    bits = width(str(operand.type))
    signed = value.value - (1 << 64) if value.value >= 1 << 63 else value.value
    if bits < 2 or -(1 << (bits - 1)) <= value.value < 1 << bits or -(1 << (bits - 1)) <= signed < 0:
        return None
    return value.value & (1 << bits) - 1


def _address(operand: Operand, value: tree.Operand, types: Types, tensor: bool = False) -> str | None:
    if isinstance(value, tree.Element) and operand.element:
        return _variable(operand, value, types)
    if not isinstance(value, tree.Address):
        return f"must be an address in brackets, not `{wording.written(value)}`"
    space = str(operand.space)
    if isinstance(value.base, tree.Integer):
        return None if space == "local" else "is an absolute address, which only the local space has"
    type = types(value.base.name)
    if operand.tag in ("texture", "sampler", "surface") and value.offset:
        return f"must be a {operand.tag} as it is, not `{wording.written(value)}`"
    if value.base.name == "_":
        return "must be an address, and `_` is not one"
    if value.base.name in SPECIAL and type is None:
        return f"is at the special register `{value.base.name}`"
    if type is None or type[0] == ".":
        return _in_space(operand, value.base.name, type, tensor)
    bits = width(type)
    if type[0] not in "bus" or not (bits == 64 or (bits == 32 and (operand.narrow or space in _NARROW_SPACES))):
        widths = "a 32-bit or 64-bit" if space in _NARROW_SPACES else "a 64-bit"
        return f"must be at {widths} register of bits or integers; `{value.base.name}` is .{type}"
    return None


def _vector(operand: Operand, value: tree.Operand, types: Types, tensor: bool = False) -> str | None:
    lanes = int(str(operand.count))
    if isinstance(value, tree.Name):
        shape, _, lane_type = (types(value.name) or "").partition(".")
        if shape == f"v{lanes}" and accepts(operand, lane_type):
            return None
        if operand.tag == "whole" and types(value.name) is None and readable_whole(value.name, width(str(operand.type))):
            return None
        if operand.scalar and (lanes == 1 or (operand.kind == "coordinates" and not operand.index)):
            return _register(operand, value, types)
    if operand.scalar and operand.kind == "coordinates" and not tensor and isinstance(value, tree.Integer):
        return _register(operand, value, types)
    if not isinstance(value, tree.Vector):
        return f"must be {lanes} registers in braces, not `{wording.written(value)}`"
    given = len(value.elements)
    if given != lanes and not (operand.padded and lanes < given and given in (2, 4)):
        return f"must have {lanes} lane{'s' * (lanes != 1)}, not {given}"
    lanes_of = [layer(operand) if operand.index and lane == 0 else operand for lane in range(given)]
    untyped = _untyped(operand, value, types)
    literals = operand.access == "r" and operand.type in ("b32", "b64") and all(isinstance(each, tree.Float) for each in value.elements)
    numbers = [each.width for each in value.elements if isinstance(each, tree.Float) and operand.exact and operand.type == "f32"]
    if len(numbers) == given and 64 in numbers:
        return "takes literals of 32 bits (`0f...`) when all of its lanes are literals"
    left_out = operand.open and operand.type in _INTEGERS_AMONG and tree.Name("_") in value.elements
    for lane, (element, wanted) in enumerate(zip(value.elements, lanes_of, strict=True)):
        free = wanted is operand and (_same_width(operand, element, types) if untyped else False)
        if operand.access == "r" and wanted is operand:
            free = free or _number_among(operand, element, value, types)
            free = free or (lane > 0 and _after_number(operand, element, value, types, tensor))
            free = free or (literals and operand.float_immediate and lane < given - 1)  # the last literal only has to fit
            free = free or (not tensor and isinstance(element, tree.Name) and _special_lane(operand, element.name, value, types))
        free = free or (left_out and isinstance(element, tree.Name) and types(element.name) in _INTEGERS_AMONG[str(operand.type)])
        wrong = None if free else _register(wanted, element, types)
        if wrong is not None:
            return f"{wrong} (lane {lane})"
    lane_of = next((element.name for element in value.elements if isinstance(element, tree.Name) and "." in element.name), "")
    if lane_of and any(isinstance(element, (tree.Integer, tree.Float)) for element in value.elements):
        return f"has a number and `{lane_of}`, one lane of a vector: move the lane into a register first"
    own = value.elements[1:] if operand.index else value.elements
    return _mixture(own, types, after_number=operand.access == "r" and _classes_after_number(operand, value.elements[0], tensor) != "")


def _special_lane(operand: Operand, name: str, value: tree.Vector, types: Types) -> bool:
    """Whether a special register is a lane as it is: one of the lane's width, or a predicate beside a register of 32 bits."""
    if types(name) is not None or name not in SPECIAL:
        return False
    others = [types(other.name) or "." for other in value.elements if isinstance(other, tree.Name)]
    return width({"pred": "b32"}.get(SPECIAL[name], SPECIAL[name])) == width(str(operand.type)) and (
        SPECIAL[name] != "pred" or any(type[0] in "bus" for type in others))


def _untyped(operand: Operand, value: tree.Vector, types: Types) -> bool:
    """Whether one of the lanes is a register of bits. Then all lanes count as bits."""
    own = value.elements[1:] if operand.index else value.elements
    return any(isinstance(element, tree.Name) and (types(element.name) or "") == f"b{width(str(operand.type))}" for element in own)


def _number_among(operand: Operand, element: tree.Operand, value: tree.Vector, types: Types) -> bool:
    """Whether ptxas accepts this number whatever the operand's type: an integer with integers and bits, a float with floats and bits."""
    if len(value.elements) == 1:
        if isinstance(element, tree.Float):
            return operand.type == "b32" and element.width == 32
        return isinstance(element, tree.Integer) and operand.type in ("u32", "f64")
    classes = "bus" if isinstance(element, tree.Integer) else "bf" if isinstance(element, tree.Float) else ""
    held = [types(other.name) or "." for other in value.elements if isinstance(other, tree.Name)] if classes else []
    return any(type[0] in classes and type != "f16x2" for type in held)


def _classes_after_number(operand: Operand, first: tree.Operand, tensor: bool) -> str:
    """The classes of registers that ptxas accepts in any width after a first lane that is a number. The coordinates of a copy have none."""
    if (tensor and operand.kind == "coordinates" and not operand.padded) or operand.type == "pred":
        return ""
    if isinstance(first, tree.Integer):
        return "bus" if operand.immediate is not None or operand.integer_ok or operand.padded else ""
    floating = operand.type in ("f32", "f64") and (operand.immediate is not None or operand.kind == "coordinates"
                                                 or (operand.exact and operand.type == "f64"))
    return "bf" if isinstance(first, tree.Float) and floating and operand.float_immediate else ""


def _after_number(operand: Operand, element: tree.Operand, value: tree.Vector, types: Types, tensor: bool) -> bool:
    type = types(element.name) or SPECIAL.get(element.name, ".") if isinstance(element, tree.Name) else "."
    return type[0] in _classes_after_number(operand, value.elements[0], tensor) and type != "f16x2"


def _same_width(operand: Operand, element: tree.Operand, types: Types) -> bool:
    type = types(element.name) if isinstance(element, tree.Name) else None
    return type is not None and type[0] != "." and width(type) == width(str(operand.type))


def _mixture(elements: tuple[tree.Operand, ...], types: Types, after_number: bool = False) -> str | None:
    """All lanes must have one width. Only bits mix with another type, and no integer mixes with floating-point lanes.

    `after_number`: the first lane is a number after which ptxas accepts any width.
    """
    if elements and all(element == tree.Name("_") for element in elements):
        return "leaves out every lane"
    held = [type for element in elements if isinstance(element, tree.Name) and (type := types(element.name)) is not None and type[0] != "."]
    if not after_number and len({width(type) for type in held}) > 1:
        return f"has lanes of different widths: .{', .'.join(dict.fromkeys(held))}"
    classes = {_LANE_CLASS.get(type[0], type) for type in held if type[0] != "b"}
    if len(classes) > 1:
        return f"mixes registers of different types, .{', .'.join(dict.fromkeys(held))}: only bits go with another type"
    numbers = {"integer" if isinstance(element, tree.Integer) else "float" for element in elements
               if isinstance(element, (tree.Integer, tree.Float))}
    if len(numbers) > 1 or (classes and numbers and ("integer" in classes) != ("integer" in numbers)):
        return "mixes integers with floating-point lanes"
    return None
