"""The page of `inspect --view html` in headless Chromium: what is on the first screen, links, keys, search, filters, dark mode, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, Page

from .test_view import SUBJECTS, Tree, written

pytestmark = [pytest.mark.browser, pytest.mark.ptxas]
PANES = ("#source", "#ptx", "#sass")


@pytest.fixture
def page(browser: Browser, folder: Path) -> Iterator[Page]:
    """The page of tile_gemm, which had no error when a test ends."""
    opened = browser.open(written("tile_gemm", folder))
    yield opened
    assert opened.errors() == []
    opened.close()


def marked(page: Page, name: str = "on") -> dict[str, list[str]]:
    """The anchors of the rows with a mark, by pane."""
    return {pane: page.evaluate(f"[...document.querySelectorAll('{pane} .r.{name}')].map(r=>r.id)") for pane in PANES}


def visible(page: Page, selector: str) -> bool:
    """Whether a row lies within the view of its pane, and the pane's within the screen."""
    return bool(page.evaluate(f"(()=>{{const r=document.querySelector({selector!r}),a=r.getBoundingClientRect(),b=r.closest('.rows')"
                              ".getBoundingClientRect();return a.height>0&&a.top>b.top-2&&a.bottom<b.bottom+2&&a.bottom<=innerHeight})()"))


def source_row(page: Page, text: str) -> str:
    """The selector of a line of the source."""
    found = page.evaluate(f"[...document.querySelectorAll('#source .r')].filter(r=>r.textContent.includes({text!r})).map(r=>r.id)")
    assert len(found) == 1
    return f"#{found[0]}"


@pytest.mark.thinned(20)
@pytest.mark.parametrize("name", ["tile_gemm", "gemm", "wgmma"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (700, 900)])
def test_the_first_screen_has_all_panes(name: str, width: int, height: int, browser: Browser, folder: Path) -> None:
    path = written(name, folder)
    page = browser.open(path, width, height)
    panes = PANES if ":" in (SUBJECTS[name] or ":") else PANES[1:]
    boxes = [page.box(f"{pane} .rows") for pane in panes]
    assert all(box["bottom"] <= height and box["top"] < height - 100 and box["width"] > width / 4 for box in boxes)
    if width > 1000:
        assert all(box["height"] > 0.75 * height for box in boxes)
        assert [box["left"] for box in boxes] == sorted(box["left"] for box in boxes)
    assert page.evaluate("document.documentElement.scrollWidth<=innerWidth"), "nothing sticks out at the right"
    for pane in panes:
        page.evaluate(f"document.querySelector('{pane} .rows').scrollTop=0")
    first = page.evaluate("[...document.querySelectorAll('.rows')].map(r=>r.scrollTop)")
    page.evaluate("document.querySelector('#sass .rows').scrollTop=200")
    assert page.evaluate("[...document.querySelectorAll('.rows')].map(r=>r.scrollTop)") == [*first[:-1], 200], "each scrolls by itself"
    assert page.box(".contents")["bottom"] <= height
    assert page.errors() == []
    assert page.requests()[0] == path.as_uri()
    assert all(url.startswith("data:") for url in page.requests()[1:])
    page.close()


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", ["triton_matmul", "gemm", "tile_gemm"])
def test_each_pane_begins_at_its_first_linked_line(name: str, browser: Browser, folder: Path) -> None:
    page = browser.open(written(name, folder), 1440, 900)
    for pane in PANES:
        first = page.evaluate(f"[...document.querySelectorAll('{pane} .r[data-p]')].find(r=>/ o\\d/.test(r.className)).id")
        assert visible(page, f"#{first}")
        assert page.box(f"#{first}")["top"] < page.box(f"{pane} .rows")["top"] + 100
    page.close()


