"""Language rules of what is declared: a module's version and target, variables, functions, and calls of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.operands import width
from .names import Scope
from .places import NOWHERE, Place, finding

NEWEST = (9, 0)
"""The newest PTX that the table was measured for."""
# The lowest .version that ptxas 13.0 takes with a .target (asked of it), and of those that it has no more what the manual says.
TARGETS = {
    "20": (2, 0), "30": (3, 0), "32": (4, 0), "35": (3, 1), "37": (4, 1), "50": (4, 0), "52": (4, 1), "53": (4, 2), "60": (5, 0),
    "61": (5, 0), "62": (5, 0), "70": (6, 0), "72": (6, 1), "75": (6, 3), "80": (7, 0), "86": (7, 1), "87": (7, 4), "88": (7, 3),
    "89": (7, 8), "90": (7, 8), "90a": (8, 0), "100": (8, 6), "100a": (8, 6), "100f": (8, 8), "101": (8, 6), "101a": (8, 6),
    "101f": (8, 8), "103": (8, 8), "103a": (8, 8), "103f": (8, 8), "110": (9, 0), "110a": (9, 0), "110f": (9, 0), "120": (8, 7),
    "120a": (8, 7), "120f": (8, 8), "121": (8, 8), "121a": (8, 8), "121f": (8, 8),
}
OPTIONS = ("debug", "texmode_unified", "texmode_independent")
PARAMETER_BYTES = 0x7FFC
"""The parameter space of an entry."""
MOST_BYTES = 64
"""A vector of the widest type."""

NUMBERS = {"maxntid": (1, 3), "reqntid": (1, 3), "reqnctapercluster": (1, 3), "minnctapersm": (1, 1), "maxnctapersm": (1, 1),
           "maxnreg": (1, 1), "maxclusterrank": (1, 1), "abi_preserve": (1, 1), "abi_preserve_control": (1, 1)}
"""How many numbers a directive takes, from and to; the others take none."""
VALUED = ("global", "const")
_Wrong = Callable[[str, str], Finding]


def known_target(name: str) -> bool:
    return name.startswith("sm_") and name[3:] in TARGETS


def header(module: tree.Module) -> Iterator[Finding]:
    """What is wrong with `.version`, `.target` and `.address_size`."""
    given = ".".join(map(str, module.version))
    if module.version > NEWEST:
        newest = ".".join(map(str, NEWEST))
        yield finding("version", f".version {given} is newer than {newest}, the newest that is known", f"write .version {newest} or lower",
                      NOWHERE, "error", "language", given, (f"up to {newest}",))
    elif module.version < (1, 0):
        yield finding("version", f"there is no PTX {given}", "write .version 8.0 or a later one", NOWHERE, "error", "language", given)
        return
    first, *others = module.target
    if not known_target(first):
        yield finding("target", f"`{first}` is no target that is known", "begin with one such as sm_90a", NOWHERE, "error", "language",
                      first, ("sm_90a", "sm_90", "sm_100a"))
    elif module.version < TARGETS[first[3:]]:
        needed = ".".join(map(str, TARGETS[first[3:]]))
        yield finding("version", f".target {first} needs PTX {needed}, and the module says .version {given}", f"write .version {needed}",
                      NOWHERE, "error", "language", first, (f"PTX {needed}",))
    for name in others:
        if name not in OPTIONS and not known_target(name):
            yield finding("target", f"`{name}` is neither a target nor an option of one", f"there are {', '.join(OPTIONS)}", NOWHERE,
                          "error", "language", name, OPTIONS)
    if module.address_size not in (None, 64) and known_target(first) and int(first[3:].rstrip("af")) >= 90:
        yield finding("target", f".address_size {module.address_size}: {first} has 64-bit addresses only", "write .address_size 64",
                      NOWHERE, "error", "language", str(module.address_size), ("64",))


# ------------------------------------------------------------------------------------------------ variables


def plain(variable: tree.Variable) -> bool:
    """Whether it declares registers of one word: with them nothing is wrong."""
    return (variable.space == "reg" and variable.vector == 1 and variable.align is None and not variable.shape and not variable.linkage
            and variable.initializer is None)


def variable(variable: tree.Variable, place: Place, *, module: bool = False) -> Iterator[Finding]:
    """What is wrong with a declaration by itself; `module`: outside of all functions."""
    name, space = variable.name, variable.space

    def wrong(sentence: str, fix: str) -> Finding:
        return finding("declaration", f"`{name}` {sentence}", fix, place, "error", "language", name)

    yield from _aligned(variable.align, wrong)
    if variable.type == "pred" and space != "reg":
        yield wrong("is a predicate, which only .reg holds", "declare it in .reg")
    if variable.vector * width(variable.type) > 128:
        yield wrong(f"is a vector of {variable.vector * width(variable.type)} bits; 128 is the most", "take fewer lanes")
    if space == "reg" and variable.shape:
        yield wrong("is an array, which no register is", f"write {name}<{variable.shape[0] or 1}> for that many registers")
    if space in ("reg", "local", "param") and module:
        yield wrong(f"is in .{space}, which only a function has", "declare it in a function")
    if space in ("sreg", "tex"):
        yield wrong(f"is in .{space}, which is no state space of a declaration any more", "textures are .global .texref")
    if variable.linkage == "common" and space != "global":
        yield wrong(f"is .common, which only a .global variable is, not one in .{space}", "leave .common out")
    if variable.initializer is not None:
        yield from _valued(variable, wrong)
    elif (None in variable.shape or 0 in variable.shape) and variable.linkage != "extern" and space not in ("param", "reg"):
        yield wrong("has no size", "say how many elements it has, or declare it .extern")


def _aligned(align: int | None, wrong: _Wrong) -> Iterator[Finding]:
    if align is not None and (align < 1 or align & (align - 1)):
        yield wrong(f"is aligned to {align}, which is no power of two", "take a power of two")


def _valued(variable: tree.Variable, wrong: _Wrong) -> Iterator[Finding]:
    value = variable.initializer
    if variable.space not in VALUED:
        yield wrong(f"has an initial value, which only .global and .const variables have, not .{variable.space}", "store it at run time")
        return
    if variable.linkage == "extern":
        yield wrong("is .extern and has an initial value", "give it where the variable is defined")
    if isinstance(value, tree.Aggregate) and not variable.type.endswith("ref"):
        lanes = (variable.vector,) if variable.vector > 1 else ()
        if not variable.shape and not lanes:
            yield wrong("is no array and has a list of values", "give one value")
        elif _too_many(value, (*variable.shape, *lanes)):
            yield wrong("has more values than elements", "leave the last ones out")
    if variable.type in ("f32", "f64") and any(isinstance(leaf, tree.Integer) for leaf in _leaves(value)):
        yield wrong(f"is .{variable.type} and has an integer as its value", "write a floating-point number")


def _too_many(value: tree.Aggregate, shape: tuple[int | None, ...]) -> bool:
    if not shape:
        return False
    if shape[0] is not None and len(value.elements) > shape[0]:
        return True
    return tree.Aggregate in set(map(type, value.elements)) and any(
        isinstance(element, tree.Aggregate) and _too_many(element, shape[1:]) for element in value.elements)


def _leaves(value: tree.Initializer | None) -> Iterator[tree.Initializer]:
    if isinstance(value, tree.Aggregate):
        for element in value.elements:
            yield from _leaves(element)
    elif value is not None:
        yield value


# ------------------------------------------------------------------------------------------------ functions


def function(function: tree.Function, before: tree.Function | None, place: Place) -> Iterator[Finding]:
    """What is wrong with a function's head; `before`: an earlier declaration of it."""
    name = function.name

    def wrong(sentence: str, fix: str) -> Finding:
        return finding("declaration", f"`{name}` {sentence}", fix, place, "error", "language", name)

    entry = function.kind == "entry"
    for parameter in (*function.returns, *function.parameters):
        yield from _aligned(parameter.align, wrong)
        if entry and parameter.space != "param":
            yield wrong(f"is an entry, and its parameter `{parameter.name}` is in .{parameter.space}", "declare it in .param")
        elif parameter.space not in ("param", "reg"):
            yield wrong(f"has the parameter `{parameter.name}` in .{parameter.space}", "declare it in .param or .reg")
        if entry and None in parameter.shape:
            yield wrong(f"is an entry, and its parameter `{parameter.name}` has no size", "say how many elements it has")
    total = sum(_bytes(parameter) for parameter in function.parameters)
    if entry and total > PARAMETER_BYTES:
        yield wrong(f"has {total} bytes of parameters; {PARAMETER_BYTES} is the most", "pass a pointer")
    if len(function.returns) > 1 and any(value.space == "param" for value in function.returns):
        yield wrong("returns several values in .param", "return one array, or registers")
    yield from _directives(function, wrong)
    if before is not None:
        if before.kind != function.kind or not _same(before.parameters, function.parameters) or not _same(before.returns, function.returns):
            yield wrong("was declared with other parameters before", "declare it once, or alike")
        elif before.linkage == "extern" and function.defined:
            yield wrong("was declared .extern, and is defined here", "leave .extern out of the declaration")


