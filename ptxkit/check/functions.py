"""Language rules of functions: heads with their directives, repeated declarations, aliases, prototypes and calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace

from ..grammar import tree
from ..grammar.errors import Finding, Severity
from ..grammar.features import FEATURES, LARGE_PARAMETERS, NEWEST
from ..grammar.special import RESERVED
from .declarations import ARGUMENT_ALIGNMENT, MOST_NUMBER, OPAQUE, Given, aligned, alignment, bytes_of, named
from .names import Scope
from .places import Place, finding

PARAMETER_BYTES, OLD_PARAMETER_BYTES = 0x7FFC, 0x1100
"""The parameter space of an entry, now and before PTX 8.1."""
MOST_BYTES = 64
"""A vector of the widest type."""
POINTED = ("", "global", "const", "local", "shared")
"""The spaces that `.ptr` may name."""

NUMBERS = {"maxntid": (1, 3), "reqntid": (1, 3), "reqnctapercluster": (1, 3), "minnctapersm": (1, 1), "maxnreg": (1, 1),
           "maxclusterrank": (1, 1), "abi_preserve": (1, 1), "abi_preserve_control": (1, 1), "explicitcluster": (0, 0),
           "blocksareclusters": (0, 0), "noreturn": (0, 0), "maxnctapersm": (1, 1)}
"""How many numbers a directive takes, from and to."""
OF_FUNCTIONS = ("noreturn", "abi_preserve", "abi_preserve_control")
"""The directives of functions; the others are those of entries."""
MOST = {"abi_preserve": 239, "abi_preserve_control": 11}
"""The highest number of sm_90a."""
_Wrong = Callable[[str, str], Finding]


def _wrong(name: str, place: Place) -> _Wrong:
    return lambda sentence, fix: finding("declaration", f"`{name}` {sentence}", fix, place, "error", "language", name)


def function(function: tree.Function, before: tree.Function | None, place: Place, given: Given) -> Iterator[Finding]:
    """What is wrong with a function's head; `before`: an earlier declaration of it."""
    wrong, entry = _wrong(function.name, place), function.kind == "entry"
    yield from named(function.name, wrong, module=True)
    for parameter in (*function.returns, *function.parameters):
        yield from _parameter(parameter, function, wrong, place, given)
    for parameter in function.parameters[:-1]:
        if None in parameter.shape and not entry:
            yield wrong(f"has the parameter `{parameter.name}` without size, and it is not the last one", "say how many elements it has")
    if entry:
        yield from _parameter_bytes(function, wrong, place, given)
    yield from _returned(function, wrong)
    if function.linkage == "common":
        yield wrong("is .common, which only a variable is", "leave .common out")
    if function.linkage == "extern" and function.defined:
        yield wrong("is .extern and has a body", "leave .extern out")
    if function.linkage == "weak":
        yield from given.lacks(".weak", place)
    yield from _directives(function, wrong, place, given)
    if before is not None:
        yield from _again(function, before, wrong)


