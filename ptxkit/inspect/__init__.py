"""Looking at kernels: what they use and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .facts import EntryFacts
from .resources import Report, count_instructions, report

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..dsl.traced import Traced
    from ..grammar import tree


def entries(source: str | tree.Module | Kernel[Any] | Traced) -> tuple[EntryFacts, ...]:
    """The facts of PTX text, a tree or a kernel (of its default configuration, or one trace of it), without assembling it."""
    from ..check.places import Places
    from ..dsl.traced import Traceable
    from ..grammar import parse
    from ..grammar.tree import Module
    from .entry import facts

    if isinstance(source, Module):
        return facts(source, Places(source, None))
    if isinstance(source, str):
        module = parse(source)
        return facts(module, Places(module, None))
    traced = source.trace() if isinstance(source, Traceable) else source
    module, lines = traced.numbered()
    return facts(module, Places(module, lines), traced)


__all__ = ["EntryFacts", "Report", "count_instructions", "entries", "report"]
