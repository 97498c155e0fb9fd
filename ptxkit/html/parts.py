"""Pieces of HTML for the output of a notebook's cell: escaped, without scripts, readable on light and on dark backgrounds.

Text keeps the colour that the notebook gives it, and backgrounds are translucent, so that no theme has to be known.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import PurePath

from ..grammar.errors import Finding, Position

COLOURS = """
.ptxkit{--fg:currentColor;--bg:transparent;--dim:color-mix(in srgb,currentColor 72%,transparent);
--line:rgba(127,127,127,.45);--soft:rgba(127,127,127,.13);--turn:rgba(70,120,255,.15);
--bad:#d9304f;--badsoft:rgba(217,48,79,.2);--good:#1a7f4b;--look:#a06a00;
--read:rgba(56,132,255,.3);--write:rgba(240,140,30,.4);--update:rgba(160,90,220,.36);--sync:rgba(40,170,90,.33);
--wait:rgba(127,127,127,.25);--copy:rgba(40,120,200,.42);--flight:rgba(40,120,200,.55);--late:rgba(40,120,200,.28)}
"""
"""The variables of the pages' styles, too."""
STYLE = COLOURS + """
.ptxkit{font:13px/1.45 system-ui,sans-serif;color:inherit;max-width:78rem;overflow-x:auto}
.ptxkit p{margin:.25em 0}.ptxkit p,.ptxkit summary,.ptxkit .long{overflow-wrap:anywhere}.ptxkit .long{min-width:16em}
.ptxkit .said{color:var(--dim)}.ptxkit .title{font-weight:600;font-size:1.05em}
.ptxkit code,.ptxkit pre,.ptxkit .m{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.ptxkit.ptxkit code{font-size:.95em;color:inherit;background:none;padding:0}
.ptxkit pre{font-size:12px;line-height:1.5;color:inherit;background:var(--soft);border:0;border-radius:4px;padding:.3em .6em;margin:.25em 0;
overflow-x:auto;white-space:pre}.ptxkit pre.w{white-space:pre-wrap}
.ptxkit table.t{border-collapse:collapse;border:0;margin:.3em 0;width:auto;font-size:inherit;table-layout:auto}
.ptxkit table.t td,.ptxkit table.t th{border:0;padding:.12em 1.1em .12em 0;text-align:left;vertical-align:top;max-width:none;
white-space:pre-wrap;color:inherit}
.ptxkit table.t td:first-child,.ptxkit table.t th:first-child{padding-left:.5em}
.ptxkit table.t th{font-weight:600;color:var(--dim);border-bottom:1px solid var(--line)}
.ptxkit table.t .n{text-align:right;font-variant-numeric:tabular-nums}
.ptxkit details{margin:.25em 0}.ptxkit summary{cursor:pointer;color:var(--dim)}
.ptxkit .v{display:inline-block;font-weight:600;color:#fff;background:#6b7280;border-radius:1em;padding:.05em .7em;margin-right:.4em}
.ptxkit .v.clean{background:var(--good)}.ptxkit .v.error{background:var(--bad)}.ptxkit .v.look{background:var(--look)}
.ptxkit .f{border-left:3px solid var(--line);padding-left:.7em;margin:.5em 0}
.ptxkit .f.error{border-color:var(--bad)}.ptxkit .f.review{border-color:var(--look)}
.ptxkit .f b{font-weight:600}.ptxkit .f.error b{color:color-mix(in srgb,var(--bad) 70%,currentColor)}
.ptxkit .f.review b{color:color-mix(in srgb,var(--look) 70%,currentColor)}
.ptxkit svg{display:block;max-width:none;height:auto;overflow:visible}.ptxkit svg text{fill:currentColor;font:10px ui-monospace,monospace}
"""
LONG = 40
"""Characters of a word in a table up to which it is not broken."""
SUFFIXES = frozenset((".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".c", ".cc", ".cpp", ".cxx", ".inl", ".ptx"))
"""Files that a text may name and whose lines are then shown: sources, nothing else of the machine."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}")


def framed(*parts: str, style: str = "") -> str:
    """The output of a cell. `style` are more rules, those of `scoped`: the rules of one output hold for all of a notebook."""
    kind = "ptxkit ptxkit-page" if style else "ptxkit"
    return f'<div class="{kind}"><style>{STYLE}{style}</style>{"".join(parts)}</div>'


def scoped(style: str) -> str:
    """The rules of a page's style for its parts within a cell's output: without the colours and margins of the page itself."""
    found = []
    for names, declarations in _RULE.findall(_MEDIA.sub("", style)):
        kept = [name.strip() for name in names.split(",") if name.strip() not in (":root", "body", "*")]
        if kept:
            found.append(f"{','.join(f'.ptxkit.ptxkit-page {name}' for name in kept)}{{{declarations}}}")
    return "\n".join(found)


def title(text: str) -> str:
    return f'<p class="title">{escape(text)}</p>'


def said(text: str) -> str:
    return f'<p class="said">{code(text)}</p>'


def code(text: str) -> str:
    """Escaped, with what stands between back quotes as code."""
    parts = text.split("`")
    return "".join(f"<code>{escape(part)}</code>" if i % 2 and i < len(parts) - 1 else escape(part) for i, part in enumerate(parts))


def pre(text: str, *, wrapped: bool = False) -> str:
    return f'<pre class="w">{escape(text)}</pre>' if wrapped else f"<pre>{escape(text)}</pre>"


def folded(summary: str, body: str, *, open: bool = False) -> str:
    """HTML that a click shows."""
    return f"<details{' open' if open else ''}><summary>{escape(summary)}</summary>{body}</details>"


def badge(word: str) -> str:
    """A verdict, by its colour."""
    kind = {"clean": "clean", "proven": "clean", "error": "error", "not proven": "error"}.get(word.partition(",")[0], "look")
    return f'<span class="v {kind}">{escape(word)}</span>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = (), mono: bool = False) -> str:
    """Rows of cells under a head. `numbers` are the columns that stand at the right."""
    kind = "t m" if mono else "t"
    made = [f'<table class="{kind}">']
    if any(head):
        made.append(f"<thead><tr>{''.join(_cell('th', cell, at in numbers) for at, cell in enumerate(head))}</tr></thead>")
    made.append("<tbody>")
    made += (f"<tr>{''.join(_cell('td', cell, at in numbers) for at, cell in enumerate(row))}</tr>" for row in rows)
    return "".join([*made, "</tbody></table>"])


def _cell(tag: str, cell: object, number: bool) -> str:
    text = code(cell) if isinstance(cell, str) else escape(str(cell))
    kind = "n" if number else "long" if isinstance(cell, str) and max(map(len, cell.split()), default=0) > LONG else ""
    return f'<{tag} class="{kind}">{text}</{tag}>' if kind else f"<{tag}>{text}</{tag}>"


def finding(each: Finding, more: str = "") -> str:
    """A finding with the line of the source that it is about, where that can be read."""
    where = f"{escape(str(each.position))}: " if each.position is not None else ""
    if each.position is not None and each.position.file is not None and each.ptx_line not in (None, each.position.line):
        where = f"{escape(str(each.position))} (PTX line {each.ptx_line}): "
    head, *rest = each.message.split("\n")
    lines = "".join(f"<br>{code(line.strip())}" for line in rest)
    fix = f'<p class="said">Way out: {code(each.fix)}</p>' if each.fix else ""
    return (f'<div class="f {escape(each.severity)}"><p>{where}<b>{escape(each.severity)} [{escape(each.rule)}]</b>: {code(head)}{lines}'
            f"{escape(more)}</p>{source(each.position)}{fix}</div>")


def findings(found: Iterable[tuple[Finding, str]]) -> Iterator[str]:
    """Findings, each with what is said after it."""
    for each, more in found:
        yield finding(each, more)


def source(position: Position | None) -> str:
    """The line of a source."""
    if position is None or position.file is None:
        return ""
    linecache.checkcache(position.file)
    known = position.file in linecache.cache or PurePath(position.file).suffix in SUFFIXES
    line = linecache.getline(position.file, position.line).strip() if known else ""
    return pre(f"{position.line}  {line}") if line else ""
