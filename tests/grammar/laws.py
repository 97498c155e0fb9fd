"""What every row of the table obeys: each law takes rows and returns sentences about those that break it."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterable, Iterator

from ptxkit.grammar import forms
from ptxkit.grammar.notation import compile_form
from ptxkit.grammar.operands import accepts
from ptxkit.grammar.schema import DEPENDS, TAGS, Form, Operand, Per, Range
from ptxkit.grammar.spelling import opcode_tokens, python_name
from tests.grammar.certify import REGISTERS

Law = Iterator[str]


def notation_holds(rows: Iterable[Form]) -> Law:
    """Each syntax line parses, names a slot at most once on a path, and its operands are described, all and no others."""
    for row in rows:
        try:
            notation = compile_form(row)
        except Exception as error:
            yield f"{row.syntax}: {error}"
            continue
        named = {place.name for group in notation.groups for place in group.places if group.kind != "literal"}
        if named != set(row.operands):
            yield f"{row.syntax}: described are {sorted(row.operands)}, named are {sorted(named)}"
            continue
        for signature in itertools.islice(forms.variants(row), 300):
            bound = [token for token in signature.opcode.split(".")[1:] if any(token in tokens for tokens in row.slots.values())]
            if len(signature.bindings) > len(bound):
                yield f"{signature.opcode}: bindings {dict(signature.bindings)}"


def references_hold(rows: Iterable[Form]) -> Law:
    """Effects, rules, tags and conditions speak of what the row has."""
    for row in rows:
        names = set(row.operands)
        tokens = {token for position in compile_form(row).tokens for token in position}
        for access in row.effects.memory:
            if access.operand not in names or (isinstance(access.bytes, str) and access.bytes not in names | {"type", "box", "tile"}):
                yield f"{row.syntax}: the effect {access} is of nothing"
        if missing := set(row.effects.in_flight) - names:
            yield f"{row.syntax}: {sorted(missing)} in flight"
        if missing := {word for rule in row.rules for word in rule.split()[::2] if word[:1] != "("} - names:
            yield f"{row.syntax}: rules on {sorted(missing)}"
        for name, operand in row.operands.items():
            if operand.tag and operand.tag not in TAGS:
                yield f"{row.syntax}: {name} has the tag {operand.tag!r}"
            if missing := set(operand.when.split()) - tokens - set(row.slots):
                yield f"{row.syntax}: {name} is there when {sorted(missing)} is"
            for value in (operand.type, operand.count, operand.space, operand.immediate):
                if isinstance(value, Per) and value.slot not in row.slots and value.default is None:
                    yield f"{row.syntax}: {name} depends on {value.slot}"


def operands_resolve(rows: Iterable[Form]) -> Law:
    """In every signature a type is a declarable scalar type and a count is at least one."""
    for row in rows:
        for signature in _distinct(row):
            for parameter in signature.parameters:
                operand = parameter.operand
                typed = operand.kind in ("register", "predicate", "vector", "coordinates")
                if typed and not any(accepts(operand, register) for register in REGISTERS):
                    yield f"{signature.opcode}: no register is a {operand.type!r} for {parameter.name}"
                if not isinstance(operand.count, int) or operand.count < 1:
                    yield f"{signature.opcode}: {parameter.name} has {operand.count} lanes"


def spelling_is_injective(rows: Iterable[Form]) -> Law:
    """Every opcode has a Python spelling of identifiers, from which it can be read back."""
    for row in rows:
        for signature in forms.variants(row):
            tokens = signature.opcode.split(".")
            names = python_name(tokens)
            if opcode_tokens(names) != tokens:
                yield f"{signature.opcode}: {names} reads back as {opcode_tokens(names)}"
            if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
                yield f"{signature.opcode}: {names} are not names"


def addresses_have_effects(rows: Iterable[Form]) -> Law:
    """A row with an address reads or writes memory, or synchronises; `createpolicy.range` only computes with it."""
    for row in rows:
        addressed = row.mnemonic != "createpolicy" and any(operand.kind == "address" for operand in row.operands.values())
        if addressed and not row.effects.memory and not row.effects.sync:
            yield f"{row.syntax}: no effect on its address"


def dependence_is_said(rows: Iterable[Form]) -> Law:
    """A row says whether what it gives or leaves may depend on more than operands and ordered memory, or follows from words that say so."""
    for row in rows:
        if not row.effects.dependence:
            yield f"{row.syntax}: nothing says what its results depend on"
        elif row.effects.dependence not in DEPENDS:
            yield f"{row.syntax}: {row.effects.dependence!r} is no dependence"


def collectives_converge(rows: Iterable[Form]) -> Law:
    """A row with `.sync` or `.aligned` says who executes it together, or is a barrier."""
    for row in rows:
        tokens = {token for position in compile_form(row).tokens for token in position}
        barrier = any(word.endswith("barrier") for word in row.effects.sync)
        if tokens & {"sync", "aligned"} and row.effects.convergence == "none" and not ("aligned" not in tokens and barrier):
            yield f"{row.syntax}: no convergence"


def shapes_are_distinct(rows: Iterable[Form]) -> Law:
    """No operand list fits two signatures of one opcode."""
    by_opcode: dict[str, list[forms.Signature]] = {}
    for row in rows:
        for signature in forms.variants(row):
            by_opcode.setdefault(signature.opcode, []).append(signature)
    judged: dict[tuple[int, int], bool] = {}
    for opcode, signatures in by_opcode.items():
        for one, other in itertools.combinations(signatures, 2):
            pair = id(one.parameters), id(other.parameters)
            if pair not in judged:
                judged[pair] = any(_overlap(a, b) for a in _shapes(one) for b in _shapes(other))
            if judged[pair]:
                yield f"{opcode}: `{one.form.syntax}` and `{other.form.syntax}` accept the same operands"


def states_complete(rows: Iterable[Form]) -> Law:
    """From every state an opcode can be completed, and every state's attributes lead where its modifiers lead."""
    by_mnemonic: dict[str, list[Form]] = {}
    for row in rows:
        by_mnemonic.setdefault(row.mnemonic, []).append(row)
    for group in by_mnemonic.values():
        seen = set()
        left = [forms.start_of(group)]
        while left:
            state = left.pop()
            if state.key in seen:
                continue
            seen.add(state.key)
            left += state.next().values()
            if not state.next() and not state.signatures():
                yield f"{state.prefix} leads nowhere"
            for name, after in state.attributes().items():
                if python_name(after.tokens)[-1] != name:
                    yield f"{state.prefix}: {name} leads to {after.prefix}"


