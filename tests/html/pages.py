"""Reads HTML strictly: what is open is closed, what is nested is nested, attributes are quoted, nothing runs."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = frozenset(("br", "hr", "img", "wbr"))
DRAWN = frozenset(("rect", "line", "path", "circle"))
KNOWN = VOID | DRAWN | frozenset((
    "div", "style", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "details", "summary", "span", "b", "i", "svg", "g",
    "title", "text", "defs", "pattern", "marker", "figure", "figcaption", "section", "header", "h1", "h2", "ul", "ol", "li"))
RUNS = re.compile(r"javascript:|<script|\bon\w+=|@import|url\((?!#)|https?:")
"""What would run, or be fetched."""


class Page(HTMLParser):
    """`text` is what is read in the page, in its order; `tags` are those that were opened."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    @property
    def text(self) -> str:
        return plain("".join(self.pieces))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN, tag
        raw = self.get_starttag_text() or ""
        assert not re.search(r"=[^\"'\s]", re.sub(r"\"[^\"]*\"|'[^']*'", '""', raw)), f"not quoted: {raw}"
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag in ("td", "th", "p", "li", "div", "br", "title", "text", "pre"):
            self.pieces.append(" ")
        if tag not in VOID and not (tag in DRAWN and raw.endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID and self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)


def read(page: str) -> Page:
    """A cell's output, which is well-formed and self-contained."""
    assert not RUNS.search(page), RUNS.search(page)
    assert not re.search(r"&(?!(?:amp|lt|gt|quot|#x27|#39);)", re.sub(r"<style>.*?</style>", "", page, flags=re.S)), "an & is not escaped"
    made = Page(page)
    assert made.tags[0] == "div"
    assert page.startswith('<div class="ptxkit')
    assert page.endswith("</div>")
    assert not [each for each in made.ids if each not in ("hatch", "stuck", "arrow")], "ids would be in a notebook twice"
    return made


def plain(text: str) -> str:
    """Without what HTML does not keep: back quotes become code, and blanks run together."""
    return " ".join(text.replace("`", "").split())
