"""The notebooks run from top to bottom without Jupyter and without a GPU, and their stored outputs are what the cells give."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ptxkit.runtime import toolchain
from tests.html.pages import read as read_html
from tests.notebooks.runner import ASSEMBLER, NOTEBOOKS, Ran, read, run, same_here, text_of, write

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]
ROOT = Path(__file__).parents[2]
TAGS = {"gpu", f"ptxas-{ASSEMBLER}"}
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def compare(ran: Ran) -> None:
    if hasattr(ran.value, "_repr_html_"):
        assert len(read_html(ran.value._repr_html_()).text) > 10
    if same_here(ran.cell):
        assert ran.cell["outputs"] == ran.outputs, f"cell {ran.number}: run `python -m tests.notebooks.runner` and look at the difference"
    assert ran.cell["execution_count"] == ran.number


def test_the_notebooks_are_these() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["01_first_kernel", "02_reading_ptx_sass_descriptors", "03_finding_a_race",
                                                 "04_tuning_a_kernel"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_it_shows(path: Path) -> None:
    shown = 0
    for ran in run(read(path)):
        compare(ran)
        shown += hasattr(ran.value, "_repr_html_")
    assert shown >= 3, "a notebook shows pictures"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_assembler(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that need ptxas say that it is missing; nothing else changes."""
    def missing() -> toolchain.Tool:
        raise toolchain.NoToolError("there is no ptxas")

    monkeypatch.setattr(toolchain, "ptxas", missing)
    for ran in run(read(path)):
        tags = ran.cell["metadata"].get("tags", [])
        if f"ptxas-{ASSEMBLER}" in tags:
            assert ran.printed == "ptxas is missing: pip install ptxkit[toolchain]\n"
        elif not tags:
            assert ran.cell["outputs"] == ran.outputs


def compare_all(notebook: dict[str, Any]) -> None:
    for ran in run(notebook):
        compare(ran)


def planted(change: str) -> dict[str, Any]:
    notebook = copy.deepcopy(read(NOTEBOOKS[0]))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if change == "raises":
        code[4]["source"] = ["1 / 0"]
    elif change == "printed":
        code[2]["outputs"][0]["text"][0] = ".version 8.1\n"
    elif change == "result":
        code[4]["outputs"][0]["data"]["text/plain"] = ["False"]
    elif change == "stored too much":
        code[3]["outputs"] = copy.deepcopy(code[4]["outputs"])
    elif change == "order":
        code[4]["execution_count"] = 40
    return notebook


@pytest.mark.parametrize("change", ["raises", "printed", "result", "stored too much", "order"])
def test_a_wrong_notebook_is_found(change: str) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        compare_all(planted(change))


# --------------------------------------------------------------------------------------------------- the format


def faults(notebook: dict[str, Any]) -> list[str]:
    """What breaks the rules of nbformat 4.5, or the house's own: no machine's traces, no stored HTML."""
    found = [] if (notebook.get("nbformat"), notebook.get("nbformat_minor")) == (4, 5) else ["the version is not 4.5"]
    found += [f"the notebook has {key}" for key in notebook.keys() - {"cells", "metadata", "nbformat", "nbformat_minor"}]
    if notebook["metadata"] != {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                                "language_info": {"name": "python"}}:
        found.append("the metadata are not those of any Python 3")
    ids = [cell.get("id", "") for cell in notebook["cells"]]
    found += [f"the id {each!r} is not legal" for each in ids if not ID.fullmatch(each)]
    found += ["two cells have one id"] if len(set(ids)) != len(ids) else []
    for cell in notebook["cells"]:
        keys = {"cell_type", "id", "metadata", "source"} | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        found += [f"{cell.get('id')}: its keys are {sorted(cell)}"] if set(cell) != keys else []
        found += [f"{cell.get('id')}: it is a {cell['cell_type']} cell"] if cell["cell_type"] not in ("code", "markdown") else []
        tags = cell["metadata"].get("tags", [])
        found += [f"{cell.get('id')}: metadata {cell['metadata']}"] if set(cell["metadata"]) - {"tags"} or set(tags) - TAGS else []
        source = cell["source"]
        found += [f"{cell.get('id')}: the source is not a list of lines"] if not lines(source) else []
        for output in cell.get("outputs", []):
            match output:
                case {"output_type": "stream", "name": "stdout", "text": text} if set(output) == {"output_type", "name", "text"}:
                    found += [f"{cell['id']}: the text is not a list of lines"] if not lines(text) else []
                case {"output_type": "execute_result", "data": {"text/plain": text, **more}, "metadata": {}, "execution_count": int()}:
                    found += [f"{cell['id']}: stored {sorted(more)}"] if more or not lines(text) else []
                case _:
                    found.append(f"{cell.get('id')}: an output {output.get('output_type')}")
    return found


