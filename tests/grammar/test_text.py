"""Laws of text and tree: what is written parses back to an equal tree, `repr` evaluates back, and equal trees give equal bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import lark
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptxkit import grammar
from ptxkit.grammar import tree
from ptxkit.grammar.readers import reference
from ptxkit.grammar.write import write_instruction, write_operand

from . import trees

pytestmark = [pytest.mark.pure, pytest.mark.timeout(120)]

CORPUS = sorted((Path(__file__).parents[1] / "corpus").glob("*.ptx"))
EXAMPLES = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def evaluated(node: object) -> object:
    return eval(repr(node), dict(vars(tree)))


def fault(module: tree.Module, write: Callable[[tree.Module], str] = grammar.write) -> str:
    """What is wrong with a module's round trip; empty when nothing is."""
    text = write(module)
    back = grammar.parse(text)
    if back != module:
        return "the text parses to another tree"
    if grammar.write(back) != text:
        return "the same tree is written in two ways"
    if evaluated(module) != module:
        return "repr does not evaluate back"
    return ""


@EXAMPLES
@given(trees.modules)
def test_modules_survive_the_round_trip(module: tree.Module) -> None:
    assert fault(module) == ""


@EXAMPLES
@given(st.lists(trees.instructions, min_size=1, max_size=12))
def test_instructions_survive_the_round_trip(body: list[tree.Instruction]) -> None:
    module = tree.Module((9, 0), ("sm_90a",), 64, (tree.Function("func", "f", body=tuple(body)),))
    assert fault(module) == ""


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_survives_the_round_trip(path: Path) -> None:
    assert fault(grammar.parse(path.read_text())) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [("@!", "@"), ("|_", ", _"), ("+0]", "]"), (".align 8 ", ""), ("= 0f", "= 0d00000000"), ("{h0, _}", "{h0, h1}")],
    ids=repr,
)
def test_the_round_trip_catches_a_writer_that_loses_something(old: str, new: str) -> None:
    module = grammar.parse(next(path for path in CORPUS if path.stem == "language").read_text() + ".global .f32 last = 0f3F800000;")
    assert old in grammar.write(module)
    assert fault(module, lambda module: grammar.write(module).replace(old, new)) != ""


def test_a_strategy_reaches_every_node_of_the_tree() -> None:
    """A node that no strategy makes would be a law without witnesses."""
    wanted = {"Loc", "Block", "Prototype", "Targets", "Element", "Minus", "Offset", "TensorAddress", "Arguments", "Section", "Alias",
              "Aggregate", "Expression", "Pointer", "Pair", "Not", "Guard", "Float", "Text"}
    seen: set[str] = set()

    @settings(max_examples=450, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(trees.modules, st.lists(trees.instructions, max_size=9))
    def look(module: tree.Module, body: list[tree.Instruction]) -> None:
        text = repr((module, body))
        seen.update(name for name in wanted if f"{name}(" in text)

    look()
    assert wanted <= seen


def test_the_text_is_readable() -> None:
    module = grammar.parse(HEAD + """
.visible .entry k(.param .u64 a, .param .align 64 .b8 map[128]) .maxntid 128, 1, 1 .minnctapersm 1 {
.reg .b32 %r<5>, x; .reg .pred p; START: @!p bra DONE; { .reg .b32 y; ld.global.v2.b32 {x, _}, [y+-8]; } DONE: ret; }""")
    assert grammar.write(module) == HEAD + """
.visible .entry k(
    .param .u64 a,
    .param .align 64 .b8 map[128]
)
.maxntid 128, 1, 1
.minnctapersm 1
{
    .reg .b32 %r<5>;
    .reg .b32 x;
    .reg .pred p;

START:
    @!p bra DONE;
    {
        .reg .b32 y;

        ld.global.v2.b32 {x, _}, [y+-8];
    }
DONE:
    ret;
}
"""


def test_line_information_can_be_left_out() -> None:
    text = HEAD + '.file 1 "a.cu"\n.func f() { .loc 1 2 3\n ret; }'
    module = grammar.parse(text)
    assert ".loc 1 2 3" in grammar.write(module)
    assert '.file 1 "a.cu"' in grammar.write(module)
    bare = grammar.write(module, locs=False)
    assert ".loc" not in bare
    assert ".file" not in bare


@pytest.mark.parametrize("value", ['a"b', "a\nb"])
def test_a_string_that_ptx_cannot_say_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="quote or a line break"):
        grammar.write(tree.Module((9, 0), ("sm_90a",), 64, (tree.Directive("pragma", (tree.Text(value),)),)))


def test_what_is_no_operand_is_refused() -> None:
    with pytest.raises(TypeError, match="Guard is not an operand"):
        write_operand(tree.Guard("p"))  # type: ignore[arg-type]


def test_one_instruction() -> None:
    add = tree.Instruction("add.s32", (tree.Name("%r1"), tree.Name("%r2"), tree.Integer(-1)), tree.Guard("p", True))
    assert write_instruction(add) == "@!p add.s32 %r1, %r2, -1;"


# -------------------------------------------------------------------------------------------------- the grammar


def conflicts(text: str, start: str) -> list[str]:
    """The shift/reduce choices that lark makes in silence."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    level = lark.logger.level
    lark.logger.addHandler(handler)
    lark.logger.setLevel(logging.DEBUG)
    try:
        lark.Lark(text, parser="lalr", lexer="contextual", start=start, debug=True)
    finally:
        lark.logger.removeHandler(handler)
        lark.logger.setLevel(level)
    return [message for message in said if "onflict" in message]


def test_the_grammar_has_no_conflicts() -> None:
    assert conflicts(Path(reference.__file__).with_name("ptx.lark").read_text(), "module") == []


def test_a_conflict_would_be_seen() -> None:
    assert conflicts('start: "if" start | "if" start "else" start | "x"', "start")
