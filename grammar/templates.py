"""Bodies that are read without making their nodes, by templates: lines without the numbers of their registers and labels.

In a template `%r12` is `%r#`, `$L__BB0_3` is `$L__#`, a function's own parameter `f_param_2` is `%$P#`, and the name of a function that
is called `%$F#`. Whether a line is PTX does not depend on such names, and a compiler writes forty thousand lines by a thousand templates.
Each of these is read once in a text; a body is right if all of its lines have one that is. What is taken away are whole words only. A
body with a line that is not plain is left to be read statement by statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress, count, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .blanks import DEPTH
from .bodies import PRAGMA
from .columns import COMMENT, LOCATIONS, Columns, Entry, Part
from .special import SPECIAL
from .tree import Statement, Unmade
from .words import BLANKS, Words, ranges

if TYPE_CHECKING:
    from .read import Lines

# Labels, parameters and what is called begin with a percent sign, too, while words are looked for, which takes half of the time of a
# pattern with a choice; behind it they have a sign that a text with such words has not.
LABEL, FOUND, PARAMETER, CALLED = "$L__BB", "%\x02", "%\x03", "%\x04"
WORD = re.compile(r"(%[A-Za-z0-9_\x02\x03\x04]++)")
PART = re.compile(r"[A-Za-z0-9_$%#](?:\$L__#|%\$[PF]#)|#\$")  # not a whole word
LONGER = re.compile(r"%[A-Za-z0-9_]+\$")  # a word that goes on
W = r"[ \t\r\n]*+"
TOLD = re.compile(r"//[^\n]*")
TARGET = re.compile(r"\$L__BB[A-Za-z0-9_]*(?=[ \t\r]*:)")
ALONE = re.compile(r"\.reg\b[^;<%]*+(%[^;<]*+);")
CALL = re.compile(rf"call(?<![A-Za-z0-9_$%.]call)(?:\.uni)?(?=[ \t\r\n(])(?:{W}(?:\([^();/]*+\){W},{W})?"
                  rf"(?!WARP_SZ)([A-Za-z][A-Za-z0-9_]*+|_[A-Za-z0-9_]++)(?={W}[,;]))?[^;/]*;")
DIGITS = "0123456789"
LABEL_HOLE, PARAMETER_HOLE, CALLED_HOLE = "$L__#", "%$P#", "%$F#"
ANY = "$$"
ANY_LABEL, ANY_PARAMETER, ANY_CALLED = f"$L__{ANY}", f"%$P{ANY}", f"%$F{ANY}"
ODD = "?"
SIGNS, CALLING = attrgetter("signs"), attrgetter("calls")


class Template:
    """A line without numbers, and the statements that it is with `ANY` for each.

    `signs`: the braces around, or `ODD` if the line is not plain. `sort`: `i` statements that declare nothing, `=` declarations alone,
    `m` both, `:` a label, or nothing that a rule would ask for. `calls`: how many holes it has for what is called. `later`: what it is
    whose node nobody has asked for, `.loc` or `.pragma`. `cells`, `row`, `other` and `known` are how nodes are made (`making`).
    """

    __slots__ = ("calls", "cells", "known", "later", "line", "other", "parts", "row", "signs", "sort")

    def __init__(self, line: str) -> None:
        self.line = line
        self.calls = line.count(CALLED_HOLE)
        self.later = ""
        self.cells: tuple[dict[str, Any], ...] | None = None
        self.row: tuple[Any, ...] | None = None
        self.other = False
        self.known: dict[tuple[str, ...], list[Part]] | None = None

    def be(self, signs: str, parts: list[Part]) -> None:
        self.signs, self.parts = signs, parts
        if len(parts) == 1 and len(parts[0]) == 4:
            self.sort = "i"
            return
        kinds = {"i" if len(part) == 4 else "" if len(part) == 1 else ":" if isinstance(part[0], str) else "=" for part in parts}
        self.sort = next(iter(kinds)) if len(kinds) == 1 else "m" if kinds else ""


class Holes(dict[str, str]):
    """What stands for a word that begins with a percent sign in a template."""

    def __init__(self, text: str) -> None:
        self.kept: set[str] = set()  # those for which nothing else stands
        self.names: dict[str, list[str]] = {}  # of the registers of ranges, from the first on
        for stem, words in ranges(text, {}):
            self.names.setdefault(stem, []).extend(words)
            if stem[0] == "%" and stem[-1] not in DIGITS and SPECIAL.keys().isdisjoint(words):
                self.update(zip(words, repeat(f"{stem}#")))

    def __missing__(self, word: str) -> str:
        stem = word.rstrip(DIGITS)
        if word.startswith(FOUND):
            found = LABEL_HOLE
        elif word.startswith(PARAMETER):
            found = PARAMETER_HOLE
        elif word.startswith(CALLED):
            found = CALLED_HOLE
        elif stem == word or word in SPECIAL:
            found = word
            self.kept.add(word)
        else:
            found = stem + "#"
        self[word] = found
        return found


class Plain(Unmade):
    """A body that is right and of which no node has been made.

    `braces`: the numbers of the templates that open or close a block, `calls`: of those with holes for what is called. `words`: all that
    begin with a percent sign, but labels, parameters and what is called as they are found; nothing stands for those in `kept`. The text is
    from behind the opening brace, `at`, up to the line break before the closing one.
    """

    __slots__ = ("at", "braces", "calls", "following", "kept", "nodes", "parameters", "reading", "stop", "templates", "words")

    def __init__(self, templates: list[Template], braces: list[int], calls: list[int], words: list[str], kept: set[str],
                 parameters: str) -> None:
        self.templates, self.braces, self.calls, self.words = templates, braces, calls, words
        self.kept, self.parameters = kept, parameters
        self.nodes: tuple[Statement, ...] | None = None
        self.following: Plain | None = None

    def within(self, reading: Lines, at: int, stop: int) -> Plain:
        self.reading, self.at, self.stop = reading, at, stop
        return self

    def targets(self) -> list[str]:
        """The labels that stand in the body, of those for which there are holes."""
        return TARGET.findall(self.reading.text, self.at, self.stop)

    def made(self) -> tuple[Statement, ...]:
        if self.nodes is None:
            self.reading.maker.make(self)
            assert self.nodes is not None
        return self.nodes


class Templates(dict[str, Template]):
    """The templates that a text has been found to have."""

    def __init__(self, text: str) -> None:
        self.holes = Holes(text)
        self.columns = Columns("", [], [], Words())
        self.fresh: list[Template] = []
        self.signed: set[Template] = set()
        self.labels: set[Template] = set()
        self.told = "%" in "".join(TOLD.findall(text[:10_000]))  # whether comments have words: the first ones tell for most texts

    def __missing__(self, line: str) -> Template:
        """A template to be learned, or that of the line without its comment."""
        bare = COMMENT.sub("", line) if "//" in line else line
        if bare != line:
            self.told = self.told or "%" in line[len(bare):] or "#" in line[len(bare):]
            found = self[line] = self[bare]
            return found
        found = self[line] = Template(line)
        self.fresh.append(found)
        return found

    def body(self, text: str, parameters: str) -> Plain | None:
        """The body whose lines these are, if all of them are plain. `parameters`: how the names of the function's own begin."""
        told = self.told
        if told:
            text = COMMENT.sub("", text)
        if "#" in text or "\x02" in text or "\x03" in text or "\x04" in text:
            return None
        calling = "call" in text
        if calling:
            text = CALL.sub(_in_line, text)
        holes = self.holes
        alone = {word: word for words in ALONE.findall(text) for word in WORD.findall(words) if word[-1].isdigit()}
        others = {word: holes[word] for word in alone}
        holes.update(alone)
        pieces = WORD.split(text.replace(LABEL, FOUND).replace(parameters, PARAMETER))
        words = pieces[1::2]
        pieces[1::2] = map(holes.__getitem__, words)
        holes.update(others)
        templates = list(map(self.__getitem__, "".join(pieces).split("\n")))
        if self.fresh:
            self._learn()
        if self.told is not told:
            return self.body(text, parameters)
        braces: list[int] = []
        if not self.signed.isdisjoint(templates):
            signs = list(map(SIGNS, templates))
            braces = list(compress(count(), signs))
            if not _closed(filter(None, signs)):
                return None
        calls = list(compress(count(), map(CALLING, templates))) if calling else []
        return Plain(templates, braces, calls, words, holes.kept.union(alone), parameters)

    def _learn(self) -> None:
        """Reads the lines that are new, all at once."""
        lines: dict[Template, str] = {}
        locations: list[Template] = []
        for template in self.fresh:
            line = template.line
            if ANY in line or ("#" in line and PART.search(line) is not None) or ("$" in line and LONGER.search(line) is not None):
                template.be(ODD, [])
            elif "#" not in line and line.lstrip(BLANKS)[:4] == ".loc":
                locations.append(template)
            else:
                lines[template] = line.replace("#", ANY)
        if LOCATIONS.fullmatch("\n".join([template.line for template in locations])) is not None:
            for template in locations:
                template.later = ".loc"
                template.be("", [])
        else:
            lines.update({template: template.line for template in locations})
        columns = self.columns
        if lines:
            columns.learn(list(lines.values()))
        for template, line in lines.items():
            row = columns.rows[line]
            entry = Entry("", [row]) if row is not None else columns.entries[line]
            if entry is not None:
                template.be(entry.signs, entry.parts)
            elif PRAGMA.fullmatch(line.strip(BLANKS)) is not None:
                template.later = ".pragma"
                template.be("", [])
            else:
                template.be(ODD, [])
        self.signed.update([template for template in self.fresh if template.signs])
        self.labels.update([template for template in self.fresh if template.sort == ":"])
        columns.rows.clear()
        columns.entries.clear()
        self.fresh = []


def _in_line(match: re.Match[str]) -> str:
    """A call, which goes on behind its line, in one, and with the sign of what is called; what stands in a comment is none."""
    text, begin, name = match.string, match.start(), match.start(1)
    if "//" in text[text.rfind("\n", 0, begin) + 1:begin]:
        return match[0]
    call = match[0] if name < 0 else text[begin:name] + CALLED + text[name:match.end()]
    return call.replace("\n", " ")


def _closed(braces: Iterable[str]) -> bool:
    """Whether these signs are braces, each is closed, and none is too deep."""
    depth = 1
    for signs in braces:
        depth += signs[0] == "{"
        if depth > DEPTH or signs == ODD:
            return False
        depth -= signs[-1] == "}"
        if depth < 1:
            return False
    return depth == 1
