"""What mkdocs does besides: pages made from docstrings, pages of the repository's root, and pages of the sources that others link to.

A link that leads out of docs/ leads to a page of the site: to the text of that file, or to the list of that folder.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import sys
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOT_PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages beside docs/, by their names on the site."""
OPTIONAL = {"attention.md"}
"""Pages of the navigation that may not be there."""
MOST_CHARACTERS = 200_000
"""Of a longer file the beginning is shown."""
_SOURCE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{path}</title><meta name="color-scheme" content="light dark">
<h1 style="font:1.2em sans-serif">{path}</h1>{body}</html>
"""
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
_FILE = re.compile(r"\[(?:[\w-]+/)*[\w-]+\.md\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


@cache
def generator() -> Any:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("ptxkit_docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ptxkit_docs_generate"] = module
    spec.loader.exec_module(module)
    return module


def address(path: str) -> str:
    """The page of the site for a path of the repository: `docs/a.md` is a.md, `gemm/b.py` is source/gemm/b.py.html."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path == "docs" or path.startswith("docs/"):
        return path[5:] or "index.md"
    return f"source/{path}/index.html" if (ROOT / path).is_dir() else f"source/{path}.html"


def rewritten(text: str, place: str) -> tuple[str, set[str]]:
    """The page `place` of the repository with links to pages of the site, and the paths out of docs/ that they lead to."""
    sources: set[str] = set()
    here = posixpath.dirname(address(place)) or "."

    def lead(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if not (ROOT / path).exists():
            return found[0]
        if not path.startswith("docs") and path not in ROOT_PAGES:
            sources.add(path)
        return f"{found[1]}{posixpath.relpath(address(path), here)}{'#' + anchor if anchor else ''}{found[3]}"

    pieces: list[str] = []
    at = 0
    for found in _FENCE.finditer(text):
        pieces += [_LINK.sub(lead, text[at:found.start()]), found[0]]
        at = found.end()
    return "".join([*pieces, _LINK.sub(lead, text[at:])]), sources


def named(text: str, place: str, titles: Mapping[str, str]) -> str:
    """The page at an address with links called by the titles of pages where they were called by files."""
    def name(found: re.Match[str]) -> str:
        title = titles.get(posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1])))
        return f"[{title}]({found[1]}{found[2] or ''})" if title else found[0]

    return _FILE.sub(name, text)


def titles_of(nav: Any) -> dict[str, str]:
    """The titles of the navigation by address."""
    if isinstance(nav, list):
        return {address: title for each in nav for address, title in titles_of(each).items()}
    if isinstance(nav, str):
        return {}
    ((title, below),) = nav.items()
    return {below: title} if isinstance(below, str) else titles_of(below)


def source_page(path: str) -> str:
    """A file as it is, or a folder as a list, as HTML by itself: hundreds of them cost nothing."""
    place = ROOT / path
    if place.is_dir():
        body = "".join(f"<li>{escape(each.name)}{'/' * each.is_dir()}</li>" for each in sorted(place.iterdir()) if each.name[0] not in "._")
        return _SOURCE.format(path=escape(path) + "/", body=f"<ul>{body}</ul>")
    text = place.read_text(encoding="utf-8")
    rest = f"\n... {len(text) - MOST_CHARACTERS:,} more characters" if len(text) > MOST_CHARACTERS else ""
    return _SOURCE.format(path=escape(path), body=f"<pre>{escape(text[:MOST_CHARACTERS] + rest)}</pre>")


def made() -> dict[str, str]:
    """Every page that has no file in docs/, by its address."""
    pages = {f"api/{name}": text for name, text in generator().pages().items()}
    pages |= {address(name): rewritten((ROOT / name).read_text(encoding="utf-8"), name)[0] for name in ROOT_PAGES}
    for path in (*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ROOT_PAGES)):
        found = rewritten(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())[1]
        pages |= {address(source): source_page(source) for source in found if address(source) not in pages}
    return pages


def boost(path: str) -> float:
    """The weight of a page in the search: guides come before names, and names before what was tried once."""
    if path.startswith("api/"):
        return 0.3
    return {"glossary.md": 3.0, "changelog.md": 0.1, "experiments.md": 0.2, "grouped-performance.md": 0.2}.get(path, 1.0)


# --------------------------------------------------------------------------------------------------- what mkdocs calls


def on_config(config: Any) -> Any:
    config.nav = [left for each in config.nav if (left := present(each)) is not None]
    config.watch.append(str(ROOT / "README.md"))
    return config


def present(entry: Any) -> Any:
    """An entry of the navigation without the optional pages that are not there."""
    if isinstance(entry, str):
        return entry if entry not in OPTIONAL or (ROOT / "docs" / entry).exists() else None
    ((title, below),) = entry.items()
    if isinstance(below, list):
        return {title: [left for each in below if (left := present(each)) is not None]}
    return entry if present(below) else None


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, text in made().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    path = page.file.src_uri
    page.meta.setdefault("search", {"boost": boost(path)})
    if path == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    text = markdown if page.file.generated_by else rewritten(markdown, f"docs/{path}")[0]
    return named(text, path, titles_of(config.nav))