@pytest.mark.thinned(12)
@pytest.mark.parametrize("name", ["tile_gemm", "gemm"])
def test_most_lines_are_seen_whole_and_none_is_cut_in_half(name: str, browser: Browser, folder: Path) -> None:
    page = browser.open(written(name, folder), 1440, 900)
    whole = ("(pane=>{const all=[...pane.querySelectorAll('.r[data-p]')].filter(r=>r.offsetParent);"
             "return all.filter(r=>r.offsetWidth<=pane.clientWidth).length/all.length})(document.querySelector('%s .rows'))")
    assert all(page.evaluate(whole % pane) > 0.55 for pane in PANES)
    above = ("(pane=>{const head=pane.querySelector('.heads'),top=pane.getBoundingClientRect().top+(head?head.offsetHeight:0);"
             "return [...pane.querySelectorAll('.r,h3')].map(r=>r.getBoundingClientRect()).filter(b=>b.top<top-1&&b.bottom>top+1).length})"
             "(document.querySelector('%s .rows'))")
    assert [page.evaluate(above % pane) for pane in PANES] == [0, 0, 0]
    page.click("#wrap")
    assert page.evaluate("[...document.querySelectorAll('.rows')].filter(p=>p.scrollWidth>p.clientWidth).length") == 0
    assert page.evaluate("[...document.querySelectorAll('#source .r')].some(r=>r.offsetHeight>30)")
    page.click("#wrap")
    assert page.evaluate("document.querySelector('#source .rows').scrollWidth") > page.box("#source .rows")["width"]
    page.close()


def test_panes_are_as_wide_as_they_are_dragged(page: Page) -> None:
    def widths() -> list[float]:
        return [page.box(pane)["width"] for pane in PANES]

    first = widths()
    page.drag(".split", 150)
    dragged = widths()
    assert dragged == pytest.approx([first[0] + 150, first[1] - 150, first[2]], abs=2)
    page.drag(".split", -2000)
    assert widths()[0] == pytest.approx(120, abs=2), "no pane vanishes"
    page.evaluate("document.querySelector('.split').dispatchEvent(new Event('dblclick'))")
    assert widths() == pytest.approx(first, abs=1)
    page.evaluate("document.querySelectorAll('.split')[1].focus()")
    page.press("ArrowRight")
    assert widths() == pytest.approx([first[0], first[1] + 24, first[2] - 24], abs=2)


def test_labels_that_nothing_jumps_to_are_out_of_sight(page: Page) -> None:
    labels = page.evaluate("[...document.querySelectorAll('#sass .r')].filter(r=>/^\\.L_x_\\d+:$/.test(r.lastChild.textContent))"
                           ".map(r=>[r.lastChild.textContent.slice(0,-1),r.offsetParent!==null])")
    named = set(page.evaluate("[...document.querySelectorAll('#sass a.j')].map(a=>a.textContent)"))
    assert named
    assert {shown for _, shown in labels} == {True, False}
    assert {label for label, shown in labels if shown} == named
    page.click("#idle")
    assert page.evaluate("[...document.querySelectorAll('#sass .r')].every(r=>r.offsetParent)")


def test_hovering_marks_what_a_line_became(page: Page, folder: Path) -> None:
    tree = Tree(written("tile_gemm", folder).read_text(encoding="utf-8"))
    row = source_row(page, "mma(acc, a_tile")
    wanted = set(tree.rows[row[1:]].ptx)
    page.hover(row)
    on = marked(page)
    assert on["#source"] == [row[1:]]
    assert on["#ptx"] == [f"p{number}" for number in sorted(wanted)]
    assert on["#sass"] == [row.anchor for row in tree.of("s") if wanted & set(row.ptx)]
    assert len(on["#sass"]) > 4
    background = "getComputedStyle(document.querySelector('%s')).backgroundColor"
    assert page.evaluate(background % f"#{on['#sass'][0]}") == page.evaluate(background % row) != page.evaluate(background % "#sass .r")
    page.hover("h1")
    assert not any(marked(page).values())


