"""The browser that pages are opened in sees what is wrong with them, and its mouse, keyboard and preferences arrive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest
from tests.browser import Browser, executable

PAGE = """<!doctype html><meta charset="utf-8"><title>t</title><link rel="icon" href="data:,">
<style>body{background:#fff}@media (prefers-color-scheme:dark){body{background:#000}}a:hover{color:#f00}</style>
<a href="#there">link</a><button onclick="document.title='pressed'">b</button><input><p id="there">text</p>"""


@pytest.mark.browser
def test_a_page_is_seen_as_a_user_sees_it(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "a page.html"
    path.write_text(PAGE, encoding="utf-8")
    page = browser.open(path, 640, 400)
    assert page.evaluate("[innerWidth,innerHeight]") == [640, 400]
    page.hover("a")
    assert page.evaluate("getComputedStyle(document.querySelector('a')).color") == "rgb(255, 0, 0)"
    page.click("button")
    assert page.evaluate("document.title") == "pressed"
    page.press("Tab")
    page.type("words")
    assert page.evaluate("document.querySelector('input').value") == "words"
    backgrounds = []
    for dark in (False, True):
        page.dark(dark)
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert page.screenshot(tmp_path / "shot.png").read_bytes().startswith(b"\x89PNG")
    assert page.errors() == []
    assert page.requests() == [path.as_uri()]
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize(("body", "said"), [
    ("<script>undefined_name()</script>", "undefined_name is not defined"),
    ("<script>console.error('planted')</script>", "planted"),
    ("<script>setTimeout(()=>{throw new Error('late')})</script>", "late"),
    ("<script src='absent.js'></script>", "not loaded"),
    ("<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\"><script>1</script>", "Content Security Policy"),
])
def test_what_is_wrong_with_a_page_is_seen(browser: Browser, tmp_path: Path, body: str, said: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE + body, encoding="utf-8")
    page = browser.open(path)
    assert any(said in error for error in page.errors()), page.errors()
    page.close()


@pytest.mark.pure
def test_without_chromium_tests_are_skipped_unless_they_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TESTS_REQUIRE", raising=False)
    assert executable() is None
    assert "chromium" in conftest.why_no_browser()
    monkeypatch.setenv("TESTS_REQUIRE", "torch,browser")
    assert conftest.why_no_browser() == ""
    with pytest.raises(FileNotFoundError, match="need Chromium"):
        Browser()
