"""The three panes: source, PTX and machine code, a row for each line, linked by the PTX lines that a row stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import PurePath

from ..errors import Position
from ..sass.control import Issue
from ..sass.listing import MachineLine
from . import tokens
from .facts import EntryFacts
from .roles import MMA, OTHER, PRODUCER, SETUP

HUES = 8
"""Colours of origins."""
NARROW, WIDE = 44, 76
"""Characters of a pane's rows, between which its share of the screen follows what it shows."""
GAP = 12
"""Lines without PTX, in a file that is not the kernel's own, that are folded when there are more together."""
STRIPES = {SETUP: "rs", PRODUCER: "rp", MMA: "rm", OTHER: "ro"}
"""The classes of the roles' stripes."""
_HEADS = ('<div class="heads"><u class="at" title="offset in bytes">at</u><u class="w">'
          '<u title="issue slot: cycles from the first instruction of the basic block, at the earliest">slot</u>'
          '<s title="cycles until the next instruction issues">stall</s><u title="Y: another warp may come first">Y</u> '
          '<u title="scoreboard that the result releases">W</u> <u title="scoreboard that the read of the operands releases">R</u> '
          '<u title="scoreboards that the instruction waits for">waits</u></u></div>')


_LABEL = re.compile(r"\.L_x_\d+")


@dataclass(frozen=True)
class Listing:
    """What stands side by side. `ptx` is None for a cubin without PTX; `authors` are source positions by PTX line; `said` stands above.

    `issues` are control bits by line of `machine`, or (). `own` is the file that the kernel is in, "" where that is not known.
    """

    ptx: str | None
    machine: tuple[MachineLine, ...]
    authors: Mapping[int, Position]
    sources: Mapping[str, str]
    said: tuple[str, ...] = ()
    issues: tuple[Issue | None, ...] = ()
    own: str = ""
    entries: Sequence[EntryFacts] = field(default=())

    @cached_property
    def lines(self) -> int:
        """Lines of PTX."""
        return self.ptx.count("\n") + 1 if self.ptx is not None else 0

    @cached_property
    def origins(self) -> dict[int, int]:
        """The colour of each PTX line that has an origin: that of its source line, else, where it became machine code, its own."""
        coloured = {number: (author.file, author.line) for number, author in self.authors.items() if author.file in self.sources}
        if not coloured:
            coloured = {number: (None, number) for number in sorted({at for line in self.machine for at in line.ptx_lines})}
        order = {origin: place for place, origin in enumerate(dict.fromkeys(coloured[number] for number in sorted(coloured)))}
        return {number: order[origin] % HUES for number, origin in coloured.items()}

    @cached_property
    def stripes(self) -> dict[int, tuple[str, str]]:
        """The class of a PTX line's role, and the role in words."""
        return {line: (STRIPES[role.name], f"{role.name}: {role.threads}")
                for entry in self.entries for role in entry.roles for line in role.lines}

    @cached_property
    def remarks(self) -> dict[int, list[str]]:
        """What is wrong at a PTX line: bank conflicts, and what ptxas says."""
        found: dict[int, list[str]] = {}
        for entry in self.entries:
            for each in entry.banks.conflicts if entry.banks else ():
                if each.line is not None:
                    found.setdefault(each.line, []).append(f"bank conflict: {each.passes} passes instead of {each.ideal}")
            for note in entry.notes:
                if note.line is not None:
                    found.setdefault(note.line, []).append(note.message)
        return found

    @cached_property
    def files(self) -> list[str]:
        """The sources, the kernel's own first."""
        return sorted(self.sources, key=lambda file: file != self.own)

    def shown(self, file: str) -> str:
        """The file's path from the folder that all sources are in."""
        folders = [PurePath(each).parent.parts for each in self.files]
        common = next((depth for depth, names in enumerate(zip(*folders, strict=False)) if len(set(names)) > 1), min(map(len, folders)))
        return str(PurePath(*PurePath(file).parts[common:]))

    @cached_property
    def made(self) -> dict[int, list[int]]:
        """The rows of machine code by PTX line."""
        found: dict[int, list[int]] = {}
        for number, line in enumerate(self.machine):
            for at in line.ptx_lines:
                found.setdefault(at, []).append(number)
        return found

    def anchor(self, ptx_line: int) -> str:
        """The anchor of the source line that a PTX line comes from, "" without one."""
        author = self.authors.get(ptx_line)
        text = self.sources.get(author.file) if author is not None and author.file is not None else None
        if author is None or author.file is None or text is None or author.line > text.count("\n") + 1:
            return ""
        return f"f{self.files.index(author.file)}-{author.line}"


