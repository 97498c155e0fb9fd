"""Language rules of initial values: what their symbols stand for, and how values fit the type and the shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.operands import width
from .declarations import OPAQUE, Given
from .places import Place, finding

VALUED = ("global", "const")
_Wrong = Callable[[str, str], Finding]
Meaning = Callable[[str], str]
"""What a name stands for where the value stands: a variable's space, "function", "entry", or "" for nothing that is declared yet."""


def valued(variable: tree.Variable, place: Place, given: Given, meaning: Meaning) -> Iterator[Finding]:
    """What is wrong with a variable's initial value."""
    value, name = variable.initializer, variable.name
    if value is None:
        return

    def wrong(sentence: str, fix: str) -> Finding:
        return finding("declaration", f"`{name}` {sentence}", fix, place, "error", "language", name)

    if variable.space not in VALUED:
        yield wrong(f"has an initial value, which only .global and .const variables have, not .{variable.space}", "store it at run time")
        return
    if variable.linkage == "extern":
        yield wrong("is .extern and has an initial value", "give it where the variable is defined")
    if variable.type in OPAQUE:
        if isinstance(value, tree.Aggregate) and not all(
                isinstance(element, tree.Expression) and element.operator == "=" for element in value.elements):
            yield wrong(f"is a .{variable.type} and has values without names", "name each field: addr_mode_0 = wrap")
            return
        if not isinstance(value, tree.Aggregate):
            yield wrong(f"is a .{variable.type} and has a number as its value", "leave it out")
        return
    if variable.type == "f16x2" and isinstance(value, tree.Aggregate):
        return  # of which ptxas reads nothing
    leaves = dict.fromkeys(_leaves(value))
    if variable.type in ("f16", "f16x2") and leaves:
        yield wrong(f"is .{variable.type}, of which no initial value is written", "declare it .b16 or .b32 and give its bits")
    yield from _shaped(variable, value, wrong)
    if variable.type in ("f32", "f64") and any(isinstance(leaf, tree.Integer) for leaf in leaves):
        yield wrong(f"is .{variable.type} and has an integer as its value", "write a floating-point number")
    if variable.type[0] in "us" and any(isinstance(leaf, tree.Float) for leaf in leaves):
        yield wrong(f"is .{variable.type} and has a floating-point number as its value", "write an integer")
    yield from _symbols(variable, leaves, place, given, meaning, wrong)


def _shaped(variable: tree.Variable, value: tree.Initializer, wrong: _Wrong) -> Iterator[Finding]:
    """One list for each extent, and one for the lanes of each vector, with a value for each lane."""
    lanes = (variable.vector,) if variable.vector > 1 else ()
    shape = (*variable.shape, *lanes)
    if not isinstance(value, tree.Aggregate):
        if shape:
            yield wrong("is an array or a vector and has one value without braces", "write the values in braces")
    elif not shape:
        yield wrong("is no array and has a list of values", "give one value")
    elif variable.shape and not variable.shape[0] and not value.elements:
        yield wrong("has neither a first extent nor values", "say how many elements it has")
    elif 0 not in shape:
        yield from _nested(value, shape, len(lanes), wrong)


def _nested(value: tree.Aggregate, shape: tuple[int | None, ...], lanes: int, wrong: _Wrong) -> Iterator[Finding]:
    if shape[0] is not None and len(value.elements) > shape[0]:
        yield wrong("has more values than elements", "leave the last ones out")
    elif lanes and len(shape) == 1 and len(value.elements) != shape[0]:
        yield wrong(f"is of vectors of {shape[0]} and has a list of {len(value.elements)}", "give one value for each lane")
    kinds = {*map(type, value.elements)}
    if len(shape) == 1:
        if tree.Aggregate in kinds:
            yield wrong("has lists where values are due", "leave the inner braces out")
    elif kinds - {tree.Aggregate}:
        yield wrong("has values where lists are due", "write each row in braces of its own")
    else:
        for element in value.elements:
            if isinstance(element, tree.Aggregate) and (found := [*_nested(element, shape[1:], lanes, wrong)]):
                yield found[0]
                return


def _leaves(value: tree.Initializer) -> Iterator[tree.Initializer]:
    if isinstance(value, tree.Aggregate):
        for element in value.elements:
            yield from _leaves(element)
    else:
        yield value


def _symbols(variable: tree.Variable, leaves: dict[tree.Initializer, None], place: Place, given: Given, meaning: Meaning,
             wrong: _Wrong) -> Iterator[Finding]:
    told = False
    for leaf in leaves:
        if told or not isinstance(leaf, tree.Name | tree.Expression):
            continue
        names = [*_names(leaf)]
        if not names:
            continue
        masks = [part for part in _parts(leaf) if part.operator == "mask"]
        generic = any(part.operator == "generic" for part in _parts(leaf))
        stands = meaning(names[0])
        told = True
        if not stands:
            yield finding("declaration", f"`{variable.name}` has the address of `{names[0]}`, which is not declared before", "declare it "
                          "before this variable", place, "error", "language", names[0])
        elif stands not in (*VALUED, "function", "entry"):
            yield wrong(f"has the address of `{names[0]}`, which is in .{stands}; only .global and .const addresses are known here",
                        "store it at run time")
        elif generic and stands in ("function", "entry"):
            yield wrong(f"has the generic address of `{names[0]}`, a function", "leave generic() out")
        elif stands in ("function", "entry") and not isinstance(leaf, tree.Name):
            yield wrong(f"has a place within `{names[0]}`, a function", "give the function itself")
        elif masks:
            yield from _masked(variable, masks[0], place, given, wrong)
        elif variable.type[0] != "u" or width(variable.type) < 32:
            yield wrong(f"is .{variable.type} and has an address as its value", "declare it .u64")
        else:
            told = False
    for leaf in leaves:
        if isinstance(leaf, tree.Expression) and any(part.operator == "generic" for part in _parts(leaf)):
            yield from given.lacks("generic()", place)
            return


def _masked(variable: tree.Variable, mask: tree.Expression, place: Place, given: Given, wrong: _Wrong) -> Iterator[Finding]:
    bits = mask.operands[0]
    if isinstance(bits, tree.Integer) and bits.value not in [0xFF << 8 * byte for byte in range(8)]:
        yield wrong(f"masks an address with {bits.value:#x}, which is not one byte of it", "take 0xFF, 0xFF00, and so on")
    elif variable.type not in ("u8", "u32", "u64"):
        yield wrong(f"is .{variable.type} and has a part of an address as its value", "declare it .u8")
    else:
        yield from given.lacks("a mask of an address", place)


def _parts(value: tree.Initializer) -> Iterator[tree.Expression]:
    if isinstance(value, tree.Expression):
        yield value
        for operand in value.operands:
            yield from _parts(operand)


def _names(value: tree.Initializer) -> Iterator[str]:
    if isinstance(value, tree.Name):
        yield value.name
    elif isinstance(value, tree.Expression):
        for operand in value.operands:
            yield from _names(operand)
