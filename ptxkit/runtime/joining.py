"""Joins several modules to one: as trees, or by the driver's linker if no module has setmaxnreg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..dsl.kernel import Kernel
from ..dsl.module import Copies
from ..dsl.parameters import Parameter
from ..dsl.traced import Traced
from ..errors import LaunchError, TraceError
from ..grammar import tree
from ..smem import SharedPlan
from ..types import TYPES, b32

if TYPE_CHECKING:
    from .compiled import Compiled

Source = Kernel[Any] | Traced | tree.Module | str


def join(sources: Sequence[Source]) -> tree.Module:
    """One module with every function and variable of `sources`: kernels (in their default configuration), traces, trees or PTX text.

    A definition replaces an `.extern` declaration, and equal declarations are merged. Two different definitions of one name are an error.
    The version is the highest of all; the target is the one that includes the others.
    """
    modules = [_module(source) for source in sources]
    if not modules:
        raise TraceError("link([...]): give at least one module")
    items: list[tree.Item] = []
    places: dict[str, int] = {}
    files: dict[Any, int] = {}
    for module in modules:
        renumbered = _files(module, files)
        for item in (_renumber(item, renumbered) for item in module.items):
            if isinstance(item, tree.Directive) and item.name == "file" and item in items:
                continue
            name = getattr(item, "name", None) if isinstance(item, tree.Variable | tree.Function) else None
            if name is None:
                items.append(item)
            elif name not in places:
                places[name] = len(items)
                items.append(item)
            else:
                items[places[name]] = _merged(items[places[name]], item)
    return tree.Module(max(m.version for m in modules), _target(modules), 64, tuple(items))


def link(sources: Sequence[Source], *, linker: bool = False) -> Linked:
    """A loadable program of several modules. With `linker` the driver's linker links them, instead of joining the trees.

    Any linker compiles relocatably, and ptxas then drops setmaxnreg. With `linker`, a module with setmaxnreg is therefore refused.
    """
    if linker:
        for source in sources:
            if _has_setmaxnreg(_module(source)):
                raise LaunchError(
                    "a module with setmaxnreg cannot go through a linker: linkers compile relocatably, ptxas then drops setmaxnreg "
                    "(C7504) and the kernel keeps too few registers; link([...]) without linker=True joins the trees")
    return Linked(join(sources), tuple(sources), linker)


class Linked:
    """Joined modules. `ptx()` is the text. `kernel(name)` loads an entry and returns it for launches."""

    def __init__(self, module: tree.Module, sources: tuple[Source, ...], linker: bool) -> None:
        self.module = module
        self._linker = linker
        self._sources = sources
        self._traced = {traced.name: traced for traced in map(_traced, sources) if traced is not None}
        self._libraries: dict[int, Any] = {}

    def ptx(self) -> str:
        from ..grammar.write import write

        return write(self.module, locs=False)

    def kernel(self, name: str, *, dynamic_smem: int = 0) -> Compiled:
        """The entry on the current device. `dynamic_smem` (in bytes) is for entries that ptxkit did not trace."""
        from . import driver
        from .compiled import Compiled, load_text

        entry = next((f for f in self.module.entries if f.name == name), None)
        if entry is None:
            raise LaunchError(f"there is no entry `{name}`: the modules have {', '.join(f.name for f in self.module.entries) or 'none'}")
        ordinal = driver.current_device()
        if ordinal not in self._libraries:
            if self._linker:
                from ..grammar.write import write

                cubin = driver.link([write(_module(source), locs=False) for source in self._sources], self.module.target[0])
                self._libraries[ordinal] = driver.load(cubin, ordinal=ordinal)
            else:
                self._libraries[ordinal] = load_text(self.ptx(), self.module.target[0], {}, ordinal)
        traced = self._traced.get(name) or described(self.module, entry, dynamic_smem)
        return Compiled(traced, ordinal, self._libraries[ordinal])


def described(module: tree.Module, entry: tree.Function, dynamic_smem: int = 0) -> Traced:
    """The launch data of an entry that ptxkit did not trace, from its declaration."""
    directives = {d.name: tuple(a for a in d.arguments if isinstance(a, int)) for d in entry.directives}
    block = directives.get("reqntid")
    cluster = (*directives.get("reqnctapercluster", (1,)), 1, 1)[:3]
    shared = SharedPlan(f"{entry.name}_smem", dynamic=True)
    if dynamic_smem:
        shared.allocate(dynamic_smem, 16, "dynamic", None)
    return Traced(entry.name, module, tuple(map(_parameter, entry.parameters)), None if block is None else (*block, 1, 1)[:3],  # type: ignore[arg-type]
                  cluster, shared, Copies(), {}, {}, _has_setmaxnreg(module))  # type: ignore[arg-type]


def _parameter(variable: tree.Variable) -> Parameter:
    if variable.type == "b8" and variable.shape == (128,) and (variable.align or 0) >= 64:
        return Parameter(variable.name, "tensormap", None)
    if variable.shape:
        raise LaunchError(f"parameter `{variable.name}` is an array of {variable.shape} {variable.type}: "
                          "only tensor maps and scalars can be passed")
    return Parameter(variable.name, "scalar", TYPES.get(variable.type, b32))


def _traced(source: Source) -> Traced | None:
    return source.trace() if isinstance(source, Kernel) else source if isinstance(source, Traced) else None


def _module(source: Source) -> tree.Module:
    if isinstance(source, tree.Module):
        return source
    if isinstance(source, str):
        from ..grammar.read import parse

        return parse(source)
    if isinstance(source, Kernel | Traced):
        return source.module() if isinstance(source, Kernel) else source.module
    raise TraceError(f"link([...]) takes kernels, traces, trees and PTX text, not {type(source).__name__}")


def _merged(old: tree.Item, new: tree.Item) -> tree.Item:
    if old == new or _declares(new):
        return old
    if _declares(old):
        return new
    raise TraceError(f"`{getattr(new, 'name', '?')}` is defined differently in two of the modules: rename one (@kernel(name=...))")


def _declares(item: tree.Item) -> bool:
    if isinstance(item, tree.Function):
        return item.body is None
    return isinstance(item, tree.Variable) and item.linkage == "extern"


def _target(modules: Sequence[tree.Module]) -> tuple[str, ...]:
    from ..dsl.module import has

    best = max((m.target for m in modules), key=lambda t: (int(t[0].strip("sm_af")), t[0].endswith("a")))
    for module in modules:
        if not has(best[0], module.target[0]):
            raise TraceError(f"modules for {best[0]} and {module.target[0]} cannot be joined: no target has both")
    return best


def _files(module: tree.Module, known: dict[Any, int]) -> dict[int, int]:
    """Maps this module's `.file` numbers to the joined module's. A file has one number there, so a @func of two modules stays one."""
    found: dict[int, int] = {}
    for item in module.items:
        if isinstance(item, tree.Directive) and item.name == "file" and isinstance(item.arguments[0], int):
            found[item.arguments[0]] = known.setdefault(item.arguments[1:], len(known) + 1)
    return found


def _renumber(item: tree.Item, files: dict[int, int]) -> tree.Item:
    if isinstance(item, tree.Directive) and item.name == "file" and isinstance(item.arguments[0], int):
        return replace(item, arguments=(files[item.arguments[0]], *item.arguments[1:]))
    if isinstance(item, tree.Function) and item.body is not None and any(old != new for old, new in files.items()):
        return replace(item, body=tuple(_renumbered(item.body, files)))
    return item


def _renumbered(body: Iterable[tree.Statement], files: dict[int, int]) -> Iterator[tree.Statement]:
    for statement in body:
        if isinstance(statement, tree.Loc):
            inlined = statement.inlined
            if inlined is not None:
                inlined = (*inlined[:2], files.get(inlined[2], inlined[2]), *inlined[3:])
            yield replace(statement, file=files.get(statement.file, statement.file), inlined=inlined)
        elif isinstance(statement, tree.Block):
            yield tree.Block(tuple(_renumbered(statement.body, files)))
        else:
            yield statement


def _has_setmaxnreg(module: tree.Module) -> bool:
    def inside(body: Iterable[tree.Statement]) -> bool:
        return any(inside(s.body) if isinstance(s, tree.Block) else getattr(s, "opcode", "").startswith("setmaxnreg") for s in body)

    return any(inside(f.body or ()) for f in module.functions)
