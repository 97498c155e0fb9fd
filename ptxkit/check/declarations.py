"""Language rules of what is declared: a module's version and target, variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..dsl.module import has
from ..grammar import tree
from ..grammar.errors import Finding
from ..grammar.features import FEATURES, NEWEST, VERSIONS, Since
from ..grammar.operands import width
from ..grammar.special import RESERVED, SPECIAL_BASES
from .places import NOWHERE, Place, finding

# The lowest .version that ptxas 13.0 takes with a .target (asked of it), and of those that it has no more what the manual says.
TARGETS = {
    "10": (1, 0), "11": (1, 0), "12": (1, 2), "13": (1, 2),
    "20": (2, 0), "30": (3, 0), "32": (4, 0), "35": (3, 1), "37": (4, 1), "50": (4, 0), "52": (4, 1), "53": (4, 2), "60": (5, 0),
    "61": (5, 0), "62": (5, 0), "70": (6, 0), "72": (6, 1), "75": (6, 3), "80": (7, 0), "86": (7, 1), "87": (7, 4), "88": (7, 3),
    "89": (7, 8), "90": (7, 8), "90a": (8, 0), "100": (8, 6), "100a": (8, 6), "100f": (8, 8), "101": (8, 6), "101a": (8, 6),
    "101f": (8, 8), "103": (8, 8), "103a": (8, 8), "103f": (8, 8), "110": (9, 0), "110a": (9, 0), "110f": (9, 0), "120": (8, 7),
    "120a": (8, 7), "120f": (8, 8), "121": (8, 8), "121a": (8, 8), "121f": (8, 8),
}
OPTIONS = ("debug", "texmode_unified", "texmode_independent")
OPAQUE = ("texref", "samplerref", "surfref")
MOST_NUMBER = (1 << 32) - 1
"""The most that an alignment, a count of registers or a directive's number may be."""
ARGUMENT_ALIGNMENT = 128
_Wrong = Callable[[str, str], Finding]


class Given(NamedTuple):
    """What a module says about itself."""

    version: tuple[int, int]
    target: str
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, module: tree.Module) -> Given:
        target = next((name.replace("compute_", "sm_") for name in module.target if known_target(name)), "sm_90a")
        return cls(module.version, target, module.target)

    def lacks(self, feature: str, place: Place, since: Since | None = None) -> Iterator[Finding]:
        """What the version or the target has not."""
        needed = since or FEATURES[feature]
        if self.version < needed.version:
            wanted, given = (".".join(map(str, version)) for version in (needed.version, self.version))
            yield finding("version", f"`{feature}` needs PTX {wanted}, and the module says .version {given}", f"write .version {wanted}",
                          place, "error", "language", feature, (f"PTX {wanted}",))
        elif needed.target and not has(self.target, needed.target):
            yield finding("target", f"`{feature}` needs {needed.target}, and the module says .target {self.target}",
                          f"write .target {needed.target}", place, "error", "language", feature, (needed.target,))


def known_target(name: str) -> bool:
    return name.startswith(("sm_", "compute_")) and name.partition("_")[2] in TARGETS


def _like(name: str) -> str:
    """The target whose number an unknown one has: ptxas takes letters behind it that it does not know. "" if there is none."""
    found = re.fullmatch(r"sm_0*(\d+)(\w*)", name)
    if found is None or found[1] not in TARGETS or (found[2][:1] in ("a", "f") and found[1] + found[2][:1] not in TARGETS):
        return ""
    return f"sm_{found[1]}"


