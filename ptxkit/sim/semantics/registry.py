"""Which function defines an instruction.

A *factory* is called once per instruction of a program, with the decoded `Op`, and returns the function that runs it. It is
registered under a dotted prefix of the opcode ("add", "mbarrier.try_wait"): the longest registered prefix wins, and among
factories of one prefix the one whose `types` hold the instruction's `.type`.

pure      `run(*sources) -> results`: registers to registers.
action    `run(fragment, mask, *sources) -> results`: touches memory, other threads or special registers. `mask` are the lanes that
          execute it (never none).
blocking  as an action; may return `BLOCKED`: the fragment sleeps, and when it is woken the same instruction is called again.

Sources come in the table's order, every parameter that is not written, those left out as None: a register as its value, of
exactly the width of the operand's type; an immediate as an int of that width; a vector as a sequence; an address as its value
(of 32 or 64 bits), offset added. Results: one per parameter that is written and present; a tuple if there are several, a sequence
for a vector. Registers that are read and written ("rw") are neither: use `op.registers(name)` and `fragment.R`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from ..program import Op

Run = Callable[..., Any]
Factory = Callable[["Op"], "Run | Inline"]


@dataclass(frozen=True, slots=True)
class Inline:
    """A pure function with a Python expression for the case that all sources are ints (predicates: bools): "({0} + {1}) & 0xFF"."""

    run: Run
    expression: str


@dataclass(frozen=True, slots=True)
class Semantics:
    kind: str
    types: frozenset[str] | None
    factory: Factory


class Blocked:
    """The type of `BLOCKED`."""

    def __repr__(self) -> str:
        return "BLOCKED"


BLOCKED: Final = Blocked()

_REGISTRY: dict[str, list[Semantics]] = {}


def _register(kind: str, prefixes: tuple[str, ...], types: str) -> Callable[[Factory], Factory]:
    def add(factory: Factory) -> Factory:
        for prefix in prefixes:
            _REGISTRY.setdefault(prefix, []).append(Semantics(kind, frozenset(types.split()) if types else None, factory))
        return factory

    return add


def pure(*prefixes: str, types: str = "") -> Callable[[Factory], Factory]:
    return _register("pure", prefixes, types)


def action(*prefixes: str, types: str = "") -> Callable[[Factory], Factory]:
    return _register("action", prefixes, types)


def blocking(*prefixes: str, types: str = "") -> Callable[[Factory], Factory]:
    return _register("blocking", prefixes, types)


def find(op: Op) -> Semantics | None:
    """The semantics of an instruction; None when the simulator does not have them."""
    tokens = op.tokens
    named = op.signature.form.effects.semantics
    prefixes = [named] if named else [".".join(tokens[:n]) for n in range(len(tokens), 0, -1)]
    type = op.bindings.get("type")
    for prefix in prefixes:
        for semantics in _REGISTRY.get(prefix, ()):
            if semantics.types is None or type in semantics.types:
                return semantics
    return None


def semantics_of(op: Op) -> Semantics:
    found = find(op)
    if found is None:
        raise UnsupportedError(f"{op.where}the simulator does not execute `{op.opcode}`")
    return found
