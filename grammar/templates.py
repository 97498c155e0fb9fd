"""Bodies that are read without making their nodes, by templates: lines without the numbers of their registers and labels.

In a template `%r12` is `%r#`, `$L__BB0_3` is `$L__#`, and a function's own parameter `f_param_2` is `%P__#`. Whether a line is PTX
does not depend on such digits, and a compiler writes forty thousand lines by a thousand templates. Each of these is read once in a
text; a body is right if all of its lines have one that is. What is taken away are whole words only. A body with a line that is not
plain is left to be read statement by statement.
"""

from __future__ import annotations

import re
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .blanks import DEPTH
from .bodies import PRAGMA
from .columns import COMMENT, Columns, Part
from .special import SPECIAL
from .tree import Statement, Unmade
from .words import BLANKS, Words, ranges

if TYPE_CHECKING:
    from .read import Lines

# Labels and parameters are found as `%L__BB0_3` and `%P__2`: a pattern that begins with one sign takes half of the time.
LABEL, FOUND, PARAMETER = "$L__BB", "%L__BB", "%P__"
WORD = re.compile(r"(%[A-Za-z0-9_]+)")
PART = re.compile(r"[A-Za-z0-9_$%#](?:\$L__#|%P__#)|#\$")  # not a whole word
TARGET = re.compile(r"\$L__BB[A-Za-z0-9_]*(?=[ \t\r]*:)")
ALONE = re.compile(r"\.reg\b([^;<]*%[^;<]*);")
CALL = re.compile(r"call(?:\.uni)?[ \t\r\n(][^;]*;")
DIGITS = "0123456789"
ANY = "$$"
ANY_LABEL, ANY_PARAMETER = f"$L__{ANY}", f"%P__{ANY}"
ODD = "?"


class Template:
    """A line without numbers, and the statements that it is with `ANY` for each.

    `signs`: the braces around, or `ODD` if the line is not plain. `sort`: `i` statements that declare nothing, `=` declarations alone,
    `m` both, `:` a label, or nothing that a rule would ask for. `cells`, `row`, `other` and `known` are how nodes are made (`making`).
    """

    __slots__ = ("cells", "known", "line", "other", "parts", "pragma", "row", "signs", "sort")

    def __init__(self, line: str) -> None:
        self.line = line
        self.pragma = False
        self.cells: tuple[dict[str, Any], ...] | None = None
        self.row: tuple[Any, ...] | None = None
        self.other = False
        self.known: dict[tuple[str, ...], list[Part]] = {}

    def be(self, signs: str, parts: list[Part]) -> None:
        self.signs, self.parts = signs, parts
        kinds = {"i" if len(part) == 4 else "" if len(part) == 1 else ":" if isinstance(part[0], str) else "=" for part in parts}
        self.sort = next(iter(kinds)) if len(kinds) == 1 else "m" if kinds else ""


class Holes(dict[str, str]):
    """What stands for a word that begins with a percent sign in a template."""

    def __init__(self, text: str) -> None:
        self.kept: set[str] = set()  # those for which nothing else stands
        for stem, words in ranges(text, {}):
            if stem[0] == "%" and stem[-1] not in DIGITS and SPECIAL.keys().isdisjoint(words):
                self.update(zip(words, repeat(f"{stem}#")))

    def __missing__(self, word: str) -> str:
        stem = word.rstrip(DIGITS)
        if word.startswith(FOUND):
            found = "$L__#"
        elif stem == word or word in SPECIAL:
            found = word
            self.kept.add(word)
        else:
            found = stem + "#"
        self[word] = found
        return found


class Plain(Unmade):
    """A body that is right and of which no node has been made.

    `braces`: the numbers of the templates that open or close a block. `words`: all that begin with a percent sign, but labels and
    parameters as they are found; nothing stands for those in `kept`. The text is from behind the opening brace, `at`, up to the line break
    before the closing one.
    """

    __slots__ = ("at", "braces", "following", "kept", "nodes", "parameters", "reading", "stop", "templates", "words")

    def __init__(self, templates: list[Template], braces: list[int], words: list[str], kept: set[str], parameters: str) -> None:
        self.templates, self.braces, self.words, self.kept, self.parameters = templates, braces, words, kept, parameters
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

    def __missing__(self, line: str) -> Template:
        """A template to be learned."""
        found = self[line] = Template(line)
        self.fresh.append(found)
        return found

    def body(self, text: str, parameters: str) -> Plain | None:
        """The body whose lines these are, if all of them are plain. `parameters`: how the names of the function's own begin."""
        if "#" in text or ANY in text or FOUND in text or PARAMETER in text:
            return None
        bare = COMMENT.sub("", text) if "//" in text else text
        if "call" in bare:
            bare = CALL.sub(lambda match: match[0].replace("\n", " "), bare)
        holes = self.holes
        alone = {word: word for words in ALONE.findall(bare) for word in WORD.findall(words) if word[-1].isdigit()}
        others = {word: holes[word] for word in alone}
        holes.update(alone)
        pieces = WORD.split(bare.replace(LABEL, FOUND).replace(parameters, PARAMETER))
        words = pieces[1::2]
        pieces[1::2] = map(holes.__getitem__, words)
        holes.update(others)
        templates = list(map(self.__getitem__, "".join(pieces).split("\n")))
        if self.fresh:
            self._learn()
        braces = [number for number, template in enumerate(templates) if template.signs]
        depth = 1
        for number in braces:
            signs = templates[number].signs
            depth += signs[0] == "{"
            if depth > DEPTH or signs == ODD:
                return None
            depth -= signs[-1] == "}"
            if depth < 1:
                return None
        if depth > 1:
            return None
        return Plain(templates, braces, words, holes.kept.union(alone), parameters)

    def _learn(self) -> None:
        for template in self.fresh:
            told = template.line
            line = told.replace("#", ANY)
            entry = self.columns.entry(line) if "#" not in told or PART.search(told) is None else None
            if entry is not None:
                template.be(entry.signs, entry.parts)
            else:
                template.pragma = PRAGMA.fullmatch(line.strip(BLANKS)) is not None
                template.be("" if template.pragma else ODD, [])
        self.fresh = []