def plain_head(function: tree.Function) -> bool:
    """Whether it has parameters of one or several words only, as few as fit: with them nothing is wrong."""
    for parameter in (*function.returns, *function.parameters):
        if parameter.space != "param" or parameter.align is not None or parameter.shape:
            return False
    return not function.directives and len(function.returns) < 2 and len(function.parameters) <= PARAMETER_BYTES // MOST_BYTES


def _directives(function: tree.Function, wrong: _Wrong) -> Iterator[Finding]:
    entry = function.kind == "entry"
    given = {directive.name: directive.arguments for directive in function.directives}
    for word, arguments in given.items():
        if word == "pragma":
            continue
        allowed = word not in ("noreturn", "abi_preserve", "abi_preserve_control") if entry else (
            word in ("noreturn", "abi_preserve", "abi_preserve_control"))
        if not allowed:
            yield wrong(f"is {'an entry' if entry else 'a function'}, which has no .{word}", f"leave .{word} out")
            continue
        least, most = NUMBERS.get(word, (0, 0))
        if not least <= len(arguments) <= most:
            takes = f"{least} to {most} numbers" if least != most else f"{most} number{'s' * (most != 1)}" if most else "no number"
            yield wrong(f"has .{word} with {len(arguments)} numbers; it takes {takes}", f"give .{word} {takes}")
        elif word in ("maxntid", "reqntid") and 0 in arguments:
            yield wrong(f"has .{word} with a 0", "give numbers from 1 on")
    if "maxntid" in given and "reqntid" in given:
        yield wrong("has both .maxntid and .reqntid", "leave one of them out")
    if "blocksareclusters" in given and not {"reqntid", "reqnctapercluster"} <= given.keys():
        yield wrong("has .blocksareclusters without .reqntid and .reqnctapercluster", "give both")


