"""What docs/torch.md shows runs, and prints what the page says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.test_docs import ROOT, blocks, run
from tests.torch import wanted

torch = wanted(__name__)


def test_the_readmes_model_is_trained(device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines as they stand; on the CPU device with smaller numbers, and compiled without a C++ compiler."""
    (block,) = [block for block in blocks(ROOT / "README.md") if "swap_linear" in block.text]
    assert len(block.text.strip().splitlines()) == 10
    text = block.text
    if device == "cpu":
        for number, smaller in (("1024", "32"), ("256", "16"), ("512", "32"), ("range(100)", "range(20)"), ('"cuda"', '"cpu"')):
            assert number in text
            text = text.replace(number, smaller)
        compiled = torch.compile
        monkeypatch.setattr(torch, "compile", lambda model, **more: compiled(model, backend="aot_eager", **more))
    names: dict[str, Any] = {"losses": []}
    torch.manual_seed(0)
    exec(text + "\n    losses.append(loss.item())", names)
    assert capsys.readouterr().out.strip() == "replaced 2 of 2 linear layers"
    assert names["losses"][-1] < 0.5 * names["losses"][0]


def test_the_page_prints_what_it_shows() -> None:
    page = ROOT / "docs" / "torch.md"
    found, names = blocks(page), {"__name__": "page"}
    assert {block.language for block in found} == {"python", "text"}
    for block, after in itertools.pairwise([*found, None]):
        if block is not None and block.language == "python":
            shown = after.text if after is not None and after.language == "text" else ""
            assert run(block, page, names).strip() == shown.strip(), f"docs/torch.md:{block.line + 1}"
