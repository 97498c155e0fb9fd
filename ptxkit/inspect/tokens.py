"""A line of source, PTX or machine code as HTML: escaped, with what is worth a colour marked."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Mapping
from html import escape

from .classes import of_ptx, of_sass

_PTX = re.compile(r"(\s*(?:@!?[%\w$]+\s+)?)([a-z]\w*(?:(?:\.|::)\w+)*)(.*)", re.S)
_SASS = re.compile(r"((?:@!?U?P\w+\s+)?)(\S+)(.*)", re.S)
_VECTOR = re.compile(r"(\{[^{},]+,[^{},]+)((?:,[^{},]+){8,})(,[^{},]+\})")
_LABEL = re.compile(r"`\((\.L\w+)\)")
_KINDS = {tokenize.COMMENT: "n", tokenize.STRING: "q",
          **{getattr(tokenize, name, -1): "q" for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")}}


def ptx(text: str) -> str:
    """A line of PTX: the opcode in the colour of its class, comments and directives dim, the middle of long vectors set apart."""
    code, comment, said = text.partition("//")
    tail = f"<i>{escape(comment + said)}</i>" if comment else ""
    found = _PTX.fullmatch(code)
    if found is None or code.rstrip().endswith(":"):
        return f"<i>{escape(code)}</i>{tail}" if code.strip() else escape(code) + tail
    head, opcode, rest = found.groups()
    rest = _VECTOR.sub(r"\1" "\0" r"\2" "\1" r"\3", rest)
    rest = escape(rest).replace("\0", "<s>").replace("\1", "</s>")
    return f'{escape(head)}<b class="{of_ptx(opcode)}">{escape(opcode)}</b>{rest}{tail}'


def sass(text: str, labels: Mapping[str, str]) -> str:
    """A machine instruction. `labels` are the anchors of the labels of its function."""
    found = _SASS.fullmatch(text)
    if found is None:
        return escape(text)
    head, mnemonic, rest = found.groups()
    parts = _LABEL.split(rest)
    made = "".join(escape(part) if not odd % 2 else
                   f'<a href="#{labels[part]}" class="j">{escape(part)}</a>' if part in labels else f"`({escape(part)})"
                   for odd, part in enumerate(parts))
    return f'{escape(head)}<b class="{of_sass(text)}">{escape(mnemonic)}</b>{made}'


def python(text: str) -> list[str]:
    """The lines of a Python source, with comments, strings and keywords marked; plain where it is not Python."""
    lines = text.split("\n")
    marks: dict[int, list[tuple[int, int, str]]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = _KINDS.get(token.type) or ("k" if token.type == tokenize.NAME and keyword.iskeyword(token.string) else "")
            (first, start), (last, end) = token.start, token.end
            for line in range(first, last + 1) if kind else ():
                marks.setdefault(line, []).append((start if line == first else 0, end if line == last else len(lines[line - 1]), kind))
    except (tokenize.TokenError, SyntaxError, IndexError):
        return [escape(line) for line in lines]
    return [_marked(line, marks.get(number, [])) for number, line in enumerate(lines, 1)]


def _marked(line: str, marks: list[tuple[int, int, str]]) -> str:
    made, at = [], 0
    for start, end, kind in marks:
        if start >= at:
            made.append(f'{escape(line[at:start])}<i class="{kind}">{escape(line[start:end])}</i>')
            at = end
    return "".join([*made, escape(line[at:])])


__all__ = ["ptx", "python", "sass"]
