"""The author's names of registers and shared memory, for a debugger: what the names in the code held while a kernel was traced.

A trace sees no assignment. This traces a kernel once more with a trace function of Python, which looks at the names of the author's
functions at each line. Nothing of what is emitted depends on it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..smem import MBarriers, Shared, SharedAddress, Tile
from ..types import ScalarType
from .carried import Carried
from .reg import Ptr, Reg, Vec
from .source import outside

if TYPE_CHECKING:
    from .kernel import Kernel

DEPTH = 3
"""How deep lists, dicts and attributes are looked into."""


@dataclass(frozen=True, slots=True)
class Names:
    """`registers`: (PTX function, register) to its names, the oldest first. `types`: the type that the author sees. `places`: from the
    offset of a tile, an array or mbarriers in the shared-memory plan to its name.
    """

    registers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    types: dict[tuple[str, str], ScalarType] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)

    def bound(self, path: str, value: Any) -> None:
        """A name held the value at some line."""
        if isinstance(value, Reg):
            key = value.builder.name, value.name
            names = self.registers.setdefault(key, [])
            if path not in names:
                names.append(path)
            self.types.setdefault(key, value.type)
        elif isinstance(value, Ptr):
            if not value.offset:
                self.bound(path, value.reg)
        elif isinstance(value, Tile | MBarriers) or (isinstance(value, Shared) and value.dynamic is None):
            self.places.setdefault(value.offset, path)


def names_of(kernel: Kernel[...], config: Mapping[str, Any]) -> Names:
    """Trace the kernel for a full configuration and look."""
    found = Names()
    before = sys.gettrace()
    sys.settrace(_Watch(found).call)
    try:
        kernel.retrace(config)
    finally:
        sys.settrace(before)
    return found


class _Watch:
    """The trace function: at each line of the author's functions it looks at what names have been bound to since."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.held: dict[int, dict[str, Any]] = {}

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module in sys.stdlib_module_names or not outside(frame.f_code.co_filename) or _generated(module, frame.f_code):
            return None
        self.held[id(frame)] = {}
        return self.line

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        held = self.held.get(id(frame))
        if held is not None and event in ("line", "return"):
            self._look(frame, held)
        if event == "return":
            self.held.pop(id(frame), None)
        return self.line

    def _look(self, frame: FrameType, held: dict[str, Any]) -> None:
        for name, value in frame.f_locals.items():
            if held.get(name) is value and isinstance(value, Reg | Ptr | Vec | SharedAddress | int | str | float):
                continue
            held[name] = value
            for path, each in _within(name, value, DEPTH):
                self.names.bound(path, each)


def _generated(module: str, code: CodeType) -> bool:
    """Whether it is the function that Python writes to make a named tuple or a dataclass: its names are no author's."""
    return module.startswith("namedtuple_") or (code.co_filename == "<string>" and code.co_name == "__init__")


def _within(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The registers and places that a value is or has in it, with their paths."""
    if isinstance(value, Reg | Ptr | Tile | MBarriers | Shared):
        yield path, value
    elif isinstance(value, Vec | list | tuple):
        for i, each in enumerate(value):
            if depth:
                yield from _within(f"{path}[{i}]", each, depth - 1)
    elif isinstance(value, Carried):
        for name, slot in value.__dict__["_carried"].items():
            for i, reg in enumerate(slot.regs):
                yield f"{path}.{name}" + (f"[{i}]" if isinstance(slot.like, Vec) else ""), reg
        yield from _attributes(path, value, depth)
    elif isinstance(value, dict):
        for key, each in value.items():
            if depth:
                yield from _within(f"{path}[{key!r}]", each, depth - 1)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _attributes(path, value, depth)


def _attributes(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for name, each in vars(value).items() if depth else ():
        if not name.startswith("_"):
            yield from _within(path if name == "reg" else f"{path}.{name}", each, depth - 1)


__all__ = ["Names", "names_of"]
