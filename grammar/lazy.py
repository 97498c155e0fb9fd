"""Bodies of functions whose nodes are not built yet: what is known of them from their templates.

A `Template` is a line without what differs from one such line to the next: the numbers of registers and labels, the rest of the name of
one of the function's own parameters, and the name of a called function. `add.s32 %r7, %r5, 17;` and `add.s32 %r1, %r2, 17;` have one
template. A compiler writes forty thousand lines by a thousand templates.

`template_body(function)` gives the templates of a function whose nodes nobody has asked for. Whoever can judge a template once need not
look at each instruction. `ptxkit.check` does this for the language rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from .readers.slots import Draft, statement
from .readers.source import Source
from .tree import Function, LazyBody, Statement, Variable, stored_body

DIGITS = "0123456789"
ANY = "$$"
"""Stands in the names of a template's statements for what differs: the register `%r7` is `%r$$`."""
ANY_LABEL, ANY_PARAMETER, ANY_CALLEE = f"$L__{ANY}", f"%$P{ANY}", f"%$F{ANY}"
"""The name of any label `$L__BB...`, any parameter of the function itself, and any called function."""

LABEL = "$L__BB"
"""How the names of labels begin for which `ANY_LABEL` stands."""
LABEL_WORD, PARAMETER_WORD, CALLEE_WORD = "%\x02", "%\x03", "%\x04"
"""How the words begin that stand for such a label, for a parameter of the function itself, and for a called function, in
`TemplateBody.words`. All words begin with a percent sign, because the pattern for the words takes half of the time without a choice. No
PTX has these characters."""
LABEL_NAME = re.compile(r"\$L__BB[A-Za-z0-9_]*(?=[ \t\r]*:)")
UNREADABLE = "?"


class Template:
    """A line without what differs, and its statements.

    `braces`: the braces before and after the statements. `kind`: what the statements are: "instructions" (they declare nothing),
    "declarations", "mixed", "label", or "" for others that no rule asks for. `callees`: how many of its names are `ANY_CALLEE`.

    Only readers use the other fields. `braces` is `UNREADABLE` if the template reader does not know the line. `drafts` are the statements
    without lines. `deferred` is ".loc" or ".pragma" if the line is one whose node nobody has asked for. `cells`, `row`, `other` and
    `known` say how nodes are built (`readers.nodes`).
    """

    __slots__ = ("_statements", "braces", "callees", "cells", "deferred", "drafts", "kind", "known", "line", "other", "row")

    def __init__(self, line: str, callees: int) -> None:
        self.line = line
        self.callees = callees
        self.deferred = ""
        self._statements: tuple[Statement, ...] | None = None
        self.cells: tuple[dict[str, Any], ...] | None = None
        self.row: tuple[Any, ...] | None = None
        self.other = False
        self.known: dict[tuple[str, ...], list[Draft]] | None = None

    def become(self, braces: str, drafts: list[Draft]) -> None:
        """Sets what the line is."""
        self.braces, self.drafts = braces, drafts
        if len(drafts) == 1 and len(drafts[0]) == 4:
            self.kind = "instructions"
            return
        kinds = {_kind(draft) for draft in drafts}
        self.kind = next(iter(kinds)) if len(kinds) == 1 else "mixed" if kinds else ""

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements, with `ANY` for what differs. Their positions have no meaning."""
        if self._statements is None:
            self._statements = tuple([draft[0] if isinstance(draft[0], Variable) else statement(draft, 0) for draft in self.drafts])
        return self._statements


def _kind(draft: Draft) -> str:
    if len(draft) == 4:
        return "instructions"
    if len(draft) == 1:
        return ""
    return "label" if isinstance(draft[0], str) else "declarations"


class TemplateBody(LazyBody):
    """A body that the template reader has read. Every line of it is right; whether its names are declared is not looked at.

    - `templates`: one for each line.
    - `words`: every word of the body that begins with a percent sign, in the order of the text. Words of another kind, which `words_for`
      tells, stand for labels, parameters of the function itself and called functions.
    - `literal_words`: the words among them that are not replaced in a template: special registers, and registers without a number or
      declared one by one.
    - `brace_lines`, `call_lines`: the numbers of the templates that open or close a block, and of those that call a function by its name.
    - `parameter_prefix`: how the names of the function's own parameters begin.
    - `label_templates`: the templates of the whole text that are labels.
    - `register_names`: the names of the registers that the text declares in ranges, by what they begin with: `%r0`, `%r1` and so on.

    Only readers use the other fields. The body stands in `source` between the offsets `start` (after the opening brace) and `stop` (the
    line break before the closing brace). `following` is the next such body of the text.
    """

    __slots__ = ("_build", "brace_lines", "call_lines", "following", "label_templates", "literal_words", "nodes", "parameter_prefix",
                 "register_names", "source", "start", "stop", "templates", "words")

    def __init__(self, templates: list[Template], words: list[str], literal_words: set[str], brace_lines: list[int], call_lines: list[int],
                 parameter_prefix: str, label_templates: set[Template], register_names: dict[str, list[str]]) -> None:
        self.templates, self.words, self.literal_words = templates, words, literal_words
        self.brace_lines, self.call_lines, self.parameter_prefix = brace_lines, call_lines, parameter_prefix
        self.label_templates, self.register_names = label_templates, register_names
        self.nodes: tuple[Statement, ...] | None = None
        self.following: TemplateBody | None = None

    def within(self, source: Source, start: int, stop: int, build: Callable[[TemplateBody], None]) -> TemplateBody:
        """Says where the body stands, and what builds its nodes."""
        self.source, self.start, self.stop, self._build = source, start, stop, build
        return self

    def labels(self) -> list[str]:
        """The labels of the body for which `ANY_LABEL` stands in its templates."""
        return LABEL_NAME.findall(self.source.text, self.start, self.stop)

    def callees(self) -> list[str]:
        """The names of the functions that the body calls, one for each `ANY_CALLEE`, in the order of the text."""
        if not self.call_lines:
            return []
        return [word[len(CALLEE_WORD):] for word in self.words if word.startswith(CALLEE_WORD)]

    def words_for(self, labels: Iterable[str], parameters: Iterable[str], callees: Iterable[str]) -> list[str]:
        """The words that stand for these names in `words`: labels that `labels` gives, parameters of the function itself, functions."""
        prefix = len(self.parameter_prefix)
        return [*[LABEL_WORD + name[len(LABEL):] for name in labels], *[PARAMETER_WORD + name[prefix:] for name in parameters],
                *map(CALLEE_WORD.__add__, callees)]

    def build(self) -> tuple[Statement, ...]:
        if self.nodes is None:
            self._build(self)
            assert self.nodes is not None
        return self.nodes


def template_body(function: Function) -> TemplateBody | None:
    """The templates of a function's body, if its nodes are not built yet and the template reader has read it. Builds nothing."""
    body = stored_body(function)
    return body if isinstance(body, TemplateBody) else None
