"""The site: it builds strictly, asks for nothing outside itself, and opens in a browser from a file, with its search."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import Browser, Page
from tests.test_docs import ROOT, generator

pytestmark = pytest.mark.timeout(180)

needs_mkdocs = pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed (group `docs`)")
FIRST = re.compile(r"\A(?:---\n.*?\n---\n)?(?:<!--[^\n]*-->\n)?# [^\n]+\n+For [a-z][^\n]")
ASSETS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def pages() -> dict[str, str]:
    """Every page that somebody wrote or that is made from docstrings, by its name."""
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    return written | {f"api/{name}": text for name, text in generator().pages().items()} | {
        name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "CHANGELOG.md")}


@pytest.mark.pure
def test_every_page_begins_by_saying_whom_it_is_for() -> None:
    found = pages()
    assert len(found) > 30
    assert [name for name, text in found.items() if not FIRST.match(text)] == []
    for wrong in ("# A\n\nIt does this.\n", "For all.\n\n# A\n", "# A\n\n## B\n\nFor all.\n"):
        assert not FIRST.match(wrong)


@pytest.mark.pure
def test_every_page_has_a_place_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - set(re.findall(r"[\w-]+\.md", text)) == set()


TASKS = ("Start", "Write a kernel", "Read what you emit", "Check and prove", "Debug", "Tune and time", "GEMM",
         "Grouped products and MoE", "Torch and JAX", "Ship", "Reference", "Glossary", "Design", "Performance", "Contributing")


@pytest.mark.pure
def test_each_task_has_a_title_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    titles = set(re.findall(r"- ([^:\n]+):", text))
    assert set(TASKS) - titles == set()
    assert len(titles) > 30


def slug(title: str) -> str:
    """The anchor of a heading, as the site and code hosts make it."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(title) for title in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)}


def lost(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no heading."""
    found = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text):
        path = page.parent / target if target else page
        if path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8") if target else text):
            found.append(f"{page.name}: {target}#{anchor}")
    return found


@pytest.mark.pure
def test_links_lead_to_headings() -> None:
    written = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert [each for page in written for each in lost(page, page.read_text(encoding="utf-8"))] == []
    text = "# A `b`\n[x](#a-b) [y](#b) [z](glossary.md#work) [u](glossary.md#no)"
    assert lost(ROOT / "docs" / "guide.md", text) == ["guide.md: #b", "guide.md: glossary.md#no"]


COLUMNS = 104
"""Of code, on a screen of 1,440 pixels."""
_COMMENT = re.compile(r"\S.*  +(?:#|//) .*")


def out_of_sight(text: str) -> list[str]:
    """The lines of code of a page whose comment at the end is cut off at the right."""
    fenced = re.findall(r"^```(?:python|c|ptx)\n(.*?)^```$", text, re.M | re.S)
    indented = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return [line for block in (*fenced, "\n".join(indented)) for line in block.split("\n") if len(line) > COLUMNS and _COMMENT.search(line)]


@pytest.mark.pure
def test_comments_in_code_are_in_sight() -> None:
    assert {name: found for name, text in pages().items() if not name.startswith("api/") and (found := out_of_sight(text))} == {}
    long = "x = 1" + " " * 90 + "# said where nobody looks"
    assert out_of_sight(f"# A\n\n    {long}\n\n```python\n{long}\n```\n\n```text\n{long}\n```\n") == [long, long]


MOST_WORDS, MOST_OF_A_PARAGRAPH = 50, 160
"""Words of a sentence (to a colon or semicolon, too), and of a paragraph or an item of a list."""


def too_long(text: str) -> list[str]:
    """The beginnings of the sentences and paragraphs of a page that nobody reads in one go. Tables and code are left out."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.M | re.S)
    blocks = [each for each in re.split(r"\n\s*\n", text) if not re.match(r"\s*[|#<]|    (?![-*] )", each)]
    items = [re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)", "]", item)).strip()
             for each in blocks for item in re.split(r"^(?=\s*(?:[-*]|\d+\.) )", each, flags=re.M)]
    sentences = [(MOST_WORDS, each) for item in items for each in re.split(r"(?<=[.;:!?])\s+", item)]
    return [each[:60] for most, each in (*sentences, *((MOST_OF_A_PARAGRAPH, item) for item in items)) if len(each.split()) > most]


