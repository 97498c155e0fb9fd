"""The template reader: reads a body by the templates of its lines (`ptxkit.grammar.lazy`) and builds no nodes.

In the line of a template `%r12` is `%r#`, `$L__BB0_3` is `$L__#`, the function's own parameter `f_param_2` is `%$P#`, and the name of a
called function is `%$F#`. Only whole words are replaced. Whether a line is PTX does not depend on such names. So each template is read
once in a text, and a body is right if every line of it has a template that is right. A body with a line of another kind is left to the
statement reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress, count, repeat
from operator import attrgetter

from ..lazy import ANY, CALLEE_WORD, DIGITS, LABEL, LABEL_WORD, PARAMETER_WORD, UNREADABLE, Template, TemplateBody
from ..special import SPECIAL
from .directives import LOCATIONS, PRAGMA
from .limits import MAX_DEPTH
from .lines import COMMENT, Entry, LineReader
from .operands import Operands, register_ranges
from .source import Source
from .tokens import BLANKS, GAP

WORD = re.compile(r"(%[A-Za-z0-9_\x02\x03\x04]++)")
JOINED = re.compile(r"[A-Za-z0-9_$%#](?:\$L__#|%\$[PF]#)|#\$")
"""A replaced word that is joined to another, so that it was not a whole word."""
LONGER = re.compile(r"%[A-Za-z0-9_]+\$")
"""A word with a percent sign that goes on with a dollar sign."""
LINE_COMMENT = re.compile(r"//[^\n]*")
ONE_BY_ONE = re.compile(r"\.reg\b[^;<%]*+(%[^;<]*+);")
CALL = re.compile(rf"call(?<![A-Za-z0-9_$%.]call)(?:\.uni)?(?=[ \t\r\n(])(?:{GAP}(?:\([^();/]*+\){GAP},{GAP})?"
                  rf"(?!WARP_SZ)([A-Za-z][A-Za-z0-9_]*+|_[A-Za-z0-9_]++)(?={GAP}[,;]))?[^;/]*;")
LABEL_HOLE, PARAMETER_HOLE, CALLEE_HOLE = "$L__#", "%$P#", "%$F#"
FIRST_COMMENTS = 10_000
"""How many characters of a text tell for most texts whether comments have words."""
BRACES, CALLEES = attrgetter("braces"), attrgetter("callees")


class Holes(dict[str, str]):
    """What stands in a template for each word that begins with a percent sign."""

    def __init__(self, text: str) -> None:
        self.literal_words: set[str] = set()  # words that stand for themselves
        self.register_names: dict[str, list[str]] = {}  # the registers of ranges, by what their names begin with
        for stem, words in register_ranges(text, {}):
            self.register_names.setdefault(stem, []).extend(words)
            if stem[0] == "%" and stem[-1] not in DIGITS and SPECIAL.keys().isdisjoint(words):
                self.update(zip(words, repeat(f"{stem}#")))

    def __missing__(self, word: str) -> str:
        stem = word.rstrip(DIGITS)
        if word.startswith(LABEL_WORD):
            found = LABEL_HOLE
        elif word.startswith(PARAMETER_WORD):
            found = PARAMETER_HOLE
        elif word.startswith(CALLEE_WORD):
            found = CALLEE_HOLE
        elif stem == word or word in SPECIAL:
            found = word
            self.literal_words.add(word)
        else:
            found = stem + "#"
        self[word] = found
        return found


class TemplateReader(dict[str, Template]):
    """The templates of a text, by line. Reads its bodies."""

    def __init__(self, text: str) -> None:
        self.holes = Holes(text)
        self.line_reader = LineReader(Source(""), Operands())
        self.fresh: list[Template] = []
        self.with_braces: set[Template] = set()
        self.labels: set[Template] = set()
        self.words_in_comments = "%" in "".join(LINE_COMMENT.findall(text[:FIRST_COMMENTS]))

    def __missing__(self, line: str) -> Template:
        """A new template that must be read, or the template of the line without its comment."""
        bare = COMMENT.sub("", line) if "//" in line else line
        if bare != line:
            self.words_in_comments = self.words_in_comments or "%" in line[len(bare):] or "#" in line[len(bare):]
            found = self[line] = self[bare]
            return found
        found = self[line] = Template(line, line.count(CALLEE_HOLE))
        self.fresh.append(found)
        return found

    def body(self, text: str, parameter_prefix: str) -> TemplateBody | None:
        """The body with these lines. None if the template reader does not know one of them.

        `parameter_prefix`: how the names of the function's own parameters begin.
        """
        words_in_comments = self.words_in_comments
        if words_in_comments:
            text = COMMENT.sub("", text)
        if "#" in text or "\x02" in text or "\x03" in text or "\x04" in text:
            return None
        calling = "call" in text
        if calling:
            text = CALL.sub(_in_one_line, text)
        holes = self.holes
        alone = {word: word for words in ONE_BY_ONE.findall(text) for word in WORD.findall(words) if word[-1].isdigit()}
        others = {word: holes[word] for word in alone}
        holes.update(alone)
        pieces = WORD.split(text.replace(LABEL, LABEL_WORD).replace(parameter_prefix, PARAMETER_WORD))
        words = pieces[1::2]
        pieces[1::2] = map(holes.__getitem__, words)
        holes.update(others)
        templates = list(map(self.__getitem__, "".join(pieces).split("\n")))
        if self.fresh:
            self._learn()
        if self.words_in_comments is not words_in_comments:
            return self.body(text, parameter_prefix)
        brace_lines: list[int] = []
        if not self.with_braces.isdisjoint(templates):
            braces = list(map(BRACES, templates))
            brace_lines = list(compress(count(), braces))
            if not _closed(filter(None, braces)):
                return None
        call_lines = list(compress(count(), map(CALLEES, templates))) if calling else []
        return TemplateBody(templates, words, holes.literal_words.union(alone), brace_lines, call_lines, parameter_prefix, self.labels,
                            holes.register_names)

    def _learn(self) -> None:
        """Reads the templates that are new, all at once."""
        lines: dict[Template, str] = {}
        locations: list[Template] = []
        for template in self.fresh:
            line = template.line
            if ANY in line or ("#" in line and JOINED.search(line) is not None) or ("$" in line and LONGER.search(line) is not None):
                template.become(UNREADABLE, [])
            elif "#" not in line and line.lstrip(BLANKS)[:4] == ".loc":
                locations.append(template)
            else:
                lines[template] = line.replace("#", ANY)
        if LOCATIONS.fullmatch("\n".join([template.line for template in locations])) is not None:
            for template in locations:
                template.deferred = ".loc"
                template.become("", [])
        else:
            lines.update({template: template.line for template in locations})
        reader = self.line_reader
        if lines:
            reader.learn(list(lines.values()))
        for template, line in lines.items():
            row = reader.rows[line]
            entry = Entry("", [row]) if row is not None else reader.entries[line]
            if entry is not None:
                template.become(entry.braces, entry.drafts)
            elif PRAGMA.fullmatch(line.strip(BLANKS)) is not None:
                template.deferred = ".pragma"
                template.become("", [])
            else:
                template.become(UNREADABLE, [])
        self.with_braces.update([template for template in self.fresh if template.braces])
        self.labels.update([template for template in self.fresh if template.kind == "label"])
        reader.rows.clear()
        reader.entries.clear()
        self.fresh = []


def _in_one_line(match: re.Match[str]) -> str:
    """A call of several lines in one line, with the mark of a called function. A call in a comment stays."""
    text, begin, name = match.string, match.start(), match.start(1)
    if "//" in text[text.rfind("\n", 0, begin) + 1:begin]:
        return match[0]
    call = match[0] if name < 0 else text[begin:name] + CALLEE_WORD + text[name:match.end()]
    return call.replace("\n", " ")


def _closed(braces: Iterable[str]) -> bool:
    """Whether every brace is closed and none is nested too deep. `UNREADABLE` is not closed."""
    depth = 1
    for around in braces:
        depth += around[0] == "{"
        if depth > MAX_DEPTH or around == UNREADABLE:
            return False
        depth -= around[-1] == "}"
        if depth < 1:
            return False
    return depth == 1
