"""What objects show in a notebook is readable in Chromium: on light and dark, at the width of a screen and of a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import tile_gemm as example
from ptxkit import Layout, Ptr, Reg, Space, TensorMapFields, if_, kernel, smem, tid
from ptxkit.explain.matrix import decode
from ptxkit.inspect import entries
from ptxkit.ptx import bar, mov, st
from ptxkit.types import bf16, u32
from tests.browser import Browser
from tests.html.test_html import axpy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
NASTY = "a<b>&\"c\" </div><script>document.title='run'</script>"
THEMES = {"light": "background:#fff;color:#212121", "dark": "background:#111;color:#e0e0e0"}
WIDTHS = {"screen": 1000, "phone": 390}
SMALLEST_TEXT = 8.0
"""Pixels of a line of a picture's text."""
CONTRAST = 4.5
"""Of text and what is behind it, as WCAG's level AA has it."""
SEEN = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
  const light = pixel => [0, 1, 2].map(i => pixel[i] / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const paint = colours => {
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1) }
    return light(canvas.getImageData(0, 0, 1, 1).data)
  }
  const faint = [], small = []
  for (const each of document.querySelectorAll('.ptxkit *')) {
    const words = [...each.childNodes].filter(n => n.nodeType === 3 && n.data.trim()).map(n => n.data.trim()).join(' ')
    if (!words || each.tagName === 'STYLE' || each.tagName === 'title' || !each.getClientRects().length) continue
    if (each.tagName === 'text') {
      const box = each.getBoundingClientRect(), all = each.ownerSVGElement
      const cut = getComputedStyle(all).overflow !== 'visible' && box.right > all.getBoundingClientRect().right + 1
      if (box.height < SMALLEST || cut) small.push(words)
      continue
    }
    const behind = []
    for (let at = each; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor)
    const [a, b] = [paint(behind), paint([...behind, getComputedStyle(each).color])].sort((x, y) => y - x)
    const ratio = (a + .05) / (b + .05)
    if (ratio < CONTRAST) faint.push(`${ratio.toFixed(1)}: ${words.slice(0, 40)}`)
  }
  return {faint, small, wide: document.documentElement.scrollWidth - innerWidth, title: document.title,
          scripts: document.querySelectorAll('script').length, outputs: document.querySelectorAll('.ptxkit').length}
})()""".replace("SMALLEST", str(SMALLEST_TEXT)).replace("CONTRAST", str(CONTRAST))


@kernel(block=64)
def nasty(out: Ptr[u32], n: Reg[u32], *, MODE: str = NASTY) -> None:
    """Takes `a<b>&"c"`, </div> and <script>."""
    smem.tile(bf16, (4, 64, 64), name=NASTY)
    smem.tile(bf16, (16, 5056), name="wide_" + "x" * 90)
    st.global_.u32(out, n)
    with if_(mov.u32(tid.x) == 1):
        bar.sync(0)


@kernel(block=64)
def untraced(out: Ptr[u32]) -> None:
    raise ValueError(NASTY)


def shown() -> dict[str, Any]:
    words, ones = np.zeros(64, np.uint32), np.ones(256, np.float32)
    a, b, c = np.ones((64, 128), np.float16), np.eye(256, 128, dtype=np.float16), np.zeros((64, 256), np.float32)
    session = example.tile_gemm.debug(1, a.astype("bfloat16"), b.astype("bfloat16"), c, 2)
    session.break_phase("full[1]")
    space = Space(THREADS=(64, 2048), EACH=tuple(range(1, 60))).where(lambda THREADS, EACH: THREADS * EACH <= 2048, NASTY)
    return {
        "kernel": nasty, "not traced": untraced, "plan": nasty.trace().shared, "findings": nasty.check(),
        "report": nasty.simulate(2, words, 3),
        "5,056 columns": Layout.of(bf16, 16, 5056), "5,056 rows": Layout.of(bf16, 5056, 64, major="mn"),
        "one chunk": Layout.of(bf16, 5000, 8),
        "descriptor": decode(0x4000004000010040), "tensor map": TensorMapFields(bf16, (5000, 300), (10000,), (64, 64)), "space": space,
        "timeline": axpy.simulate(4, ones, ones.copy(), 256, marks=True).timeline, "entries": entries(example.tile_gemm),
        "stop": session.go(), "session": session, "warps": session.warps(), "barriers": session.barriers(), "flight": session.flight(),
        "registers": session.registers(), "tile": session.tile("B", stage=1),
    }


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    pytest.importorskip("ml_dtypes")
    return {name: made._repr_html_() for name, made in shown().items()}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_outputs_are_readable(browser: Browser, outputs: dict[str, str], tmp_path: Path, theme: str, width: str) -> None:
    path = tmp_path / "cells.html"
    cells = "".join(f'<div style="margin:1em 1em 1em 0">{each}</div>' for each in outputs.values())
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>cells</title><link rel="icon" href="data:,">'
                    f'<body style="{THEMES[theme]};font:14px sans-serif">{cells}</body>', encoding="utf-8")
    page = browser.open(path, WIDTHS[width], 900, dark=theme == "dark")
    seen = page.evaluate(SEEN)
    assert page.errors() == []
    page.close()
    assert seen == {"faint": [], "small": [], "wide": 0, "title": "cells", "scripts": 0, "outputs": len(outputs)}


def test_a_word_that_is_too_long_for_a_column_is_broken(browser: Browser, outputs: dict[str, str], tmp_path: Path) -> None:
    """The other columns keep the width that their words need, and rows stay low."""
    path = tmp_path / "plan.html"
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>plan</title><link rel="icon" href="data:,">{outputs["plan"]}',
                    encoding="utf-8")
    page = browser.open(path, 390, 900)
    table = page.box("table.t")
    page.close()
    assert table["width"] < 600
