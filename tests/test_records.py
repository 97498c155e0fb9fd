"""Recorded results are listed, small and read: benchmarks/results/README.md against the files, and every link to them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.compact import compact

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MOST_BYTES = 1_500_000
ROW = re.compile(r"^\| (?P<name>[\w.-]+\.(?:json|txt)) \| (?P<what>.+) \| (?P<date>2\d{3}-\d\d-\d\d)[^|]* \| (?P<readers>[^|]+) \|$", re.M)

pytestmark = pytest.mark.pure


def faults(folder: Path, root: Path) -> list[str]:
    """What is wrong with a folder of results and the list in its README."""
    rows = {row["name"]: row for row in ROW.finditer((folder / "README.md").read_text(encoding="utf-8"))}
    files = {path.name: path.stat().st_size for path in folder.iterdir() if path.name != "README.md"}
    found = [f"{name} is not listed" for name in files.keys() - rows.keys()]
    found += [f"{name} is listed and not there" for name in rows.keys() - files.keys()]
    if (total := sum(files.values())) > MOST_BYTES:
        found.append(f"{total:,} bytes in all, at most {MOST_BYTES:,}")
    for name, row in rows.items():
        if not re.search(r"h200|h100|H200|H100|no card", name + row["what"]):
            found.append(f"{name}: no card is named")
        readers = [root / reader for reader in row["readers"].split(", ")]
        found += [f"{name}: {reader.relative_to(root)} is not there" for reader in readers if not reader.exists()]
        if not any(name in reader.read_text(encoding="utf-8") for reader in readers if reader.suffix in (".md", ".py") and reader.exists()):
            found.append(f"{name}: none of {row['readers']} names it")
    return sorted(found)


def test_every_file_is_listed_small_and_read() -> None:
    assert faults(RESULTS, ROOT) == []
    assert len(ROW.findall((RESULTS / "README.md").read_text(encoding="utf-8"))) > 20


def test_a_wrong_list_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("[figures](a-h200.json) b.json large-h200.json", encoding="utf-8")
    (tmp_path / "README.md").write_text("\n".join((
        "| a-h200.json | a run | 2026-11-21 | page.md |", "| b.json | a run | 2026-11-21 | page.md |",
        "| gone-h200.json | a run | 2026-11-21 | page.md |", "| large-h200.json | a run | 2026-11-21 | none.py |")), encoding="utf-8")
    folder = tmp_path / "results"
    folder.mkdir()
    (tmp_path / "README.md").rename(folder / "README.md")
    for name, size in (("a-h200.json", 1), ("b.json", 1), ("new-h200.json", 1), ("large-h200.json", MOST_BYTES)):
        (folder / name).write_bytes(bytes(size))
    assert faults(folder, tmp_path) == [
        "1,500,003 bytes in all, at most 1,500,000", "b.json: no card is named", "gone-h200.json is listed and not there",
        "gone-h200.json: none of page.md names it", "large-h200.json: none of none.py names it", "large-h200.json: none.py is not there",
        "new-h200.json is not listed"]


def test_what_is_cited_is_there() -> None:
    """In pages, in code and in tests."""
    pages = [path for folder in ("docs", "grammar", "ptxkit", "gemm", "tests", "benchmarks", "examples")
             for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py") and "api" not in path.parts]
    cited = {(page.relative_to(ROOT), name) for page in (*pages, *ROOT.glob("*.md"))
             for name in re.findall(r"benchmarks/results/([\w.-]*\w)", page.read_text(encoding="utf-8"))}
    assert len(cited) > 30
    assert [f"{page}: {name}" for page, name in sorted(cited) if not (RESULTS / name).exists()] == []


def test_a_run_is_written_compactly() -> None:
    run = {"what": "x" * 150, "rows": [{"case": "8x8", "us": 1.23456789, "rounds": 20}, {"us": [2.0, 3.5]}], "empty": {}, 3: None}
    text = compact(run)
    assert text.splitlines() == ["{", f'"what":"{"x" * 150}",', '"rows":[{"case":"8x8","us":1.23457,"rounds":20},{"us":[2,3.5]}],',
                                 '"empty":{},', '"3":null', "}"]
    assert json.loads(text)["rows"] == [{"case": "8x8", "us": 1.23457, "rounds": 20}, {"us": [2, 3.5]}]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_files_are_compact(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert compact(json.loads(text)) == text
