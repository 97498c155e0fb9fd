"""The page of `inspect --view html`: the tables, and Python | PTX | SASS side by side, linked line by line. One file, no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..errors import Position
from ..sass.listing import MachineLine
from .facts import EntryFacts
from .sections import Section, sections

SUFFIXES = frozenset((".py", ".cu", ".cuh", ".h", ".hpp", ".hh", ".c", ".cc", ".cpp", ".cxx", ".inl", ".ptx"))
"""Files that a PTX text may name and that the page then shows: sources, nothing else of the machine."""

_STYLE = """
:root{color-scheme:light dark;--line:#8883;--mark:#fd08;--dim:#8889}
body{font:14px/1.45 system-ui,sans-serif;margin:1rem}
h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.2rem 0 .3rem}
table{border-collapse:collapse;margin:.2rem 0 .6rem}td,th{padding:.1rem .7rem .1rem 0;text-align:left;vertical-align:top}
th{font-weight:600;color:var(--dim)}td{font-variant-numeric:tabular-nums}
details{margin:.15rem 0}summary{cursor:pointer;font-weight:600}
p.said{margin:.1rem 0;color:var(--dim)}
.panes{display:grid;grid-auto-columns:minmax(0,1fr);grid-auto-flow:column;gap:.6rem;height:88vh;margin-top:.6rem}
.pane{overflow:auto;border:1px solid var(--line);font:12px/1.5 ui-monospace,monospace}
.pane h3{font:600 13px system-ui,sans-serif;margin:0;padding:.25rem .5rem;position:sticky;top:0;
background:Canvas;border-bottom:1px solid var(--line)}
.pane h4{font:600 12px system-ui,sans-serif;margin:0;padding:.2rem .5rem;color:var(--dim)}
.r{white-space:pre;padding:0 .5rem}.r a{color:var(--dim);text-decoration:none;display:inline-block;min-width:3.2em;text-align:right;
margin-right:1em}.r:target,.r.on{background:var(--mark)}
"""

_SCRIPT = """
const rows=[...document.querySelectorAll('.r[data-p]')],by=new Map();
for(const r of rows)for(const p of r.dataset.p.split(' ')){if(!by.has(p))by.set(p,[]);by.get(p).push(r)}
function show(lines,from){for(const r of document.querySelectorAll('.on'))r.classList.remove('on');const seen=new Set();
for(const p of lines)for(const r of by.get(p)||[]){r.classList.add('on');const pane=r.closest('.pane');
if(!seen.has(pane)){seen.add(pane);if(pane!==from)pane.scrollTop=r.offsetTop-pane.offsetTop-pane.clientHeight/3}}}
document.addEventListener('click',e=>{const r=e.target.closest('.r[data-p]');
if(r){e.preventDefault();show(r.dataset.p.split(' '),r.closest('.pane'));return}
const a=e.target.closest('a[data-l]');
if(a){e.preventDefault();show([a.dataset.l],null);document.querySelector('.panes').scrollIntoView()}});
if(/^#p\\d+$/.test(location.hash))show([location.hash.slice(2)],null);
"""


@dataclass(frozen=True, slots=True)
class Listing:
    """What stands side by side. `ptx` is None for a cubin without PTX; `authors` are source positions by PTX line; `said` stands above."""

    ptx: str | None
    machine: tuple[MachineLine, ...]
    authors: Mapping[int, Position]
    sources: Mapping[str, str]
    said: tuple[str, ...] = ()


def sources(authors: Mapping[int, Position], near: Path | None) -> dict[str, str]:
    """The text of each file that positions name, as far as it can be read: beside the PTX, or from here."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(position.file for position in authors.values() if position.file):
        path = Path(name)
        if path.suffix not in SUFFIXES:
            continue
        for candidate in (path, *((near / path, near / path.name) if near else ()), Path(path.name)):
            try:
                if candidate.is_file():
                    found[name] = candidate.read_text(encoding="utf-8", errors="replace")
                    break
            except OSError:
                continue
    return found


def page(name: str, entries: Sequence[EntryFacts], listing: Listing) -> str:
    """The whole page."""
    body = [f"<h1>{escape(name)}</h1>", *(f'<p class="said">{escape(said)}</p>' for said in listing.said)]
    lines = listing.ptx.count("\n") + 1 if listing.ptx is not None else 0
    for entry in entries:
        body.append(f"<h2>{escape(entry.name)}</h2>")
        for section in sections(entry):
            body += _table(section, lines)
    body.append('<div class="panes">')
    body += _panes(listing)
    body.append("</div>")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<title>{escape(name)}</title>\n<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body)
            + f"\n<script>{_SCRIPT}</script>\n</body></html>\n")


