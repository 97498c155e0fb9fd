"""Lines near the table's own, most of them illegal: one operand replaced, left out or written twice."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator

from grammar import forms, tree
from tests.grammar import certify

_REGISTERS = tuple(tree.Name(f"%{type}_5") for type in certify.REGISTERS)
_OTHERS: tuple[tree.Operand, ...] = (
    tree.Name("%tid.x"), tree.Name("global_data"), tree.Integer(5), tree.Float.of(1.0, 32), tree.Float.of(1.0),
    tree.Not(tree.Name("%pred_5")))
_LANES: tuple[tree.Operand, ...] = (*_REGISTERS, *_OTHERS)
_ANY: tuple[tree.Operand, ...] = (*_LANES, tree.Name("_"), tree.Address(tree.Name("%b64_5")),
                                  tree.Vector((tree.Name("%b32_5"), tree.Name("%b32_6"))))


def types(name: str) -> str | None:
    """The types of the names of `certify`."""
    if name in certify.HANDLES.values():
        return ".global"
    if name in ("parameter", "argument"):
        return ".param"
    if name.endswith("_data"):
        return f".{name.removesuffix('_data')}"
    found = re.fullmatch(r"%(\w+)_\d+", name)
    return found[1] if found and found[1] in certify.REGISTERS else None


def sample(count: int, seed: int) -> list[tree.Instruction]:
    """Mutants of `count` operand lists of the table, the same for the same seed, every mnemonic among them."""
    chosen = random.Random(seed)
    by_mnemonic: dict[str, list[forms.Signature]] = {}
    for signature in certify.operand_lists():
        if signature.parameters:
            by_mnemonic.setdefault(signature.form.mnemonic, []).append(signature)
    each = max(1, count // len(by_mnemonic))
    return [mutant for found in by_mnemonic.values()
            for signature in chosen.sample(found, min(each, len(found)))
            for mutant in chosen.sample(list(mutants(signature)), 8)]


def mutants(signature: forms.Signature) -> Iterator[tree.Instruction]:
    """Every single change to the fullest line of a signature."""
    line = [*certify.instances(signature, alternatives=False)][-1]
    operands = line.operands
    for i, operand in enumerate(operands):
        for other in (*_inner(operand), *_ANY):
            yield dataclasses.replace(line, operands=(*operands[:i], other, *operands[i + 1:]))
        yield dataclasses.replace(line, operands=(*operands[:i], *operands[i + 1:]))
        yield dataclasses.replace(line, operands=(*operands[:i], operand, *operands[i:]))


def _inner(operand: tree.Operand) -> Iterator[tree.Operand]:
    if isinstance(operand, tree.Vector):
        yield from (tree.Vector((lane, *operand.elements[1:])) for lane in _LANES)
        yield tree.Vector((*operand.elements, operand.elements[0]))
    elif isinstance(operand, tree.Pair):
        yield from (tree.Pair(other, operand.second) for other in _REGISTERS)
        yield from (tree.Pair(operand.first, other) for other in _REGISTERS)
    elif isinstance(operand, tree.Address):
        yield from (tree.Address(base) for base in (*_REGISTERS, tree.Name("global_data"), tree.Name("%tid.x"), tree.Integer(16)))
    elif isinstance(operand, tree.TensorAddress) and isinstance(operand.coordinates, tree.Vector):
        yield from (tree.TensorAddress(base, operand.coordinates) for base in (*_REGISTERS, tree.Name("shared_data")))
        yield from (tree.TensorAddress(operand.tensormap, tree.Vector((lane, *operand.coordinates.elements[1:]))) for lane in _LANES)
