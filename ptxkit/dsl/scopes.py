"""Names that would stand for two things in the PTX of a kernel.

PTX has one namespace for a module and one for a body, where a parameter, register, variable or label hides what the module calls so. A
name that is taken twice is refused, since an address would silently become another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import TraceError
from ..grammar import tree
from ..grammar.errors import Position
from ..grammar.walk import instructions
from .module import ModuleBuilder
from .parameters import Parameter, Record


def check_parameters(parameters: Sequence[Parameter | Record], names: Sequence[str], kernel: str, here: Position) -> None:
    """Raise if two parameters, or fields of records, are one parameter of PTX. `names` are those of Python."""
    taken: dict[str, str] = {}
    for name, words in _said(zip(names, parameters, strict=True)):
        if name in taken:
            way = ", where a field is RECORD_FIELD" if "field" in taken[name] + words else ""
            raise TraceError(f"{taken[name]} and {words} of kernel `{kernel}` are both `{name}` in PTX{way}: rename one of them", here)
        taken[name] = words


def _said(parts: Iterable[tuple[str, Parameter | Record]], path: str = "") -> Iterator[tuple[str, str]]:
    """Each PTX parameter, and what the author calls it."""
    for name, part in parts:
        if isinstance(part, Record):
            yield from _said(part.fields, f"{path}{name}.")
        else:
            yield part.name, f"{'field' if path else 'parameter'} `{path}{name}`"


def shared_functions(builders: Iterable[ModuleBuilder], kernel: str, here: Position) -> dict[str, tree.Function]:
    """The functions of the entries of a module, by name. Raises TraceError if entries call different ones by one name."""
    found: dict[str, tuple[Any, tree.Function]] = {}
    for builder in builders:
        for key, function in builder.functions.items():
            other, before = found.setdefault(function.name, (key, function))
            if other != key:
                raise TraceError(f"entries of the module of kernel `{kernel}` call two functions `{function.name}`: rename one of them",
                                 here)
            if before != function:
                raise TraceError(f"@func `{function.name}` is another function in each entry of the module of kernel `{kernel}`, as with "
                                 "shared memory of its own: give the kernels modules of their own, or write it as a plain function", here)
    return {name: function for name, (_, function) in found.items()}


def check_module(module: tree.Module, shared: Mapping[str, str], kernel: str, here: Position) -> None:
    """Raise if a name is taken twice. `shared` are the symbols of shared memory, each with its kernel."""
    outer = _outer(module, shared, kernel, here)
    for function in module.functions:
        own: dict[str, str] = {}
        for name, words, nested in _inner(function):
            where = f"of `{function.name}`"
            if not nested and name in own:
                what = f"two {words}s" if own[name] == words else f"a {own[name]} and a {words}"
                raise TraceError(f"{what} {where} are called `{name}`: rename one of them", here)
            if not nested:
                own[name] = words
            if name in shared or (outer.get(name, "").startswith("function") and _calls(function, name)):
                raise TraceError(f"a {words} {where} is called `{name}` and hides {outer[name]}: rename one of them", here)


def _outer(module: tree.Module, shared: Mapping[str, str], kernel: str, here: Position) -> dict[str, str]:
    """What each name of the module is."""
    found: dict[str, tuple[str, tree.Item]] = {}
    for item in sorted(module.items, key=lambda item: not isinstance(item, tree.Function)):
        if isinstance(item, tree.Function):
            words = f"{'kernel' if item.kind == 'entry' else 'function'} `{item.name}`"
        elif isinstance(item, tree.Variable):
            words = f"the shared memory of kernel `{shared[item.name]}`" if item.name in shared else f"variable `{item.name}`"
        else:
            continue
        before, other = found.setdefault(item.name, (words, item))
        if other is not item and not _again(other, item):
            what = f"two {words.split()[0]}s" if before == words else f"{before} and {words}"
            what = f"a variable and {words}" if item.name in shared and before == words else what
            raise TraceError(f"{what} in the module of kernel `{kernel}` are called `{item.name}`: rename one of them", here)
    return {name: words for name, (words, _) in found.items()}


def _again(one: tree.Item, other: tree.Item) -> bool:
    """Whether one of them only declares what the other defines."""
    if isinstance(one, tree.Function) and isinstance(other, tree.Function):
        return one.kind == other.kind and not (one.defined and other.defined)
    return isinstance(one, tree.Variable) and isinstance(other, tree.Variable) and "extern" in (one.linkage, other.linkage)


def _inner(function: tree.Function) -> Iterator[tuple[str, str, bool]]:
    """The names that a function itself declares, what they are, and whether braces inside it end their scope."""
    yield from ((variable.name, "parameter", False) for variable in (*function.parameters, *function.returns))
    yield from _declared(function.body or (), False)


def _declared(body: Iterable[tree.Statement], nested: bool) -> Iterator[tuple[str, str, bool]]:
    for statement in body:
        if type(statement) is tree.Instruction:
            continue
        if isinstance(statement, tree.Variable) and statement.count is None:
            yield statement.name, "register" if statement.space == "reg" else f".{statement.space} variable", nested
        elif isinstance(statement, tree.Label):
            yield statement.name, "label", nested
        elif isinstance(statement, tree.Block):
            yield from _declared(statement.body, True)


def _calls(function: tree.Function, name: str) -> bool:
    return any(each.opcode.startswith("call") and tree.Name(name) in each.operands for each in instructions(function.body or ()))


__all__ = ["check_module", "check_parameters", "shared_functions"]