def header(module: tree.Module) -> Iterator[Finding]:
    """What is wrong with `.version`, `.target` and `.address_size`."""
    given, newest = ".".join(map(str, module.version)), ".".join(map(str, NEWEST))
    if module.version > NEWEST:
        yield finding("version", f".version {given} is newer than {newest}, the newest that is known here: what {newest} has is judged, "
                      f"the rest is not, and a driver of CUDA 13.0 loads at most PTX {newest}",
                      f"write .version {newest} if nothing newer is used, else assemble it with the ptxas of a newer toolkit",
                      NOWHERE, "review", "language", given, (f"up to {newest}",))
    elif module.version not in VERSIONS:
        nearest = ".".join(map(str, max((version for version in VERSIONS if version < module.version), default=(8, 0))))
        taken = sum(part * scale for part, scale in zip(module.version, (10, 1), strict=True)) in {10 * x + y for x, y in VERSIONS}
        yield finding("version", f"there is no PTX {given}{', but ptxas 13.0 takes it' if taken else ''}",
                      f"write .version {nearest} or a later one", NOWHERE, "review" if taken else "error", "language", given)
        if not taken:
            return
    first, *others = module.target
    if not known_target(first):
        like = _like(first)
        like_it = f"; ptxas 13.0 takes it for {like}, perhaps with other instructions" if like else ""
        yield finding("target", f"`{first}` is no target that is known{like_it}",
                      "begin with one such as sm_90a", NOWHERE, "review" if like or module.version > NEWEST else "error", "language", first,
                      ("sm_90a", "sm_90", "sm_100a"))
    elif module.version < (lowest := TARGETS[first.partition("_")[2]]):
        needed = ".".join(map(str, lowest))
        yield finding("version", f".target {first} needs PTX {needed}, and the module says .version {given}", f"write .version {needed}",
                      NOWHERE, "error", "language", first, (f"PTX {needed}",))
    for name in others:
        if name not in OPTIONS and not known_target(name):
            yield finding("target", f"`{name}` is neither a target nor an option of one", f"there are {', '.join(OPTIONS)}", NOWHERE,
                          "error", "language", name, OPTIONS)
    if {"texmode_unified", "texmode_independent"} <= {*others}:
        yield finding("target", "`texmode_unified` and `texmode_independent` exclude each other", "leave one of them out", NOWHERE, "error",
                      "language", "texmode_independent")
    if module.address_size not in (None, 32, 64):
        yield finding("target", f".address_size {module.address_size}: there are 32 and 64", "write .address_size 64", NOWHERE, "error",
                      "language", str(module.address_size), ("32", "64"))
    elif module.address_size == 32 and known_target(first) and int(first.partition("_")[2].rstrip("af")) >= 90:
        yield finding("target", f".address_size {module.address_size}: {first} has 64-bit addresses only", "write .address_size 64",
                      NOWHERE, "error", "language", str(module.address_size), ("64",))


# ------------------------------------------------------------------------------------------------ variables


def plain(variable: tree.Variable) -> bool:
    """Whether it declares registers of one word: with them nothing is wrong."""
    return (variable.space == "reg" and variable.vector == 1 and variable.align is None and not variable.shape and not variable.linkage
            and variable.initializer is None and variable.type != "b128" and not variable.type.endswith("ref")
            and not variable.attributes and variable.name not in RESERVED and (variable.count or 0) <= MOST_NUMBER)


def variable(variable: tree.Variable, place: Place, given: Given, *, module: bool = False) -> Iterator[Finding]:
    """What is wrong with a declaration by itself, but for its initial value; `module`: outside of all functions."""
    name, space, type = variable.name, variable.space, variable.type

    def wrong(sentence: str, fix: str) -> Finding:
        return finding("declaration", f"`{name}` {sentence}", fix, place, "error", "language", name)

    yield from named(name, wrong, module=module)
    yield from aligned(variable.align, wrong)
    yield from _lanes(variable, wrong)
    if (variable.count or 0) > MOST_NUMBER:
        yield wrong(f"stands for {variable.count} registers, which 32 bits do not hold", "declare fewer")
    if type == "b128":
        yield from given.lacks(".b128", place)
    if type == "pred" and space != "reg":
        yield wrong("is a predicate, which only .reg holds", "declare it in .reg")
    if type in OPAQUE:
        yield from _opaque(variable, given, wrong, module=module)
    if space == "reg" and variable.shape:
        yield wrong("is an array, which no register is", f"write {name}<{variable.shape[0] or 1}> for that many registers")
    if space in ("reg", "local", "param") and module:
        yield wrong(f"is in .{space}, which only a function has", "declare it in a function")
    if space in ("sreg", "tex"):
        yield wrong(f"is in .{space}, which is no state space of a declaration any more", "textures are .global .texref")
    if variable.linkage == "common" and space != "global":
        yield wrong(f"is .common, which only a .global variable is, not one in .{space}", "leave .common out")
    if variable.linkage in ("weak", "common"):
        yield from given.lacks(f".{variable.linkage}", place)
    for attribute in variable.attributes:
        word = attribute.partition("(")[0]
        if word == "unified" and attribute.count(",") != 1:
            yield wrong("has the attribute .unified without two numbers", "write .unified(first, second)")
        elif space != "global":
            yield wrong(f"is in .{space} and has the attribute .{word}, which only .global variables have", f"leave .{word} out")
        else:
            yield from given.lacks(f".{word}", place)
    if space == "param" and not module:
        yield from _argument(variable, wrong)
    elif (variable.initializer is None and (None in variable.shape or 0 in variable.shape) and variable.linkage != "extern"
            and space != "reg"):
        yield wrong("has no size", "say how many elements it has, or declare it .extern")


