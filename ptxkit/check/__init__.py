"""Static rules: what is wrong with PTX, or not provably right, without running it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..grammar import tree
from ..grammar.errors import Finding, Position
from .found import Findings

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel
    from ..dsl.traced import Traced

Source = "str | tree.Module | Kernel[Any] | Traced"


def check(source: str | tree.Module | Kernel[Any] | Traced, *, strict: bool = False) -> Findings:
    """The findings in PTX text, a tree, a trace, or a kernel in its default configuration, by line.

    Findings of kind "language" are about the whole module. When there is no language error, each entry is also checked for "protocol". For
    a trace the rules know the shared-memory plan, the boxes of tensor maps and the Python lines. `strict` reports modifiers in another
    order than PTX's, too.
    """
    module, lines, traced = _module(source)
    return _check(module, lines, traced, strict, protocols=True)


def check_text(text: str, *, strict: bool = False, target: str | None = None, protocols: bool = True) -> Findings:
    """As `check`, for PTX text that may have syntax errors: these are findings, too. `target` replaces the module's own."""
    from ..grammar.read import parse_all
    from . import text as texts

    module, errors = parse_all(text)
    found = [Finding("syntax", error.message, "", Position(None, error.position.line, error.position.column), "language", "error",
                     error.position.line, error.position.column, "", error.expected) for error in errors]
    wrong = {(finding.ptx_line, finding.ptx_column) for finding in found}
    found += [finding for finding in texts.findings(text, module) if (finding.ptx_line, finding.ptx_column) not in wrong]
    if module is not None:
        if target is not None:
            module = replace(module, target=(target, *module.target[1:]))
        found += located(_check(module, None, None, strict, protocols=protocols and not errors), text)
    return Findings(sorted(found, key=_order))


def _check(module: tree.Module, lines: Mapping[int, Position] | None, traced: Traced | None, strict: bool, *,
           protocols: bool) -> Findings:
    from . import dropped, language
    from .places import Places

    places = Places(module, lines)
    found = [*language.findings(module, places, strict=strict), *(() if traced is None else dropped.findings(module, places, traced))]
    if protocols and not any(finding.severity == "error" and finding.rule not in language.GATES for finding in found):
        found += protocol(module, places, traced)
    return Findings(sorted(dict.fromkeys(found), key=_order))


NEVER = re.compile(r"(?!)")
REACH = 1 << 14
"""How many characters of a statement are searched for a finding's words: one long line may have ten thousand findings."""


def located(found: Iterable[Finding], text: str) -> Iterator[Finding]:
    """The findings, with language findings at the words that they are about instead of the beginning of the statement."""
    lines: list[str] | None = None
    for finding in found:
        if finding.kind != "language" or not finding.words:
            yield finding
            continue
        lines = text.split("\n") if lines is None else lines
        line, column = finding.ptx_line, finding.ptx_column
        if line is None:  # the module's head has no position of its own
            word = re.compile(r"[ \t]*\.(?:version|target|address_size)\b")
            line = next((number for number, said in enumerate(lines[:1000], 1) if word.match(said) and finding.words in said), None)
        if line is None:
            yield finding
            continue
        reach = REACH
        word = re.compile(rf"(?<![\w$%.]){re.escape(finding.words)}(?![\w$])") if len(finding.words) < REACH else NEVER
        for number in range(line, min(line + 20, len(lines) + 1)):  # a statement may go on for some lines
            said, start = lines[number - 1], max(column - 1, 0) if number == line else 0
            match = word.search(said, start, start + reach)
            match = None if match is not None and match.end() == start + reach < len(said) else match  # the word may go on
            if match is None and "@" in said[max(start - REACH, 0):start]:  # the guard stands before the opcode
                match = word.search(said, max(start - REACH, 0), start)
            if match is not None:
                line, column = number, match.start() + 1
                break
            reach -= len(said) - start
            if reach <= 0 or ";" in said[start:]:
                break
        author = finding.position is not None and finding.position.file is not None
        yield replace(finding, ptx_line=line, ptx_column=column, position=finding.position if author else Position(None, line, column))


def protocol(module: tree.Module, places: Any, traced: Traced | None = None) -> list[Finding]:
    """The protocol findings of every entry. The module has no language error."""
    from ..grammar.gc_pause import gc_pause
    from .analysis import Analysis
    from .effort import CURRENT, Effort, Exhausted
    from .families import FAMILIES
    from .places import finding
    from .program import parts

    found: list[Finding] = []
    effort = Effort()
    for number, (entry, part) in enumerate(parts(module), 1):
        stopped: list[str] = []
        with gc_pause():
            token = CURRENT.set(effort)
            try:
                analysis = Analysis(part, entry, places, traced if traced is not None and traced.name == entry.name else None)
                for family in FAMILIES:
                    try:
                        found += family.findings(analysis)
                    except Exhausted:
                        stopped += family.RULES
                        effort.go_on()
            except Exhausted:
                stopped.append("all rules")
            finally:
                CURRENT.reset(token)
        if stopped:
            others = f" The {len(module.entries) - number} entries after it are not looked at." if number < len(module.entries) else ""
            found.append(finding("unfinished", f"the rules stopped at `{entry.name}` after {effort.done} steps, the most for a text "
                                 f"of this size: what else {', '.join(stopped)} would say of it is not known.{others}",
                                 "check each kernel by itself, or a smaller one", places.of(entry.position), "review"))
            break
    return found


def _module(source: str | tree.Module | Kernel[Any] | Traced) -> tuple[tree.Module, Mapping[int, Position] | None, Traced | None]:
    from ..dsl.traced import Traceable, Traced
    from ..grammar import parse

    if isinstance(source, tree.Module):
        return source, None, None
    if isinstance(source, str):
        return parse(source), None, None
    traced = source.trace() if isinstance(source, Traceable) else source
    if not isinstance(traced, Traced):
        raise TypeError(f"check takes PTX text, a grammar.tree.Module or a kernel, not {type(source).__name__}")
    return (*traced.numbered(), traced)


def _order(finding: Finding) -> tuple[bool, int, int, str]:
    return finding.ptx_line is None, finding.ptx_line or 0, finding.ptx_column, finding.rule
