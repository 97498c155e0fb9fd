"""Lines near the table's own, legal and illegal: what the table spells, and single changes of it. ptxas judges them.

A change drops, doubles, inserts, exchanges or reorders modifiers, or replaces, drops, doubles, swaps, wraps or unwraps operands and
their parts: registers of another class, immediates, symbols of another space, lanes, pairs, negations, sinks, selectors.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ptxkit.check import check_text
from ptxkit.grammar import forms, isa, tree
from ptxkit.grammar.notation import compile_form
from ptxkit.grammar.schema import Form
from ptxkit.grammar.write import write_instruction
from tests.grammar import certify

_REGISTERS = tuple(tree.Name(f"%{type}_5") for type in certify.REGISTERS)
_NUMBERS: tuple[tree.Operand, ...] = tuple(map(tree.Integer, (0, 1, 2, 3, 5, 16, -1)))
_FLOATS: tuple[tree.Operand, ...] = (tree.Float.of(1.0, 32), tree.Float.of(1.0))
_VARIABLES = tuple(tree.Name(name) for name in dict.fromkeys(certify.SPACES.values()))
_SYMBOLS: tuple[tree.Operand, ...] = (*_VARIABLES, tree.Name("texture"), tree.Name("surface"))
_WORDS = tuple(map(tree.Name, ("%tid.x", "_")))
TOGETHER = 80  # lines in one module: of more than a hundred syntax errors the others are not told
_TYPES = frozenset(certify.REGISTERS)
_AXES = ("x", "b0", "b3", "h0", "h1", "h10", "b10", "b3210", "h32", "b7654")


@dataclass(frozen=True, slots=True)
class Line:
    """A line, the section of the manual that it is near to, and how it was made."""

    instruction: tree.Instruction
    section: str
    how: str

    @property
    def text(self) -> str:
        return write_instruction(self.instruction)


def types(name: str) -> str | None:
    """The types of the names of `certify`."""
    if name in certify.HANDLES.values():
        return ".global"
    if name in ("parameter", "argument", "passed"):
        return ".param"
    if name.endswith("_data"):
        return f".{name.removesuffix('_data')}"
    type, _, number = name.removeprefix("%").rpartition("_")
    return type if name[0] == "%" and number.isdigit() and type in certify.REGISTERS else None


def sections() -> dict[str, tuple[Form, ...]]:
    """The rows of each section of the manual."""
    found: dict[str, list[Form]] = {}
    for row in isa.FORMS:
        found.setdefault(row.section, []).append(row)
    return {section: tuple(rows) for section, rows in found.items()}


def lines(section: str, rows: tuple[Form, ...], count: int, rng: random.Random) -> Iterator[Line]:
    """About `count` different lines of a section: a quarter as the table spells them, the others changed once, few twice."""
    seen = set()
    for _ in range(count * 4):
        signature = walk(rng.choice(rows), rng)
        line = Line(spelled(signature, rng), section, "table")
        if rng.random() < 0.75:
            for _ in range(1 if rng.random() < 0.9 else 2):
                line = changed(line, rng)
        if line.text not in seen:
            seen.add(line.text)
            yield line
        if len(seen) == count:
            return


def walk(row: Form, rng: random.Random) -> forms.Signature:
    """A variant of the row, by a random walk through its opcode, so that rare modifiers come as often as others."""
    state = forms.start_of((row,))
    while True:
        following = tuple(state.next().values())
        found = state.signatures()
        if found and (not following or rng.random() < 0.3):
            return found[0]
        state = rng.choice(following)


def spelled(signature: forms.Signature, rng: random.Random) -> tree.Instruction:
    """The opcode with one choice for every operand."""
    while True:
        names = certify.Names(rng.randrange(30))
        present = rng.choice(list(certify.presences(signature)))
        values: list[tree.Operand | None] = []
        for parameter in signature.parameters:
            choices = certify.spellings(signature, parameter, names)
            value = choices[0] if rng.random() < 0.5 else rng.choice(choices)
            values.append(value if present.issuperset(parameter.regions) else None)
        line = tree.Instruction(signature.opcode, signature.render(values))
        if certify.obeys(signature, line):
            return line


# ---------------------------------------------------------------------------------------------------- changes


def changed(line: Line, rng: random.Random) -> Line:
    """The line with one thing changed."""
    while True:
        change = rng.choice(_CHANGES)
        instruction = change(line.instruction, rng)
        if instruction is not None and instruction != line.instruction:
            return Line(instruction, line.section, change.__name__ if line.how == "table" else f"{line.how}, {change.__name__}")


Change = Callable[[tree.Instruction, random.Random], "tree.Instruction | None"]


@functools.cache
def vocabulary(mnemonic: str) -> tuple[str, ...]:
    """Every modifier of the mnemonic; of all of them for ""."""
    return tuple(dict.fromkeys(token for row in (forms.forms(mnemonic) if mnemonic else isa.FORMS)
                               for tokens in compile_form(row).tokens for token in tokens))


def _word(mnemonic: str, rng: random.Random) -> str:
    return rng.choice(vocabulary(mnemonic if vocabulary(mnemonic) and rng.random() < 0.75 else ""))


def _opcode(line: tree.Instruction, tokens: Iterable[str]) -> tree.Instruction:
    return dataclasses.replace(line, opcode=".".join((line.mnemonic, *tokens)))


def _tokens(line: tree.Instruction) -> list[str]:
    return line.opcode.split(".")[1:]


def exchange_modifiers(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    tokens = _tokens(line)
    if len(tokens) < 2:
        return None
    i = rng.randrange(len(tokens) - 1)
    j = i + 1 if rng.random() < 0.5 else rng.randrange(len(tokens))
    tokens[i], tokens[j] = tokens[j], tokens[i]
    return _opcode(line, tokens)


def drop_modifier(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    tokens = _tokens(line)
    if tokens:
        del tokens[rng.randrange(len(tokens))]
    return _opcode(line, tokens)


def double_modifier(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    tokens = _tokens(line)
    if not tokens:
        return None
    tokens.insert(rng.randrange(len(tokens) + 1), rng.choice(tokens))
    return _opcode(line, tokens)


def insert_modifier(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    tokens = _tokens(line)
    tokens.insert(rng.randrange(len(tokens) + 1), _word(line.mnemonic, rng))
    return _opcode(line, tokens)


def replace_modifier(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    tokens = _tokens(line)
    if not tokens:
        return None
    tokens[rng.randrange(len(tokens))] = _word(line.mnemonic, rng)
    return _opcode(line, tokens)


def retype(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    """Another type in the opcode, and in the registers that had the old one."""
    tokens = _tokens(line)
    places = [i for i, token in enumerate(tokens) if token in _TYPES]
    if not places:
        return None
    old, new = tokens[rng.choice(places)], rng.choice(sorted(_TYPES))
    names = {f"%{old}_{n}": f"%{new}_{n % certify.REGISTERS[new]}" for n in range(certify.REGISTERS[old])}
    renamed = tuple(_mapped(operand, lambda name: tree.Name(names.get(name.name, name.name))) for operand in line.operands)
    return dataclasses.replace(_opcode(line, [new if token == old else token for token in tokens]), operands=renamed)


def _mapped(operand: tree.Operand, change: Callable[[tree.Name], tree.Name]) -> tree.Operand:
    if isinstance(operand, tree.Name):
        return change(operand)
    if isinstance(operand, tree.Vector | tree.Arguments):
        return dataclasses.replace(operand, elements=tuple(_mapped(element, change) for element in operand.elements))
    if isinstance(operand, tree.Pair):
        return tree.Pair(_mapped(operand.first, change), _mapped(operand.second, change))
    if isinstance(operand, tree.Not | tree.Minus):
        return type(operand)(_mapped(operand.operand, change))
    if isinstance(operand, tree.Address) and isinstance(operand.base, tree.Name):
        return dataclasses.replace(operand, base=change(operand.base))
    return operand


def _at(line: tree.Instruction, rng: random.Random, change: Callable[[tree.Operand, random.Random], tree.Operand | None],
        ) -> tree.Instruction | None:
    """One operand, or one part of one, changed."""
    if not line.operands:
        return None
    i = rng.randrange(len(line.operands))
    new = _inside(line.operands[i], rng, change)
    return None if new is None else dataclasses.replace(line, operands=(*line.operands[:i], new, *line.operands[i + 1:]))


def _inside(operand: tree.Operand, rng: random.Random, change: Callable[[tree.Operand, random.Random], tree.Operand | None],
            ) -> tree.Operand | None:
    if isinstance(operand, tree.Vector) and rng.random() < 0.75:
        i = rng.randrange(len(operand.elements))
        lane = change(operand.elements[i], rng)
        return None if lane is None else tree.Vector((*operand.elements[:i], lane, *operand.elements[i + 1:]))
    if isinstance(operand, tree.Pair) and rng.random() < 0.75:
        if rng.random() < 0.5:
            first = _inside(operand.first, rng, change)
            return None if first is None else tree.Pair(first, operand.second)
        second = change(operand.second, rng)
        return None if second is None else tree.Pair(operand.first, second)
    if isinstance(operand, tree.Address) and rng.random() < 0.75:
        base = change(operand.base, rng)
        return dataclasses.replace(operand, base=base) if isinstance(base, tree.Name) else None
    if isinstance(operand, tree.TensorAddress) and rng.random() < 0.75:
        part = rng.choice(("tensormap", "coordinates", "sampler"))
        old = getattr(operand, part)
        new = None if old is None else _inside(old, rng, change)
        fits = isinstance(new, tree.Name) or (part == "coordinates" and isinstance(new, tree.Vector))
        return dataclasses.replace(operand, **{part: new}) if fits else None  # type: ignore[arg-type]
    return change(operand, rng)


def another_register(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    return _at(line, rng, lambda _, rng: rng.choice(_REGISTERS))


def a_number(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    return _at(line, rng, lambda _, rng: rng.choice((*_NUMBERS, *_FLOATS)))


def a_symbol(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    return _at(line, rng, lambda _, rng: rng.choice((*_SYMBOLS, *_WORDS)))


def wrapped(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    """Braces, brackets, a bar, a negation, an offset or a selector around or after an operand, or taken away."""
    def wrap(operand: tree.Operand, rng: random.Random) -> tree.Operand | None:
        if isinstance(operand, tree.Vector):
            return operand.elements[0]
        if isinstance(operand, tree.Address):
            return operand.base if rng.random() < 0.5 else tree.Address(operand.base, operand.offset + 8)
        if isinstance(operand, tree.Pair):
            return operand.first if rng.random() < 0.5 else operand.second
        if isinstance(operand, tree.Not | tree.Minus):
            return operand.operand
        if not isinstance(operand, tree.Name):
            return tree.Vector((operand,)) if isinstance(operand, tree.Integer | tree.Float) else None
        register, dot, _ = operand.name.rpartition(".")
        return rng.choice((
            tree.Vector((operand,)), tree.Address(operand), tree.Pair(operand, tree.Name("%pred_9")), tree.Not(operand),
            tree.Minus(operand), tree.Name(f"{register if dot else operand.name}.{rng.choice(_AXES)}")))
    return _at(line, rng, wrap)


def another_width(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    """A lane more or less in a vector."""
    def widen(operand: tree.Operand, rng: random.Random) -> tree.Operand | None:
        if not isinstance(operand, tree.Vector):
            return None
        lanes = operand.elements
        return tree.Vector(rng.choice((lanes[1:], lanes + lanes[:1], lanes * 2, lanes[:len(lanes) // 2])) or lanes)
    places = [i for i, operand in enumerate(line.operands) if isinstance(operand, tree.Vector | tree.TensorAddress | tree.Pair)]
    if not places:
        return None
    i = rng.choice(places)
    old = line.operands[i]
    if isinstance(old, tree.TensorAddress):
        coordinates = widen(old.coordinates, rng)
        new: tree.Operand | None = dataclasses.replace(old, coordinates=coordinates) if isinstance(coordinates, tree.Vector) else None
    elif isinstance(old, tree.Pair):
        first = widen(old.first, rng)
        new = None if first is None else tree.Pair(first, old.second)
    else:
        new = widen(old, rng)
    return None if new is None else dataclasses.replace(line, operands=(*line.operands[:i], new, *line.operands[i + 1:]))


def drop_operand(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    if not line.operands:
        return None
    i = rng.randrange(len(line.operands))
    return dataclasses.replace(line, operands=(*line.operands[:i], *line.operands[i + 1:]))


def add_operand(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    i = rng.randrange(len(line.operands) + 1)
    new = rng.choice((*line.operands, *_REGISTERS, tree.Integer(1)))
    return dataclasses.replace(line, operands=(*line.operands[:i], new, *line.operands[i:]))


def swap_operands(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    if len(line.operands) < 2:
        return None
    i, j = rng.sample(range(len(line.operands)), 2)
    operands = list(line.operands)
    operands[i], operands[j] = operands[j], operands[i]
    return dataclasses.replace(line, operands=tuple(operands))


def another_opcode(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    """The operands under another opcode of the same mnemonic."""
    rows = forms.forms(line.mnemonic)
    return dataclasses.replace(line, opcode=walk(rng.choice(rows), rng).opcode) if rows else None


def guard(line: tree.Instruction, rng: random.Random) -> tree.Instruction | None:
    return dataclasses.replace(line, guard=tree.Guard(rng.choice((*_REGISTERS, tree.Name("%pred_3"))).name, rng.random() < 0.5))


_CHANGES: tuple[Change, ...] = (
    exchange_modifiers, drop_modifier, double_modifier, insert_modifier, insert_modifier, replace_modifier, replace_modifier, retype,
    another_register, another_register, another_register, a_number, a_number, a_symbol, wrapped, wrapped, another_width, drop_operand,
    add_operand, swap_operands, another_opcode, guard)


# ---------------------------------------------------------------------------------------------------- figures

# What the front end of ptxas takes and `check` does not, on purpose: by reason, what the sentence says.
STRICTER = {
    "an address in a register of another width: ptxas fails later, or takes its low bits": r"must be at a ",
    "a number outside the manual's range, which ptxas cuts off": r"legal is",
    "the address of a global variable in 32 bits: ptxas fails later": r"whose address has 64 bits",
    "a number as the destination: ptxas fails later": r"operand `(d|cache_policy)` must be [^;]*, not (the integer|a floating)",
    "an address without brackets": r"must be an address in brackets",
    "the address of an opaque variable": r"must be in [^;]*; `(texture|surface|sampler)` is in|`(texture|surface)` is in \.global|"
                                         r"is at `(texture|surface)`, which is a",
    "a selector that is not looked at, on which ptxas crashes later or not": r"\.[bh]\d+` is not a register|not `[\[{][^`]*\.[bh]\d",
    "braces around a register": r"must be a [^;]*, not `\{[^,]*\}`",
    "a predicate or a pair of halves in each other's place": r"`%(pred|f16x2)_\d+` is \.",
    "a function's address in a register of another width": r"`fptr` must be a \.u64|`func` must be the name of a function, not `%",
    "a number of 128 bits, on which ptxas fails later": r"must be a \.b128 register, not the integer",
    "an asynchronous store that names no mechanism, of which ptxas refuses the first": r"^`st\.async(?!\S*mbarrier::)",
    "a special register among lanes that are written, or of a product":
        r"the special register `[^`]*`,? (which )?is read by|not `\{[^`]*%tid",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """A line, what ptxas says against it ("" when it accepts it) and what `check` does."""

    line: Line
    ptxas: str
    check: str

    @property
    def agrees(self) -> bool:
        return bool(self.ptxas) == bool(self.check)

    @property
    def stricter(self) -> str:
        """The reason for which `check` refuses on purpose what ptxas takes."""
        if self.ptxas or not self.check:
            return ""
        return next((reason for reason, words in STRICTER.items() if re.search(words, self.check)), "")


def verdicts(count: int, seed: int, chosen: Iterable[str] = ()) -> list[Verdict]:
    """`count` lines of each section (of the chosen ones), judged by both."""
    made = [line for section, rows in sections().items() if not chosen or section in chosen
            for line in lines(section, rows, count, random.Random(f"{seed} {section}"))]
    return [Verdict(line, *both) for line, both in zip(made, judged([line.text for line in made]), strict=True)]


def judged(texts: list[str]) -> list[tuple[str, str]]:
    """What ptxas says against each line, and what `check` does. Where they differ each line is asked about alone: messages may be
    told once only, and some mistakes hide others."""
    refused, found = certify.judge(texts, chunk=150), said(texts)
    differing = [i for i, sentence in enumerate(found) if (i in refused) != bool(sentence)]
    again = certify.judge([texts[i] for i in differing], chunk=1)
    refused = {i: message for i, message in refused.items() if i not in set(differing)}
    refused.update((differing[n], message) for n, message in again.items())
    return [(refused.get(i, ""), sentence) for i, sentence in enumerate(found)]


def said(texts: list[str]) -> list[str]:
    """What `check` says against each line, as text among the names of `certify`."""
    found = [""] * len(texts)
    for sampled in (False, True):
        indices = [i for i, text in enumerate(texts) if bool(certify.SAMPLED.search(text)) == sampled]
        head = certify.module_head("9.0", "sm_90a, texmode_independent" if sampled else "sm_90a")
        for start in range(0, len(indices), TOGETHER):
            part = indices[start:start + TOGETHER]
            text = "\n".join((head, *(texts[i] for i in part), "}", ""))
            for finding in check_text(text, protocols=False):
                place = (finding.ptx_line or 0) - head.count("\n") - 2
                if finding.severity == "error" and 0 <= place < len(part):
                    found[part[place]] = found[part[place]] or finding.message
    return found


def figures(judged: Iterable[Verdict]) -> dict[str, Any]:
    """Recall and specificity, averaged over the sections, and how often `check` is stricter on purpose, which counts in neither."""
    taken: dict[str, list[bool]] = {}
    refused: dict[str, list[bool]] = {}
    stricter: dict[str, int] = {}
    for verdict in judged:
        if reason := verdict.stricter:
            stricter[reason] = stricter.get(reason, 0) + 1
        else:
            (refused if verdict.ptxas else taken).setdefault(verdict.line.section, []).append(verdict.agrees)

    def macro(of: dict[str, list[bool]]) -> float:
        return sum(sum(agreed) / len(agreed) for agreed in of.values()) / len(of)

    return {"sections": len(taken.keys() | refused.keys()), "legal": sum(map(len, taken.values())),
            "illegal": sum(map(len, refused.values())), "recall": round(macro(taken), 5),
            "specificity": round(macro(refused), 5), "stricter": dict(sorted(stricter.items()))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.grammar.near",
                                     description="Near misses of every section, judged by ptxas and by check.")
    parser.add_argument("--count", type=int, default=400, help="lines of each section")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", action="store_true", help="print the lines on which the two differ")
    arguments = parser.parse_args()
    judged = verdicts(arguments.count, arguments.seed)
    print(json.dumps({"ptxas": certify.version(), "count": arguments.count, "seed": arguments.seed, **figures(judged)}, indent=2))
    for verdict in judged if arguments.lines else ():
        if not verdict.agrees and not verdict.stricter:
            print(f"{verdict.line.section} | {verdict.line.how} | {verdict.line.text} | ptxas: {verdict.ptxas} | check: {verdict.check}")


if __name__ == "__main__":
    main()