def test_a_click_brings_the_counterparts_into_view_and_stays(page: Page) -> None:
    row = source_row(page, "mbarrier.arrive.shared__cta.b64(empty[stage])")
    page.click(row)
    on = marked(page)
    assert all(on.values())
    assert all(visible(page, f"#{on[pane][0]}") for pane in PANES)
    page.hover("h1")
    assert marked(page) == on
    page.click(f"#{on['#sass'][0]}")
    assert marked(page, "pin")["#source"] == [row[1:]]
    page.press("Escape")
    assert not any(marked(page).values())


def test_keys_move_and_link(page: Page) -> None:
    page.evaluate("document.querySelector('#ptx .rows').focus()")
    for _ in range(3):
        page.press("ArrowDown")
    assert page.evaluate("document.querySelectorAll('#ptx .r.cur').length") == 1
    page.press("End")
    assert visible(page, "#ptx .r.cur")
    page.press("Home")
    here = source_row(page, "wgmma.fence.sync.aligned")
    page.click(here)
    page.evaluate("document.querySelector('#source .rows').focus()")
    page.press("Enter")
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('.pane').id") == "ptx"
    assert "wgmma.fence" in page.evaluate("document.querySelector('#ptx .r.cur').textContent")
    page.press("ArrowRight")
    assert "WARPGROUP.ARRIVE" in page.evaluate("document.querySelector('#sass .r.cur').textContent")
    reached = set()
    page.evaluate("document.activeElement.blur(),getSelection().removeAllRanges()")
    for _ in range(60):
        page.press("Tab")
        reached.add(page.evaluate("(e=>e.closest('.pane')?.id||e.id||e.dataset.only||e.type||e.tagName)(document.activeElement)"))
    assert {"search", "theme", "t", "source", "ptx", "sass", "A", "SUMMARY"} <= reached


def test_search_marks_filters_and_steps(page: Page) -> None:
    page.press("/")
    page.type("hgmma")
    hits = marked(page, "hit")
    assert len(hits["#sass"]) == 4
    assert hits["#ptx"] == hits["#source"] == []
    assert page.evaluate("document.querySelector('output').textContent") == "4 lines"
    page.press("Enter")
    assert visible(page, "#sass .r.cur.hit")
    assert marked(page)["#source"], "a hit marks its counterparts"
    page.click("#only")
    assert page.evaluate("[...document.querySelectorAll('.r')].filter(r=>r.offsetParent).length") == 4
    page.click("input[type=search]")
    page.press("Escape")
    assert page.evaluate("document.querySelectorAll('#sass .r:not(.hit,.idle)').length") == page.evaluate(
        "[...document.querySelectorAll('#sass .r')].filter(r=>r.offsetParent).length")


@pytest.mark.parametrize(("which", "pattern"), [("t", r"HGMMA|WARPGROUP"), ("c", r"UTMALDG"), ("rp", None)])
def test_the_legend_shows_a_class_or_a_role_alone(page: Page, which: str, pattern: str | None) -> None:
    page.click(f"[data-only={which}]")
    lit = marked(page, "lit")
    assert all(lit.values())
    assert all(visible(page, f"#{lit[pane][0]}") for pane in PANES)
    texts = page.evaluate("[...document.querySelectorAll('#sass .r.lit')].map(r=>r.textContent)")
    if pattern is None:
        assert set(lit["#sass"]) == set(page.evaluate("[...document.querySelectorAll('#sass .r.rp')].map(r=>r.id)"))
    else:
        assert all(re.search(pattern, text) for text in texts)
    assert page.evaluate("getComputedStyle(document.querySelector('#sass .r:not(.lit)')).opacity") < "0.5"
    page.click(f"[data-only={which}]")
    assert not any(marked(page, "lit").values())


