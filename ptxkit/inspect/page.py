"""The page of `inspect --view html`: source, PTX and machine code side by side, linked line by line, and tables. One file, no server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path, PurePath

from ..errors import Position
from ..html.parts import SUFFIXES
from .classes import CLASSES
from .facts import EntryFacts
from .panes import STRIPES, Listing, panes
from .script import SCRIPT
from .sections import Section, sections
from .shared_map import drawn
from .style import STYLE

PLACES = ("line", "where", "first PTX line")
"""The heads of columns whose cells are links to the panes."""
_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


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
    tables = [(entry, [(f"t{number}-{place}", section) for place, section in enumerate(sections(entry))])
              for number, entry in enumerate(entries)]
    shown = "".join(panes(listing))
    body = ['<div class="first">', *_header(name, entries, listing, shown), f'<main class="panes">{shown}</main>',
            *_contents(tables), "</div>",
            *_tables(name, tables, listing.lines)]
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n<link rel="icon" href="data:,">'
            f"<title>{escape(PurePath(name).name or name)}</title>\n<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body)
            + f"\n<script>{SCRIPT}</script>\n</body></html>\n")


# ------------------------------------------------------------------------------------------------ the head


def _header(name: str, entries: Sequence[EntryFacts], listing: Listing, shown: str) -> Iterator[str]:
    short = PurePath(name).name or name
    whole = f' title="{escape(name)}"' if short != name else ""
    yield f'<header><div class="top"><h1{whole}>{escape(short)}</h1>'
    yield f'<p class="facts">{_facts(entries, listing)}</p>'
    yield ('<span class="find"><input type="search" placeholder="Search  /" aria-label="search"><label title="hide the lines that '
           'do not match"><input type="checkbox" id="only">only</label><output></output></span>'
           '<button type="button" id="theme" title="light or dark">&#9680;</button></div>')
    yield (f'<div class="legend">{"".join(_legend(entries, listing, shown))}'
           '<label title="bring what the line under the mouse became into view"><input type="checkbox" id="follow">follow</label>'
           '<label title="wrap long lines"><input type="checkbox" id="wrap">wrap</label></div>')
    yield from (f'<p class="said">{escape(said)}</p>' for said in listing.said)
    yield "</header>"


def _facts(entries: Sequence[EntryFacts], listing: Listing) -> str:
    """The figures that one looks for first."""
    if len(entries) != 1:
        return f"<b>{len(entries)}</b> entries" if entries else "no entries"
    entry, found = entries[0], list[tuple[str, str]]()
    used = entry.resources
    block = entry.bounds.get("reqntid") or entry.bounds.get("maxntid")
    if block:
        threads = 1
        for extent in block:
            threads *= extent
        found.append((f"{threads:,}", "threads"))
    if used is not None:
        found += [(str(used.registers), "registers"), (f"{used.spills:,}", "bytes spilled")]
    shared = [part.bytes for part in entry.shared if not part.within and part.bytes is not None]
    if shared:
        found.append((f"{sum(shared):,}", "bytes shared"))
    if entry.counts.get("instructions"):
        found.append((f"{entry.counts['instructions']:,}", "PTX"))
    if listing.machine:
        found.append((f"{sum(line.offset is not None for line in listing.machine):,}", "SASS"))
    return " ".join(f"<span><b>{number}</b> {word}</span>" for number, word in found)


def _legend(entries: Sequence[EntryFacts], listing: Listing, shown: str) -> Iterator[str]:
    """Buttons that show only the rows of a class of instructions, of those that there are, or of a role."""
    for letter, word in CLASSES.items():
        if f'<b class="{letter}">' in shown:
            yield f'<button type="button" aria-pressed="false" data-only="{letter}"><b class="{letter}">&#9632;</b> {word}</button>'
    roles = dict.fromkeys(role.name for entry in entries for role in entry.roles)
    yield from (f'<button type="button" aria-pressed="false" data-only="{STRIPES[role]}"><b class="stripe {STRIPES[role]}"></b> '
                f"{escape(role)}</button>" for role in roles)
    if len(entries) > 1 and listing.ptx is not None:
        options = "".join(f"<option>{escape(entry.name)}</option>" for entry in entries)
        yield f'<select aria-label="entry" id="entry">{options}</select>'


# ------------------------------------------------------------------------------------------------ the tables

Tables = Sequence[tuple[EntryFacts, Sequence[tuple[str, Section]]]]


def _contents(tables: Tables) -> Iterator[str]:
    """The tables by name, at the lower edge of the first screen."""
    links = (f'<a href="#{anchor}">{escape(_capital(section.title))}</a>' for _, found in tables[:1] for anchor, section in found)
    more = f'<a href="#e1">{len(tables) - 1} more entries</a>' if len(tables) > 1 else ""
    yield f'<nav class="contents" aria-label="tables">{"".join(links)}{more}</nav>'


def _tables(name: str, tables: Tables, lines: int) -> Iterator[str]:
    for number, (entry, found) in enumerate(tables):
        yield f'<section class="tables" id="e{number}">'
        if len(tables) > 1 or entry.name != name:
            yield f"<h2>{escape(entry.name)}</h2>"
        for anchor, section in found:
            yield from _table(anchor, section, lines, drawn(entry) if section.title == "shared memory" else "")
        yield "</section>"


def _table(anchor: str, section: Section, lines: int, picture: str) -> Iterator[str]:
    count = f" <span>{len(section.rows)}</span>" if any(section.heads) and section.rows else ""
    yield f'<details id="{anchor}"><summary>{escape(_capital(section.title))}{count}</summary>{picture}'
    if section.rows:
        yield "<table>"
        right = [bool(section.heads) and all(_NUMBER.fullmatch(row[place]) for row in section.rows if row[place])
                 and any(row[place] for row in section.rows) for place in range(len(section.rows[0]))]
        kinds = [' class="n"' if each else "" for each in right]
        if any(section.heads):
            yield f"<tr>{''.join(f'<th{kind}>{escape(head)}</th>' for kind, head in zip(kinds, section.heads, strict=True))}</tr>"
        at = next((place for place, head in enumerate(section.heads) if head in PLACES), 0)
        for number, row in enumerate(section.rows):
            cells = [escape(cell) for cell in row]
            known = section.lines[number] if number < len(section.lines) else ()
            cells[at] = _places(row[at], known, lines)
            yield f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, cells, strict=True))}</tr>"
        yield "</table>"
    yield from (f'<p class="said">{escape(said)}</p>' for said in section.after)
    yield "</details>"


def _capital(title: str) -> str:
    return title if title.startswith("mbar") else title[:1].upper() + title[1:]


def _places(cell: str, known: Sequence[int | None], lines: int) -> str:
    """The cell with links to the PTX lines of the places that it names."""
    words = cell.split(", ") if len(known) > 1 else [cell]
    if len(words) != len(known):
        return escape(cell)
    return ", ".join(f'<a href="#p{line}" data-l="{line}">{escape(word) or line}</a>' if line is not None and 1 <= line <= lines
                     else escape(word) for word, line in zip(words, known, strict=True))


__all__ = ["Listing", "page", "sources"]