def _bytes(variable: tree.Variable) -> int:
    total = variable.vector * max(width(variable.type), 8) // 8 if width(variable.type) else 8
    for extent in variable.shape:
        total *= extent or 0
    return total


def _same(one: tuple[tree.Variable, ...], other: tuple[tree.Variable, ...]) -> bool:
    return len(one) == len(other) and all(_fits(a, b) for a, b in zip(one, other, strict=True))


def _fits(given: tree.Variable, formal: tree.Variable) -> bool:
    """Whether ptxas takes one for the other: as large, as aligned, and both an array or neither. An array without size fits all."""
    if None in formal.shape or None in given.shape:
        return True
    alike = bool(given.shape) == bool(formal.shape) and (given.type == "pred") == (formal.type == "pred")
    return alike and _bytes(given) == _bytes(formal) and _alignment(given) == _alignment(formal)


def shapes(variables: Iterable[tree.Variable]) -> Hashable:
    """What of parameters or results a call depends on."""
    return tuple([(variable.type, variable.vector, variable.align, variable.shape) for variable in variables])


def _alignment(variable: tree.Variable) -> int:
    return variable.align or variable.vector * max(width(variable.type), 8) // 8


def call(name: str, wanted: tree.Function | tree.Prototype, returned: tree.Arguments | None, given: tree.Arguments | None, scope: Scope,
         place: Place) -> Iterator[Finding]:
    """What of a call does not fit the declaration of what it calls."""
    for what, operands, formals in (("result", returned, wanted.returns), ("argument", given, wanted.parameters)):
        elements = operands.elements if operands is not None else ()
        if len(elements) != len(formals):
            has = f"{len(formals)} {what}{'s' * (len(formals) != 1)}"
            yield finding("call", f"`{name}` has {has}, and {len(elements)} {'are' if len(elements) != 1 else 'is'} given",
                          f"give {has}", place, "error", "language", name, (has,))
            continue
        for element, formal in zip(elements, formals, strict=True):
            declared = scope.find(element.name) if isinstance(element, tree.Name) else None
            if declared is not None and declared.variable.space in ("reg", "param") and not _fits(declared.variable, formal):
                yield finding("call", f"`{name}` takes {_said(formal)} as its {what} `{formal.name}`; `{declared.variable.name}` is "
                              f"{_said(declared.variable)}", "declare both alike", place, "error", "language", declared.variable.name,
                              (_said(formal),))


def _said(variable: tree.Variable) -> str:
    shape = "".join("[]" if extent is None else f"[{extent}]" for extent in variable.shape)
    return f"{'' if variable.align is None else f'.align {variable.align} '}.{variable.type}{shape}"