def _parameter(parameter: tree.Variable, function: tree.Function, wrong: _Wrong, place: Place, given: Given) -> Iterator[Finding]:
    name, entry = parameter.name, function.kind == "entry"
    own = _wrong(name, place)
    yield from named(name, own)
    if name == "_":
        yield wrong("has a parameter without a name", "name it")
    yield from aligned(parameter.align, wrong, MOST_NUMBER if entry or parameter.space != "param" else ARGUMENT_ALIGNMENT)
    if entry and parameter.space != "param":
        yield wrong(f"is an entry, and its parameter `{name}` is in .{parameter.space}", "declare it in .param")
    elif parameter.space not in ("param", "reg"):
        yield wrong(f"has the parameter `{name}` in .{parameter.space}", "declare it in .param or .reg")
    if entry and (None in parameter.shape or 0 in parameter.shape):
        yield wrong(f"is an entry, and its parameter `{name}` has no size", "say how many elements it has")
    if parameter.space == "reg" and parameter.shape:
        yield wrong(f"has the parameter `{name}`, an array, which no register is", "declare it in .param")
    if len(parameter.shape) > 1:
        yield wrong(f"has the parameter `{name}` with {len(parameter.shape)} extents", "give one extent")
    if parameter.vector == 8:
        yield wrong(f"has the parameter `{name}`, a vector of 8", "take .v2 or .v4")
    elif function.defined and parameter.space == "param" and not parameter.shape and (
            parameter.vector > 1 or parameter.type == "f16x2" or (parameter.type in OPAQUE and not entry)):
        yield wrong(f"has the parameter `{name}`, a vector or texture in .param, which cannot be passed",
                    f"pass an array of {bytes_of(parameter)} .b8")
    if parameter.type == "pred" and parameter.space != "reg" and (function.defined or function.linkage != "extern"):
        yield wrong(f"has the parameter `{name}`, a predicate in .{parameter.space}", "pass a number")
    if parameter.type == "b128":
        yield from given.lacks(".b128", place)
    if parameter.type == "samplerref" and "texmode_independent" not in given.options:
        yield own("is a .samplerref, and the module's .target does not say texmode_independent", "write it after .target")
    pointer = parameter.pointer
    if pointer is not None:
        if not entry:
            yield wrong(f"is a function, and its parameter `{name}` has .ptr", "leave .ptr out, which entries have")
        if pointer.space not in POINTED:
            yield wrong(f"has the parameter `{name}`, a pointer into .{pointer.space}", "name .global, .const, .local or .shared")
        yield from aligned(pointer.align, wrong)


def _parameter_bytes(function: tree.Function, wrong: _Wrong, place: Place, given: Given) -> Iterator[Finding]:
    total = 0
    for parameter in function.parameters:
        step = alignment(parameter)
        total = (total + step - 1) // step * step + bytes_of(parameter)
    if total > PARAMETER_BYTES:
        yield wrong(f"has {total} bytes of parameters; {PARAMETER_BYTES} is the most", "pass a pointer")
    elif total > OLD_PARAMETER_BYTES:
        yield from given.lacks(f"{total} bytes of parameters", place, LARGE_PARAMETERS)


def _returned(function: tree.Function, wrong: _Wrong) -> Iterator[Finding]:
    if len(function.returns) > 1 and any(value.space == "param" for value in function.returns):
        yield wrong("returns several values in .param", "return one array, or registers")
    if any(None in value.shape or 0 in value.shape for value in function.returns):
        yield wrong("returns an array without size", "say how many elements it has")


def plain_head(function: tree.Function) -> bool:
    """Whether it has parameters of one or several words only, as few as fit: with them nothing is wrong."""
    if function.directives or len(function.returns) > 1 or len(function.parameters) > OLD_PARAMETER_BYTES // MOST_BYTES:
        return False
    for parameter in (*function.returns, *function.parameters):
        if (parameter.space != "param" or parameter.align is not None or parameter.shape or parameter.pointer is not None
                or parameter.type in ("pred", "b128", "f16x2", *OPAQUE) or parameter.vector > 1 or parameter.name in ("_", *RESERVED)):
            return False
    return function.linkage in ("", "visible") and function.name[0] != "%" and function.name not in RESERVED


# ------------------------------------------------------------------------------------------------ directives


def _directives(function: tree.Function, wrong: _Wrong, place: Place, given: Given) -> Iterator[Finding]:
    entry = function.kind == "entry"
    words = [directive.name for directive in function.directives if directive.name != "pragma"]
    for directive in function.directives:
        word, arguments = directive.name, directive.arguments
        if word == "pragma":
            if not entry:
                yield wrong("is a function, and its head has a .pragma", "write it in the body")
            continue
        if word not in NUMBERS:
            yield from _unknown(word, function, given, place)
        elif (word in OF_FUNCTIONS) == entry:
            yield wrong(f"is {'an entry' if entry else 'a function'}, which has no .{word}", f"leave .{word} out")
        else:
            yield from _numbers(word, arguments, wrong)
            if f".{word}" in FEATURES:
                yield from given.lacks(f".{word}", place)
    if entry and words and not function.defined:
        yield wrong(f"has .{words[0]} and no body", "write the directives where it is defined")
    yield from _together(words, function.returns, wrong)


