"""Static rules: what is wrong with PTX, or not provably right, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grammar import tree
from grammar.errors import Finding, Position

if TYPE_CHECKING:
    from ..kernel import Kernel, Traced

Source = "str | tree.Module | Kernel[Any] | Traced"


def check(source: str | tree.Module | Kernel[Any] | Traced) -> tuple[Finding, ...]:
    """The findings in PTX text, a tree or a kernel (of its default configuration, or one trace of it), by line.

    Of kind "language" for all of the module, and "protocol" for each entry if the language is right. Of a trace the rules also know the
    shared-memory plan, the boxes of its tensor maps and the Python lines.
    """
    from . import language
    from .places import Places

    module, lines, traced = _module(source)
    places = Places(module, lines)
    found = list(language.findings(module, places))
    if not any(finding.severity == "error" and finding.rule not in language.GATES for finding in found):
        found += protocol(module, places, traced)
    return tuple(sorted(dict.fromkeys(found), key=_order))


def protocol(module: tree.Module, places: Any, traced: Traced | None = None) -> list[Finding]:
    """The protocol findings of every entry of a module whose language is right."""
    from .analysis import Analysis
    from .families import FAMILIES

    found: list[Finding] = []
    for entry in module.entries:
        analysis = Analysis(module, entry, places, traced if traced is not None and traced.name == entry.name else None)
        for family in FAMILIES:
            found += family.findings(analysis)
    return found


def _module(source: str | tree.Module | Kernel[Any] | Traced) -> tuple[tree.Module, Mapping[int, Position] | None, Traced | None]:
    from grammar import parse

    from ..kernel import Kernel, Traced

    if isinstance(source, tree.Module):
        return source, None, None
    if isinstance(source, str):
        return parse(source), None, None
    traced = source.trace() if isinstance(source, Kernel) else source
    if not isinstance(traced, Traced):
        raise TypeError(f"check takes PTX text, a grammar.tree.Module or a kernel, not {type(source).__name__}")
    return parse(traced.ptx(locs=True)), traced.positions(), traced


def _order(finding: Finding) -> tuple[bool, int, str]:
    return finding.ptx_line is None, finding.ptx_line or 0, finding.rule
