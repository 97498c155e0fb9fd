"""A trace is checked on its own tree. What is found, and where, is what its text would give."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from ptxkit import grammar
from ptxkit.check import _check, check
from ptxkit.cli.source import kernel_of
from ptxkit.dsl.kernel import Kernel
from ptxkit.dsl.traced import Traced
from ptxkit.gemm import ladder
from ptxkit.gemm.launch.grid import kernel_of as kernel_for
from ptxkit.gemm.tools.samples import pairwise
from ptxkit.grammar import tree
from ptxkit.grammar.errors import Finding

from ..inspect.subjects import kernels
from ..lift.test_lift import CORPUS, whole
from ..sim.mutants.more import MUTANTS
from ..sim.mutants.subjects import SUBJECTS

pytestmark = [pytest.mark.pure, pytest.mark.timeout(300)]


def bundled() -> Iterator[Traced]:
    """The kernels of gemm, its ladder and the examples as they are, the first also in configurations that pair all its choices."""
    for source in kernels().values():
        kernel, config = kernel_of(source)
        yield kernel.trace(**config)
    for module in pkgutil.iter_modules(ladder.__path__):
        if module.name.startswith("step"):
            held = vars(importlib.import_module(f"{ladder.__name__}.{module.name}")).values()
            yield from (value.trace() for value in held if isinstance(value, Kernel) and value.function.__module__.endswith(module.name))
    for config in list(pairwise())[:24]:
        yield kernel_for(config).trace(**config.parameters)


def lifted() -> Iterator[Traced]:
    """What the DSL makes of the corpus: several functions, blocks, declarations and tables in bodies, debug sections."""
    yield from (next(iter(whole(path).kernels.values())).trace() for path in CORPUS)


def mistaken() -> Iterator[Traced]:
    """Kernels with a mistake each; statements that were put in have no position."""
    yield from (source for mutant in MUTANTS.values() if isinstance(source := mutant.source(), Traced))


def places(node: Any) -> Iterator[Any]:
    """Every statement and declaration with its place."""
    if isinstance(node, tree.Module):
        for item in node.items:
            yield from places(item)
        return
    if hasattr(node, "position"):
        yield node, node.position
    for inner in (*getattr(node, "returns", ()), *getattr(node, "parameters", ()), *(getattr(node, "body", None) or ())):
        yield from places(inner)


def of_text(traced: Traced) -> tuple[Finding, ...]:
    """What the text of the trace earns."""
    return _check(grammar.parse(traced.ptx(locs=True)), traced.positions(), traced, False, protocols=True)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("traces", [bundled, lifted, mistaken])
def test_every_statement_has_the_place_that_it_has_in_the_text(traces: Any) -> None:
    count = 0
    for traced in traces():
        module, authors = traced.numbered()
        read, lines = grammar.parse(traced.ptx(locs=True)), traced.positions()
        assert module == read
        assert list(places(module)) == list(places(read)), traced.name
        assert {line: lines.get(line) for line in authors} == authors
        told = [position.line for node, position in places(read) if isinstance(node, tree.Instruction | tree.Label)]
        assert [line for line in told if line in lines and line not in authors] == []
        count += 1
    assert count > 15


def test_mistakes_are_found_at_the_same_places() -> None:
    found = []
    for number, traced in enumerate(mistaken()):
        if number % 12 == 0:
            here = check(traced)
            assert here == of_text(traced)
            found += here
    assert len(found) > 5
    assert any(finding.position is not None and finding.position.file and finding.ptx_line for finding in found)


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("traces", [bundled, lifted, mistaken])
def test_findings_are_those_of_the_text(traces: Any) -> None:
    assert [traced.name for traced in traces() if check(traced) != of_text(traced)] == []


def test_the_text_is_neither_written_nor_read(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = SUBJECTS["tile_gemm"].original

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("not needed for a trace")

    for module, name in (("read", "parse"), ("read", "parse_all"), ("write", "write")):
        monkeypatch.setattr(importlib.import_module(f"ptxkit.grammar.{module}"), name, refused)
    traced._text.clear()
    assert check(traced) == ()