def _unknown(word: str, function: tree.Function, given: Given, place: Place) -> Iterator[Finding]:
    severity: Severity = "review" if given.version > NEWEST else "error"
    yield finding("declaration", f"`{function.name}` has .{word}, which is no directive that is known", f"leave .{word} out",
                  place, severity, "language", f".{word}" if severity == "error" else function.name)


def _numbers(word: str, arguments: tuple[int | str | tree.Text, ...], wrong: _Wrong) -> Iterator[Finding]:
    least, most = NUMBERS[word]
    numbers = [number for number in arguments if isinstance(number, int)]
    if not least <= len(arguments) <= most:
        takes = f"{least} to {most} numbers" if least != most else f"{most} number{'s' * (most != 1)}" if most else "no number"
        yield wrong(f"has .{word} with {len(arguments)} numbers; it takes {takes}", f"give .{word} {takes}")
    elif any(number > MOST_NUMBER for number in numbers):
        yield wrong(f"has .{word} with {max(numbers)}, which 32 bits do not hold", "give a smaller number")
    elif word in ("maxntid", "reqntid", "minnctapersm", "maxnreg") and 0 in arguments:
        yield wrong(f"has .{word} with a 0", "give numbers from 1 on")
    elif word == "maxnctapersm":
        yield wrong("has .maxnctapersm, which PTX has not since 2.1", "write .minnctapersm")
    elif word in MOST and numbers[0] > MOST[word]:
        yield wrong(f"has .{word} {numbers[0]}; {MOST[word]} is the most", "give a smaller number")