@pytest.mark.pure
def test_sentences_and_paragraphs_can_be_read_in_one_go() -> None:
    written = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert {path.name: found for path in written if (found := too_long(path.read_text(encoding="utf-8")))} == {}
    assert too_long("# A\n\nOne " + "word " * 50 + "more.") == ["One " + "word " * 11 + "w"]
    assert len(too_long("- " + "A word. " * 90)) == 1
    assert too_long("| " + "word " * 300 + "|\n\n```text\n" + "word " * 300 + "\n```\n") == []


@pytest.mark.pure
def test_lists_in_lists_are_indented_as_the_site_wants_it() -> None:
    def less(text: str) -> list[str]:
        return re.findall(r"^ {1,3}(?:[-*]|\d+\.) .*", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)

    assert {name: found for name, text in pages().items() if (found := less(text))} == {}
    assert less("- a\n  - b\n    - c\n") == ["  - b"]


# --------------------------------------------------------------------------------------------------- the built site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built into a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("the site")
    build(ROOT / "mkdocs.yml", folder)
    return folder


def build(config: Path, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config), "-d", str(folder)],
                          capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stdout + done.stderr


def read(text: str) -> tuple[list[str], list[str], set[str]]:
    """The addresses that a page loads, those that it links to, and the places that it has."""
    tags = [(name, dict(re.findall(r"""([\w-]+)=("[^"]*"|'[^']*'|[^\s>]+)""", rest)))
            for name, rest in re.findall(r"""<(\w+)((?:[^>"']|"[^"]*"|'[^']*')*)>""", text)]
    given = [(name, {key: unescape(value.strip("\"'")) for key, value in has.items()}) for name, has in tags]
    loads = [has[ASSETS[name]] for name, has in given if ASSETS.get(name) in has and has.get("rel") not in ("canonical", "prev", "next")]
    return loads, [has["href"] for name, has in given if name == "a" and "href" in has], {has["id"] for _, has in given if "id" in has}


def dead(folder: Path) -> list[str]:
    """Of each page of a site: what it loads from elsewhere, and what it loads or links to that is not there."""
    seen = {path: read(path.read_text(encoding="utf-8")) for path in folder.resolve().rglob("*.html") if path.name != "404.html"}
    files = {str(path) for path in folder.resolve().rglob("*")}
    found = []
    for page, (loads, links, _) in seen.items():
        found += [f"{page.name} loads {each}" for each in loads if urlsplit(each).netloc]
        for each in {*loads, *links}:
            parts = urlsplit(each)
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
            if str(target) not in files:
                found.append(f"{page.name}: {each} is not there")
            elif parts.fragment and target in seen and unquote(parts.fragment) not in seen[target][2]:
                found.append(f"{page.name}: {each} leads to no place")
    return found


@pytest.mark.pure
@needs_mkdocs
def test_all_links_of_the_built_site_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert (site / "index.html").exists()
    assert len(list(site.glob("*.html"))) > 20
    assert len(list((site / "api").glob("*.html"))) == len(generator().pages())
    assert dead(site) == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?https?:[^)]*|@import[^;]*https?:[^;]*", styles) == []


@pytest.mark.pure
@needs_mkdocs
def test_links_between_pages_of_the_site_are_called_by_titles(site: Path) -> None:
    def by_file(text: str) -> list[str]:
        return re.findall(r"<a[^>]*>[\w/-]+\.md</a>", text)

    assert {path.name: found for path in site.glob("*.html") if (found := by_file(path.read_text(encoding="utf-8")))} == {}
    assert "lift.html\">PTX as Python</a>" in (site / "commands.html").read_text(encoding="utf-8")
    assert by_file('<a href="lift.html">lift.md</a>')


@pytest.mark.pure
@needs_mkdocs
def test_no_page_shows_marks_of_markdown(site: Path) -> None:
    def marks(text: str) -> list[str]:
        body = re.search(r"<article.*?</article>", text, re.S)
        said = re.sub(r"<!--.*?-->|<pre.*?</pre>|<code.*?</code>", "", body[0] if body else text, flags=re.S)
        return re.findall(r"\n\s*[-*] .{0,40}|\*\*\w.{0,40}|\|--.{0,40}|\]\(.{0,40}|`.{0,40}", said)

    built = [*site.glob("*.html"), *(site / "api").glob("*.html")]
    assert {path.name: found for path in built if (found := marks(path.read_text(encoding="utf-8")))} == {}
    assert marks("<p>a:\n- b</p>") == ["\n- b</p>"]


