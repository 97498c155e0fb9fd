"""The public names of ptxkit: each is found wherever it is asked for first, and by type checkers."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ptxkit

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[2]
ADAPTERS = {"torch"}
"""Packages that import the framework of their name, which may not be here."""
BEGUN = sorted(path.stem for path in (ROOT / "ptxkit").iterdir()
               if not path.stem.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
               and not (path.stem in ADAPTERS and find_spec(path.stem) is None))
"""The modules and packages that lie in ptxkit."""

AFTER = """
import json, sys
from importlib import import_module
found = {}
for first in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ptxkit"]:
        del sys.modules[name]
    import_module(f"ptxkit.{first}")
    found[first] = {}
    for name in import_module("ptxkit").__all__:
        space = {}
        exec(f"from ptxkit import {name} as value; import ptxkit; assert ptxkit.{name} is value", space)
        found[first][name] = f"{type(space['value']).__name__} {getattr(space['value'], '__module__', '')}"
print(json.dumps(found))
"""


@pytest.mark.thinned(97)
@pytest.mark.parametrize("part", range(16))
def test_every_name_is_found_whatever_was_imported_first(part: int) -> None:
    begun = sorted({"types", *BEGUN[part::16]})
    done = subprocess.run([sys.executable, "-c", AFTER, *begun], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == set(begun)
    assert set(found["types"]) == set(ptxkit.__all__)
    assert [first for first in begun if found[first] != found["types"]] == []


def test_type_checkers_see_the_same_names() -> None:
    source = ast.parse((ROOT / "ptxkit" / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = (node for node in source.body if isinstance(node, ast.If))
    shown = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom | ast.FunctionDef)
        shown |= {alias.name: f".{node.module or ''}" for alias in node.names} if isinstance(node, ast.ImportFrom) \
            else {node.name: ptxkit._WHERE[node.name]}
    table = {**ptxkit._WHERE, **{name: module.removesuffix(name).rstrip(".") or "." for name, module in ptxkit._MODULES.items()
                                 if name in ptxkit.__all__}}
    assert shown == table
    assert sorted(shown) == sorted(ptxkit.__all__)


def test_what_is_said_again_is_what_is_defined() -> None:
    source = ast.parse((ROOT / "ptxkit" / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = (node for node in source.body if isinstance(node, ast.If))
    said = [node for node in guarded.body if isinstance(node, ast.FunctionDef)]
    assert said
    for node in said:
        path = ROOT.joinpath("ptxkit", *ptxkit._WHERE[node.name].split(".")).with_suffix(".py")
        (defined,) = (each for each in ast.parse(path.read_text(encoding="utf-8")).body
                      if isinstance(each, ast.FunctionDef) and each.name == node.name)
        assert ast.unparse(node.args) == ast.unparse(defined.args)
        assert ast.unparse(node.returns or ast.Constant(None)) == ast.unparse(defined.returns or ast.Constant(None))


def test_a_package_lists_its_names() -> None:
    assert {*ptxkit.__all__, "gemm", "grammar", "types"} <= set(dir(ptxkit))
    with pytest.raises(AttributeError, match="module 'ptxkit' has no attribute 'wgmma'"):
        _ = ptxkit.wgmma  # type: ignore[attr-defined]