def panes(listing: Listing) -> Iterator[str]:
    """The panes that have something to show. Each is as wide as most of its rows that are linked, and none is much wider than another."""
    found = list(_found(listing))
    for place, (name, title, more, rows, wide) in enumerate(found):
        if place:
            yield _split(found[place - 1][1])
        yield _pane(name, title, more, rows, wide)


def _found(listing: Listing) -> Iterator[tuple[str, str, str, Iterator[str], int]]:
    """Of each pane: its anchor, title, switches, rows, and its width in characters."""
    if listing.files:
        python = all(file.endswith(".py") for file in listing.files)
        lines = {file: text.split("\n") for file, text in listing.sources.items()}
        emits = [lines[at.file][at.line - 1] for at in set(listing.authors.values())
                 if at.file is not None and at.file in lines and at.line <= len(lines[at.file])]
        yield "source", "Python" if python else "Source", _picker(listing), _sources(listing), _most(emits, 13)
    if listing.ptx is not None:
        directives = _switch("loc", ".loc", "show the directives that name source lines") if ".loc" in listing.ptx else ""
        yield "ptx", "PTX", directives, _ptx(listing), _most((line for line in listing.ptx.split("\n") if ".loc" not in line), 9)
    if listing.machine:
        labels = _switch("idle", "labels", "show the labels that nothing jumps to") if _idle(listing) else ""
        yield "sass", "SASS", labels, _machine(listing), _most((line.text for line in listing.machine), 34 if listing.issues else 9)


def _switch(name: str, word: str, tip: str) -> str:
    return f'<label class="more" title="{tip}"><input type="checkbox" id="{name}">{word}</label>'