def _table(section: Section, lines: int) -> Iterator[str]:
    yield f"<details open><summary>{escape(section.title)}</summary>"
    if section.rows:
        yield "<table>"
        if any(section.heads):
            yield f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in section.heads)}</tr>"
        for number, row in enumerate(section.rows):
            line = section.lines[number] if number < len(section.lines) else None
            cells = [escape(cell) for cell in row]
            if line is not None and 1 <= line <= lines:
                at = next((place for place, head in enumerate(section.heads) if head in ("line", "where")), 0)
                cells[at] = f'<a href="#p{line}" data-l="{line}">{cells[at] or line}</a>'
            yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        yield "</table>"
    yield from (f'<p class="said">{escape(said)}</p>' for said in section.after)
    yield "</details>"


def _panes(listing: Listing) -> Iterator[str]:
    known = listing.ptx.count("\n") + 1 if listing.ptx is not None else 0
    machine: dict[int, str] = {}
    for number, line in enumerate(listing.machine):
        for at in line.ptx_lines:
            machine.setdefault(at, f"s{number}")
    files = {file: index for index, file in enumerate(listing.sources)}
    if files:
        yield '<div class="pane"><h3>Source</h3>'
        for file, index in files.items():
            yield from _source(file, index, listing)
        yield "</div>"
    if listing.ptx is not None:
        yield '<div class="pane"><h3>PTX</h3>'
        for number, text in enumerate(listing.ptx.split("\n"), 1):
            to = machine.get(number) or _author(listing, number, files) or f"p{number}"
            yield f'<div class="r" id="p{number}" data-p="{number}"><a href="#{to}">{number}</a>{escape(text)}</div>'
        yield "</div>"
    if listing.machine:
        yield '<div class="pane"><h3>SASS</h3>'
        function = ""
        for number, line in enumerate(listing.machine):
            if line.function != function:
                function = line.function
                yield f"<h4>{escape(function)}</h4>"
            ptx = [str(at) for at in line.ptx_lines if at <= known]
            data, to = (f' data-p="{" ".join(ptx)}"', f"p{ptx[0]}") if ptx else ("", f"s{number}")
            place = "" if line.offset is None else f"{line.offset:04x}"
            yield f'<div class="r" id="s{number}"{data}><a href="#{to}">{place}</a>{escape(line.text)}</div>'
        yield "</div>"


def _author(listing: Listing, number: int, files: Mapping[str, int]) -> str:
    """The anchor of the source line that a PTX line comes from, "" without one."""
    author = listing.authors.get(number)
    if author is None or author.file is None or author.file not in files or author.line > listing.sources[author.file].count("\n") + 1:
        return ""
    return f"f{files[author.file]}-{author.line}"


def _source(file: str, index: int, listing: Listing) -> Iterator[str]:
    """A file's lines, those that the PTX comes from linked."""
    made: dict[int, list[int]] = {}
    for number, position in listing.authors.items():
        if position.file == file:
            made.setdefault(position.line, []).append(number)
    yield f"<h4>{escape(file)}</h4>"
    for number, text in enumerate(listing.sources[file].split("\n"), 1):
        ptx = made.get(number)
        data = f' data-p="{" ".join(map(str, ptx))}"' if ptx else ""
        to = f"p{ptx[0]}" if ptx else f"f{index}-{number}"
        yield f'<div class="r" id="f{index}-{number}"{data}><a href="#{to}">{number}</a>{escape(text)}</div>'
