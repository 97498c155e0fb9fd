"""A module of many entries is not gone through for each of them, and each is judged as if it stood alone with what it uses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ptxkit.check import check_text
from ptxkit.check.places import Places
from ptxkit.check.program import parts, routine
from ptxkit.grammar import parse, tree

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))


def entries(count: int) -> str:
    each = "\n{{\n.reg .b64 %rd<2>;\nmov.u64 %rd1, g{0};\ncall f{0}, ();\nret;\n}}\n"
    return HEAD + "".join(f".global .b32 g{i};\n.func f{i}()\n{{\nret;\n}}\n.visible .entry k{i}(){each.format(i)}" for i in range(count))


def work(text: str) -> int:
    """Calls of functions, and steps of generators, for one check."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        assert check_text(text) == ()
    finally:
        sys.setprofile(None)
    return count


def test_work_is_linear_in_the_number_of_entries() -> None:
    check_text(entries(2))
    small, large = work(entries(30)), work(entries(120))
    assert large < 4.5 * small, f"{small} calls became {large}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_part_is_all_that_a_routine_is_made_of(path: Path) -> None:
    module = parse(path.read_text())
    places = Places(module, None)
    assert [entry.name for entry, _ in parts(module)] == [entry.name for entry in module.entries]
    for entry, part in parts(module):
        ours, whole = routine(part, entry, places), routine(module, entry, places)
        assert [(site.instruction, site.values, site.targets) for site in ours.sites] == \
            [(site.instruction, site.values, site.targets) for site in whole.sites]
        assert ours.registers == whole.registers
        unused = whole.variables.keys() - ours.variables.keys()
        assert ours.variables == {name: whole.variables[name] for name in whole.variables if name not in unused}
        assert not any(name in unused for site in whole.sites for name in (*site.reads, *site.writes))


def test_the_part_of_a_single_entry_is_the_module() -> None:
    one = parse(entries(1))
    assert [part for _, part in parts(one)] == [one]
    assert all(part != parse(entries(2)) for _, part in parts(parse(entries(2))))


def test_a_part_has_what_is_called_by_another_name() -> None:
    module = parse(""".version 9.0\n.target sm_90a\n.shared .b32 s;\n.shared .b32 t;\n.visible .func other();
.visible .func f() { .reg .b32 a; ld.shared.b32 a, [s]; ret; }\n.alias other, f;
.visible .entry k() { call other; ret; }\n.visible .entry l() { ret; }\n""")
    (entry, part), (_, empty) = parts(module)
    assert {getattr(item, "name", "") for item in part.items} == {"s", "other", "f", "k"}
    assert [item.name for item in empty.items if isinstance(item, tree.Function)] == ["l"]
    places = Places(module, None)
    assert [site.instruction for site in routine(part, entry, places).sites] == [
        site.instruction for site in routine(module, entry, places).sites]