def test_dark_mode_follows_the_preference_and_the_button(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.dark(True)
    dark = page.evaluate(background)
    assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
    page.click("#theme")
    assert page.evaluate(background) == light
    page.dark(False)
    page.click("#theme")
    assert page.evaluate(background) == dark
    page.evaluate("localStorage.removeItem('ptxkit-theme')")


CONTRAST = """(()=>{const light=c=>{const [r,g,b]=c.map(v=>(v/=255)<=.04045?v/12.92:((v+.055)/1.055)**2.4);return .2126*r+.7152*g+.0722*b};
const read=s=>{const m=s.match(/[\\d.]+/g).map(Number);return [m.slice(0,3),m[3]??1]},over=([c,a],b)=>c.map((v,i)=>v*a+b[i]*(1-a));
const ground=e=>{const under=[];for(;e;e=e.parentElement)under.push(read(getComputedStyle(e).backgroundColor));
return under.reverse().reduce((b,c)=>over(c,b),[255,255,255])};
return [...document.querySelectorAll('body *')].filter(e=>e.offsetParent&&[...e.childNodes].some(n=>n.nodeType===3&&n.textContent.trim()))
.map(e=>{const b=ground(e),f=read(getComputedStyle(e).color),[x,y]=[light(over(f,b)),light(b)].sort((p,q)=>q-p);
return [(x+.05)/(y+.05),f[1],e.textContent.slice(0,30)]}).filter(([ratio,alpha])=>alpha&&ratio<4.5).map(([ratio,,text])=>
[ratio,text])})()"""
"""The texts whose contrast with what is below them is less than WCAG's 4.5 (level AA), and the contrast."""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_stands_out_from_its_ground(page: Page, dark: bool) -> None:
    page.dark(dark)
    assert page.evaluate(CONTRAST) == []
    page.click(source_row(page, "mma(acc, a_tile"))
    assert page.evaluate(CONTRAST) == []
    page.evaluate("document.querySelector('#sass .r b').style.color=getComputedStyle(document.querySelector('#sass .r')).backgroundColor")
    page.evaluate("document.querySelector('.facts').style.color='#888'")
    assert page.evaluate(CONTRAST) != []


def test_tables_are_folded_open_and_lead_back(page: Page) -> None:
    assert page.evaluate("document.querySelectorAll('.tables details[open]').length") == 0
    link = page.evaluate("[...document.querySelectorAll('.contents a')].find(a=>a.textContent==='Shared memory').getAttribute('href')")
    page.click(f".contents a[href='{link}']")
    assert page.evaluate("[...document.querySelectorAll('.tables details[open]')].map(d=>'#'+d.id)") == [link]
    assert page.box(f"{link} svg.map")["height"] > 50
    page.click(f"{link} .alloc[data-p]")
    assert page.evaluate("scrollY") == 0
    assert all(marked(page, "pin").values()), "a click on memory shows who uses it"
    summaries = page.evaluate("[...document.querySelectorAll('.tables summary')].length")
    assert summaries > 8
    page.click(".tables details:last-child summary")
    assert page.evaluate("document.querySelector('.tables details:last-child').open")
    page.click(".tables details:last-child a[data-l]")
    assert page.evaluate("scrollY") == 0
    assert visible(page, "#ptx .r.pin")


def test_folded_lines_and_long_vectors_are_there(browser: Browser, folder: Path) -> None:
    page = browser.open(written("gemm", folder))
    assert page.evaluate("document.querySelectorAll('.gap').length") > 10
    assert page.evaluate("document.querySelector('#source .r:not(.gap *)').offsetParent!==null")
    product = "#ptx .r:has(s)"
    narrow = page.box(f"{product} s")["width"]
    page.click(product)
    assert page.box(f"{product} s")["width"] > 10 * narrow
    page.evaluate("(p=>{p.value=p.options[2].value;p.dispatchEvent(new Event('change'))})(document.querySelector('#source select'))")
    head = page.box("#source h3:nth-of-type(3)")
    assert abs(head["top"] - page.box("#source .rows")["top"]) < 3
    assert page.errors() == []
    page.close()