def lines(text: Any) -> bool:
    """A list of lines, of which each but the last ends."""
    return isinstance(text, list) and all(isinstance(each, str) and each.count("\n") <= 1 for each in text) and \
        all(each.endswith("\n") for each in text[:-1])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_the_format(path: Path) -> None:
    notebook = read(path)
    assert faults(notebook) == []
    assert path.read_text(encoding="utf-8") == text_of(notebook), "written by `python -m tests.notebooks.runner`"
    assert path.stat().st_size < 30_000
    assert not re.search(r"ipykernel|/tmp/|/home/|/usr/|[A-Z]:\\", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", ["version", "id", "same id", "key", "metadata", "tag", "html", "source", "stderr"])
def test_a_fault_of_the_format_is_found(fault: str) -> None:
    notebook = copy.deepcopy(read(NOTEBOOKS[0]))
    cells = notebook["cells"]
    result = next(cell for cell in cells if cell["cell_type"] == "code" and cell["outputs"] and "data" in cell["outputs"][0])
    match fault:
        case "version":
            notebook["nbformat_minor"] = 4
        case "id":
            cells[0]["id"] = "a b"
        case "same id":
            cells[0]["id"] = cells[1]["id"]
        case "key":
            cells[0]["outputs"] = []
        case "metadata":
            notebook["metadata"]["language_info"]["version"] = "3.11.7"
        case "tag":
            cells[0]["metadata"]["tags"] = ["skip"]
        case "html":
            result["outputs"][0]["data"]["text/html"] = ["<p>"]
        case "source":
            cells[0]["source"] = "".join(cells[0]["source"])
        case "stderr":
            result["outputs"].append({"output_type": "stream", "name": "stderr", "text": ["x"]})
    assert len(faults(notebook)) == 1


@pytest.mark.skipif(importlib.util.find_spec("nbformat") is None, reason="nbformat is not installed")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nbformat_takes_a_notebook(path: Path) -> None:
    import nbformat  # type: ignore[import-not-found]

    nbformat.validate(json.loads(path.read_text(encoding="utf-8")))


# --------------------------------------------------------------------------------------------------- how they read


def shown_classes(folder: Path) -> set[str]:
    """The classes that define `_repr_html_`."""
    return {node.name for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef) and "_repr_html_" in {getattr(each, "name", "") for each in node.body}}


def test_the_page_names_the_notebooks_and_all_that_they_show() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    found = {name.removeprefix("Live") for name in shown_classes(ROOT / "ptxkit")}       # the page says Session for a LiveSession
    assert {"Kernel", "Layout", "Report", "Rows", "Session"} <= found
    said = set(re.findall(r"`(\w+)`", page))
    views = {"Rows", "Matrix", "Stop", "Descriptor"}                     # said as views of a session, and as what a trace has
    assert found - views - said == set()
    assert all(f"../examples/notebooks/{path.name}" in page for path in NOTEBOOKS)


def test_outputs_of_another_assembler_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> toolchain.Tool:
        raise toolchain.NoToolError("there is no ptxas")

    monkeypatch.setattr(toolchain, "ptxas", missing)
    written = tmp_path / NOTEBOOKS[0].name
    written.write_bytes(NOTEBOOKS[0].read_bytes())
    write(written)
    assert written.read_bytes() == NOTEBOOKS[0].read_bytes()


def test_the_command_that_writes_outputs_changes_nothing(tmp_path: Path) -> None:
    written = tmp_path / NOTEBOOKS[2].name
    written.write_bytes(NOTEBOOKS[2].read_bytes())
    write(written)
    assert written.read_bytes() == NOTEBOOKS[2].read_bytes()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_well(path: Path) -> None:
    """A title, words before code, links that lead somewhere, lines that fit a screen."""
    cells = read(path)["cells"]
    assert cells[0]["source"][0].startswith("# ")
    assert cells[-1]["cell_type"] == "markdown"
    for cell in cells:
        text = "".join(cell["source"])
        assert text.strip() == text
        assert max(map(len, text.splitlines())) <= (145 if cell["cell_type"] == "markdown" else 115), cell["id"]
        if cell["cell_type"] == "markdown":
            for target in LINK.findall(text):
                assert (path.parent / target).exists(), target
        else:
            assert len(text.splitlines()) <= 36, cell["id"]
            for output in cell["outputs"]:                               # what Jupyter would not lay out in another way
                assert output["output_type"] == "stream" or all(len(line) < 79 for line in output["data"]["text/plain"])
    stems = {other.name for other in NOTEBOOKS if other != path}
    assert stems & {target for cell in cells for target in LINK.findall("".join(cell["source"]))} or path == NOTEBOOKS[-1]
