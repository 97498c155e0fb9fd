"""What docs/torch.md shows runs, and prints what the page says."""

from __future__ import annotations

import itertools

from tests.test_docs import ROOT, blocks, run
from tests.torch import wanted

wanted(__name__)


def test_the_page_prints_what_it_shows() -> None:
    page = ROOT / "docs" / "torch.md"
    found, names = blocks(page), {"__name__": "page"}
    assert {block.language for block in found} == {"python", "text"}
    for block, after in itertools.pairwise([*found, None]):
        if block is not None and block.language == "python":
            shown = after.text if after is not None and after.language == "text" else ""
            assert run(block, page, names).strip() == shown.strip(), f"docs/torch.md:{block.line + 1}"
