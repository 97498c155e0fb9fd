"""Looking at kernels: what they use and what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .facts import EntryFacts
from .resources import Report, count_instructions, report

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..dsl.traced import Traced
    from ..grammar import tree
    from .sections import Entries
    from .steps import Trail


def entries(source: str | tree.Module | Kernel[Any] | Traced) -> Entries:
    """The facts of PTX text, a tree or a kernel (of its default configuration, or one trace of it), without assembling it."""
    from ..check.places import Places
    from ..dsl.traced import Traceable
    from ..grammar import parse
    from ..grammar.tree import Module
    from .entry import facts
    from .sections import Entries

    if isinstance(source, Module):
        return Entries(facts(source, Places(source, None)))
    if isinstance(source, str):
        module = parse(source)
        return Entries(facts(module, Places(module, None)))
    traced = source.trace() if isinstance(source, Traceable) else source
    module, lines = traced.numbered()
    return Entries(facts(module, Places(module, lines), traced))


def trail(source: Kernel[Any] | Traced, where: str | int | None = None) -> Trail:
    """What lines of a kernel's source became: their PTX and their machine code.

    `where` is the number of a line, or a part of its text; without it, all lines that emit. Without ptxas there is no machine code.
    """
    from ..dsl.traced import Traceable
    from .steps import followed

    return followed(source.trace() if isinstance(source, Traceable) else source, where)


__all__ = ["EntryFacts", "Report", "count_instructions", "entries", "report", "trail"]