@pytest.mark.pure
def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<link rel="stylesheet" href="https://elsewhere.example/x.css"><a href="b.html#no">x</a>'
                                     '<a href="c.html">y</a><a href="b.html#yes">z</a>', encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="yes">', encoding="utf-8")
    assert sorted(dead(tmp_path)) == ["a.html loads https://elsewhere.example/x.css", "a.html: b.html#no leads to no place",
                                      "a.html: c.html is not there"]


@pytest.mark.browser
@needs_mkdocs
def test_the_site_opens_from_a_file_and_its_search_finds_a_word(browser: Browser, site: Path) -> None:
    page = browser.open(site / "index.html")
    assert page.evaluate("document.querySelector('h1').innerText.length") > 0
    page.click(".md-search__input")
    page.type("setmaxnre")
    page.press("g")
    found: Any = wait_for(page, "[...document.querySelectorAll('.md-search-result__link')].map(e => e.href)")
    assert any("source/" not in each for each in found)
    assert all(each.startswith("file:") for each in page.requests() if not each.startswith(("data:", "about:", "blob:")))
    assert page.errors() == []
    page.go(found[0])
    assert "setmaxnreg" in page.evaluate("document.body.innerText")
    page.close()


SOUGHT = {"mbarrier": "verdicts", "multicast": "checks", "AOTInductor": "torch", "flash attention": "attention", "paged": "attention",
          "occupancy": "glossary", "quantization": "glossary", "split-K": "gemm", "try_wait": "debug", "cu_seqlens": "grouped",
          "deadlock": "checks", "race condition": "prove", "CUDA graph": "torch", "torch.compile": "torch", "TMA": "guide",
          "mixture of experts": "torch", "bank conflict": "verdicts", "cubin": "export", "breakpoint": "debug"}
"""What people type, and a page that should be among the first four then."""


@pytest.mark.browser
@needs_mkdocs
def test_the_search_puts_the_page_first_that_is_about_it(browser: Browser, site: Path) -> None:
    page = browser.open(site / "index.html")
    found = {words: search(page, words) for words in SOUGHT}
    assert {words: found[words] for words, name in SOUGHT.items() if name not in found[words][:4]} == {}
    assert not any(path.startswith("source/") for paths in found.values() for path in paths)
    assert search(page, "xyzzyplugh") == []
    assert page.errors() == []
    page.close()


def search(page: Page, words: str) -> list[str]:
    """The pages that are found, the best first, without the end of their names."""
    box = "document.querySelector('.md-search__input')"
    page.evaluate(f"(e => {{ e.value = ''; e.dispatchEvent(new Event('keyup', {{bubbles: true}})) }})({box})")
    page.evaluate("document.querySelector('.md-search-result__meta').textContent = ''")
    page.click(".md-search__input")
    page.type(words[:-1])
    page.press(words[-1])
    wait_for(page, "(meta => /match|No /.test(meta) ? meta : '')(document.querySelector('.md-search-result__meta').textContent)")
    hrefs: list[str] = page.evaluate("new Promise(done => setTimeout(() => done([...document.querySelectorAll('.md-search-result__item')]"
                                     ".map(e => e.querySelector('a').href)), 60))")
    return [re.sub(r".*/the site\d+/|\.html$", "", unquote(urlsplit(href).path)) for href in hrefs]


@pytest.mark.browser
@needs_mkdocs
def test_a_page_is_as_dark_as_the_system_also_when_it_is_visited_again(browser: Browser, site: Path) -> None:
    page = browser.open(site / "index.html")
    seen = []
    for dark in (False, True, False):
        page.dark(dark)
        page.go((site / "guide.html").as_uri())
        seen.append(sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[:3])) < 200)
    assert seen == [False, True, False]
    page.close()


@pytest.mark.browser
@needs_mkdocs
@pytest.mark.thinned(8)
@pytest.mark.parametrize("name", ["index", *sorted(path.stem for path in (ROOT / "docs").glob("*.md")), "api/writing", "contributing"])
def test_no_page_is_wider_than_a_screen_or_complains(browser: Browser, site: Path, name: str) -> None:
    page = browser.open(site / f"{name}.html", 1280, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.errors() == []
    page.close()


def wait_for(page: Any, expression: str) -> Any:
    """What the expression becomes when it is no longer empty, within ten seconds."""
    return page.evaluate(f"new Promise((done, fail) => {{ const look = left => {{ const seen = {expression}; "
                         "if (seen.length) done(seen); else if (left) setTimeout(look, 20, left - 1); "
                         "else fail(new Error('nothing found')) }; look(500) })")