def _together(words: list[str], returns: tuple[tree.Variable, ...], wrong: _Wrong) -> Iterator[Finding]:
    for one, other in (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank")):
        if one in words and other in words:
            yield wrong(f"has both .{one} and .{other}", "leave one of them out")
    if "blocksareclusters" in words and not {"reqntid", "reqnctapercluster"} <= {*words}:
        yield wrong("has .blocksareclusters without .reqntid and .reqnctapercluster", "give both")
    if "noreturn" in words[1:]:
        yield wrong("has .noreturn after another directive", "write it first, and once")
    if "noreturn" in words and returns:
        yield wrong("has .noreturn and a result", "leave one of them out")
    for word in ("abi_preserve", "abi_preserve_control"):
        if words.count(word) > 1:
            yield wrong(f"has .{word} twice", "give it once")


def prototype(prototype: tree.Prototype, place: Place, given: Given) -> Iterator[Finding]:
    """What is wrong with a `.callprototype`."""
    formals, returned = (tuple(replace(each, name=f"_{i}") if each.name == "_" else each for i, each in enumerate(listed))
                         for listed in (prototype.parameters, prototype.returns))
    head = tree.Function("func", prototype.label.lstrip("%") or "_", formals, returned, prototype.directives)
    yield from function(head, None, place, given)


# ------------------------------------------------------------------------------------------------ repeated declarations, aliases


def _again(function: tree.Function, before: tree.Function, wrong: _Wrong) -> Iterator[Finding]:
    if before.kind != function.kind or _differ(function, before):
        yield wrong("was declared with other parameters before", "declare it once, or alike")
    elif function.defined and before.linkage == "extern":
        yield wrong("was declared .extern, and is defined here", "leave .extern out of the declaration")
    elif before.linkage != function.linkage and (function.linkage or before.linkage == "extern"):
        was, is_ = (f".{linkage}" if linkage else "without a linkage" for linkage in (before.linkage, function.linkage))
        yield wrong(f"was declared {was} before, and is {is_} here", "declare it alike")
    elif before.defined and not function.defined:
        yield wrong("is declared after its definition", "declare it before, or not at all")


def _differ(one: tree.Function, other: tree.Function) -> str:
    """How two functions differ to a caller."""
    for what, given, wanted in (("parameters", one.parameters, other.parameters), ("results", one.returns, other.returns)):
        if len(given) != len(wanted) or any(_shape(a) != _shape(b) for a, b in zip(given, wanted, strict=True)):
            return what
    marks = [[(d.name, d.arguments) for d in function.directives if d.name in OF_FUNCTIONS] for function in (one, other)]
    return "" if marks[0] == marks[1] else "directives"


def _shape(variable: tree.Variable) -> Hashable:
    shape = tuple([None if extent == 0 else extent for extent in variable.shape])
    return variable.space, variable.type, variable.vector, shape, alignment(variable)


def alias(alias: tree.Alias, declared: dict[str, tree.Function], aliases: dict[str, str], variables: Scope, place: Place,
          given: Given) -> Iterator[Finding]:
    """What is wrong with an `.alias` of functions that are `declared` before it."""
    wrong = _wrong(alias.name, place)
    yield from given.lacks(".alias", place)
    name, target = declared.get(alias.name), declared.get(alias.target)
    if alias.name == alias.target:
        yield wrong("is an alias of itself", "name two functions")
        return
    for word, found in ((alias.name, name), (alias.target, target)):
        if variables.find(word) is not None:
            yield wrong(f"is made an alias, and `{word}` is a variable", "name functions")
            return
        if found is None:
            yield finding("undefined-name", f"`{word}` is no declared function here", "declare it before the .alias", place, "error",
                          "language", word)
            return
        if found.kind == "entry":
            yield wrong(f"is made an alias, and `{word}` is an entry", "name functions")
            return
    if name is None or target is None:
        return
    if alias.name in aliases:
        yield wrong(f"is an alias of `{aliases[alias.name]}` already", "leave one of them out")
    elif name.defined:
        yield wrong("has a body and is made an alias", "declare it without a body")
    elif target.linkage in ("weak", "extern"):
        yield wrong(f"is made an alias of `{alias.target}`, which is .{target.linkage}", "declare it .visible")
    elif differ := _differ(name, target):
        yield wrong(f"is made an alias of `{alias.target}`, which has other {differ}", "declare both alike")


# ------------------------------------------------------------------------------------------------ calls


def shapes(variables: Iterable[tree.Variable]) -> Hashable:
    """What of parameters or results a call depends on."""
    return tuple([(variable.space, variable.type, variable.vector, variable.align, variable.shape) for variable in variables])


def _fits(given: tree.Variable, formal: tree.Variable) -> bool:
    """Whether ptxas takes one for the other: as large, as aligned, and both an array or neither."""
    if None in formal.shape:
        return bool(given.shape) and given.type == formal.type and alignment(given) == alignment(formal)
    if None in given.shape:
        return True  # said where it is declared
    alike = bool(given.shape) == bool(formal.shape) and (given.type == "pred") == (formal.type == "pred")
    return alike and bytes_of(given) == bytes_of(formal) and alignment(given) == alignment(formal) and _classes(given, formal)


def _classes(given: tree.Variable, formal: tree.Variable) -> bool:
    """Bits are taken for any type; an integer and a floating-point number are not taken for each other."""
    kinds = {variable.type[0] for variable in (given, formal)}
    return "b" in kinds or "p" in kinds or not ("f" in kinds and len(kinds) > 1)


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
            if declared is None:
                continue
            variable = declared.variable
            if variable.space not in ("reg", "param"):
                yield finding("call", f"`{name}` is given `{variable.name}`, which is in .{variable.space}", "pass a register or a .param "
                              "variable", place, "error", "language", variable.name)
            elif not _fits(variable, formal):
                yield finding("call", f"`{name}` takes {_said(formal)} as its {what} `{formal.name}`; `{variable.name}` is "
                              f"{_said(variable)}", "declare both alike", place, "error", "language", variable.name, (_said(formal),))
            elif "pred" in (variable.type, formal.type):
                yield finding("call", f"`{name}` is given the predicate `{variable.name}`, which cannot be passed", "pass a number", place,
                              "error", "language", variable.name)


def _said(variable: tree.Variable) -> str:
    shape = "".join("[]" if extent is None else f"[{extent}]" for extent in variable.shape)
    return f"{'' if variable.align is None else f'.align {variable.align} '}.{variable.type}{shape}"