def _most(lines: Iterable[str], more: int) -> int:
    """The characters that four of five lines need, and `more` for what stands before them; within limits."""
    lengths = sorted(map(len, lines))
    return min(max(lengths[len(lengths) * 4 // 5] if lengths else 0, NARROW), WIDE) + more


def _split(title: str) -> str:
    return f'<div class="split" role="separator" aria-orientation="vertical" aria-label="width of {title}" tabindex="0"></div>'


def _pane(name: str, title: str, more: str, rows: Iterator[str], wide: int) -> str:
    return (f'<section class="pane" id="{name}" style="flex-grow:{wide}"><div class="bar"><h2>{title}</h2>{more}</div>'
            f'<div class="rows" tabindex="0" aria-label="{title}">\n{"".join(rows)}</div></section>')


def _row(anchor: str, to: str, number: str, text: str, *, ptx: Sequence[int] = (), classes: Sequence[str] = (), tip: str = "",
         more: str = "") -> str:
    data = f' data-p="{" ".join(map(str, ptx))}"' if ptx else ""
    title = f' title="{escape(tip)}"' if tip else ""
    return f'<div class="{" ".join(("r", *classes))}" id="{anchor}"{data}{title}><a href="#{to}">{number}</a>{more}{text}</div>\n'


# ------------------------------------------------------------------------------------------------ sources


def _picker(listing: Listing) -> str:
    if len(listing.files) < 2:
        return f'<span class="file">{escape(PurePath(listing.files[0]).name)}</span>'
    options = "".join(f'<option value="h{index}">{escape(PurePath(file).name)}</option>' for index, file in enumerate(listing.files))
    return f'<select aria-label="file">{options}</select>'


def _sources(listing: Listing) -> Iterator[str]:
    by_file: dict[str, dict[int, list[int]]] = {}
    for number, position in listing.authors.items():
        if position.file is not None:
            by_file.setdefault(position.file, {}).setdefault(position.line, []).append(number)
    for index, file in enumerate(listing.files):
        text, made = listing.sources[file], by_file.get(file, {})
        yield f'<h3 id="h{index}">{escape(listing.shown(file))}</h3>\n'
        lines = tokens.python(text) if file.endswith(".py") else [escape(line) for line in text.split("\n")]
        gap: list[str] = []
        for number, line in enumerate(lines, 1):
            row = _source(listing, f"f{index}-{number}", number, line, made.get(number, []))
            if number in made or file == listing.own or len(listing.files) == 1:
                yield from _folded(gap)
                gap = []
                yield row
            else:
                gap.append(row)
        yield from _folded(gap)


def _folded(rows: list[str]) -> Iterator[str]:
    if len(rows) > GAP:
        yield f'<details class="gap"><summary>{len(rows)} lines that emit nothing</summary>{"".join(rows)}</details>'
    else:
        yield from rows


def _source(listing: Listing, anchor: str, number: int, text: str, ptx: Sequence[int]) -> str:
    if not ptx:
        return _row(anchor, anchor, str(number), text, more='<u class="n"></u>')
    machine = {at for line in ptx for at in listing.made.get(line, ())}
    stripes = {stripe for line in ptx if (stripe := listing.stripes.get(line))}
    roles = {name for name, _ in stripes}
    tip = "; ".join([f"{len(ptx)} PTX, {len(machine)} SASS", *sorted({words for _, words in stripes})])
    count = f'<u class="n">{len(machine) or ""}</u>'
    classes = (f"o{listing.origins[ptx[0]]}", *(roles if len(roles) == 1 else ()))
    return _row(anchor, f"p{ptx[0]}", str(number), text, ptx=ptx, classes=classes, tip=tip, more=count)


# ------------------------------------------------------------------------------------------------ PTX and machine code


def _ptx(listing: Listing) -> Iterator[str]:
    assert listing.ptx is not None
    for number, text in enumerate(listing.ptx.split("\n"), 1):
        machine = listing.made.get(number)
        to = f"s{machine[0]}" if machine else listing.anchor(number) or f"p{number}"
        classes, tips = [], []
        if number in listing.origins:
            classes.append(f"o{listing.origins[number]}")
        if number in listing.stripes:
            classes.append(listing.stripes[number][0])
            tips.append(listing.stripes[number][1])
        if text.lstrip().startswith(".loc"):
            classes.append("loc")
        if number in listing.remarks:
            classes.append("bad")
            tips += listing.remarks[number]
        yield _row(f"p{number}", to, str(number), tokens.ptx(text), ptx=(number,), classes=classes, tip="; ".join(tips))


def _machine(listing: Listing) -> Iterator[str]:
    labels: dict[str, dict[str, str]] = {}
    for number, line in enumerate(listing.machine):
        if line.offset is None:
            labels.setdefault(line.function, {})[line.text.rstrip(":")] = f"s{number}"
    if listing.issues:
        yield _HEADS
    function, idle = "", _idle(listing)
    for number, line in enumerate(listing.machine):
        if line.function != function:
            function = line.function
            yield f"<h3>{escape(function)}</h3>\n"
        ptx = [at for at in line.ptx_lines if at <= listing.lines and number not in idle]
        stripes = {listing.stripes[at] for at in ptx if at in listing.stripes}
        classes = [f"o{listing.origins[ptx[0]]}"] if ptx and ptx[0] in listing.origins else []
        roles = {name for name, _ in stripes}
        classes += roles if len(roles) == 1 else ()
        classes += ("idle",) if number in idle else ()
        issue = listing.issues[number] if listing.issues else None
        tip = "; ".join([*sorted({words for _, words in stripes}), *([issue.control.words] if issue else [])])
        text = f"<i>{escape(line.text)}</i>" if line.offset is None else tokens.sass(line.text, labels.get(function, {}))
        place = "" if line.offset is None else f"{line.offset:04x}"
        yield _row(f"s{number}", f"p{ptx[0]}" if ptx else f"s{number}", place, text, ptx=ptx,
                   classes=classes, tip=tip, more=_control(issue) if listing.issues else "")


def _idle(listing: Listing) -> set[int]:
    """The rows of labels that no instruction of their function names."""
    named = {(line.function, name) for line in listing.machine if line.offset is not None for name in _LABEL.findall(line.text)}
    return {number for number, line in enumerate(listing.machine)
            if line.offset is None and _LABEL.fullmatch(line.text.rstrip(":")) and (line.function, line.text.rstrip(":")) not in named}


def _control(issue: Issue | None) -> str:
    if issue is None:
        return '<u class="w"></u>'
    bits = issue.control
    boards = [" " if board is None else str(board) for board in (bits.writes, bits.reads)]
    waits = "".join(str(board) if board in bits.waits else "·" for board in range(6)) if bits.waits else " " * 6
    return (f'<u class="w"><u>{issue.slot:4}</u><s style="--n:{bits.stall}">{bits.stall:2}</s>'
            f'{"Y" if bits.yields else " "} {" ".join(boards)} {waits}</u>')


__all__ = ["Listing", "panes"]