def alike(one: tree.Variable, other: tree.Variable) -> bool:
    """Whether two declarations are of one variable: of an array one may leave the size out."""
    sizes = len(one.shape) == len(other.shape) and all(a == b or None in (a, b) for a, b in zip(one.shape, other.shape, strict=True))
    return (one.type, one.vector) == (other.type, other.vector) and sizes


def named(name: str, wrong: _Wrong, *, module: bool = False) -> Iterator[Finding]:
    """Words of PTX are no names, and nothing outside of functions has the name of a special register."""
    if name in RESERVED:
        yield wrong("is a word of PTX, so nothing can have that name", "take another name")
    elif module and name in SPECIAL_BASES:
        yield wrong("is a special register, whose name nothing outside of functions may have", "take another name")


def aligned(align: int | None, wrong: _Wrong, most: int = MOST_NUMBER) -> Iterator[Finding]:
    if align is not None and (align < 1 or align & (align - 1)):
        yield wrong(f"is aligned to {align}, which is no power of two", "take a power of two")
    elif align is not None and align > most:
        yield wrong(f"is aligned to {align}; {1 << most.bit_length() - 1} is the most", "align it to less")


def _lanes(variable: tree.Variable, wrong: _Wrong) -> Iterator[Finding]:
    """Vectors of 2 or 4 lanes and 128 bits at most, and only the first extent of an array may be open."""
    if variable.vector == 8:
        yield wrong("is a vector of 8, which only instructions have", "take .v2 or .v4")
    elif variable.vector * width(variable.type) > 128:
        yield wrong(f"is a vector of {variable.vector * width(variable.type)} bits; 128 is the most", "take fewer lanes")
    if None in variable.shape[1:]:
        yield wrong("has an extent that is not given and not the first one", "say how many elements each row has")


def _opaque(variable: tree.Variable, given: Given, wrong: _Wrong, *, module: bool) -> Iterator[Finding]:
    if variable.space != "global" or not module:
        yield wrong(f"is a .{variable.type}, which only a .global variable outside of functions is, or an entry's parameter",
                    "declare it .global, outside of functions")
    elif variable.linkage == "common":
        yield wrong(f"is a .{variable.type} and .common", "leave .common out")
    if variable.type == "samplerref" and "texmode_independent" not in given.options:
        yield wrong("is a .samplerref, and the module's .target does not say texmode_independent", "write it after .target")


def _argument(variable: tree.Variable, wrong: _Wrong) -> Iterator[Finding]:
    """A parameter of a call."""
    yield from aligned(variable.align, wrong, ARGUMENT_ALIGNMENT)
    if None in variable.shape or 0 in variable.shape:
        yield wrong("is a parameter of a call and has no size", "say how many elements it has")
    if (variable.vector > 1 or variable.type == "f16x2") and not variable.shape:
        yield wrong("is a vector in .param, which cannot be passed", f"pass an array of {bytes_of(variable)} .b8")


def bytes_of(variable: tree.Variable) -> int:
    total = variable.vector * max(width(variable.type), 8) // 8 if width(variable.type) else 8
    for extent in variable.shape:
        total *= extent or 0
    return total


def alignment(variable: tree.Variable) -> int:
    return variable.align or variable.vector * max(width(variable.type), 8) // 8 or 8