def _distinct(row: Form) -> Iterator[forms.Signature]:
    seen: set[int] = set()
    for signature in forms.variants(row):
        if id(signature.parameters) not in seen:
            seen.add(id(signature.parameters))
            yield signature


def _shapes(signature: forms.Signature) -> Iterator[tuple[frozenset[str], ...]]:
    """What may stand at each place, for every choice of the optional operands."""
    regions = sorted({region for p in signature.parameters for region in p.regions})
    for size in range(len(regions) + 1):
        for present in map(set, itertools.combinations(regions, size)):
            shape = []
            for group in signature.layout:
                there = [signature.parameters[i] for i in group.indices if present.issuperset(signature.parameters[i].regions)]
                kind = "plain" if group.kind == "pair" and len(there) == 1 else group.kind
                if there or kind == "literal":
                    shape.append(frozenset(("_",)) if kind == "literal" else
                                 _classes(there[0].operand) if kind == "plain" else frozenset((kind,)))
            yield tuple(shape)


def _overlap(one: tuple[frozenset[str], ...], other: tuple[frozenset[str], ...]) -> bool:
    return len(one) == len(other) and all(a & b for a, b in zip(one, other, strict=True))


def _classes(operand: Operand) -> frozenset[str]:
    lanes = f"{operand.count} x " if operand.kind in ("vector", "coordinates") else ""
    if operand.kind in ("register", "predicate", "vector", "coordinates"):
        found = {lanes + register for register in REGISTERS if accepts(operand, register)}
    else:
        found = set() if operand.kind == "immediate" else {operand.kind}
    if isinstance(operand.immediate, Range):
        allowed = operand.immediate
        found |= {lanes + f"={value}" for value in allowed.choices} if allowed.choices else {lanes + "=0", lanes + "=1"}
    if operand.float_immediate:
        found.add(lanes + "0.0")
    if operand.sink:
        found.add(lanes + "_")
    return frozenset(found)
