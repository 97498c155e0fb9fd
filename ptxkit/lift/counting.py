"""Loops that count: what `for_range` emits, found again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..dsl.regions import accesses
from ..grammar import tree
from .structure import If, Jump, Loop, Node, Place, Scope

_COUNTED = ("u32", "s32", "b32")


@dataclass(frozen=True)
class Counting:
    """`with for_range(stop, start=, step=) as index:` over `body`, in place of `length` nodes and of the instructions `dropped`."""

    index: str
    start: tree.Operand
    stop: tree.Operand
    step: tree.Operand
    body: list[Node]
    length: int
    dropped: tuple[tree.Instruction, ...]


def counting(nodes: Sequence[Node], at: int, fresh: set[int], types: Mapping[str, str], mentions: Mapping[str, int],
             bare: set[str], needed: set[str]) -> Counting | None:
    """The counting loop that begins with the node there: `mov i, start; loop: i >= stop leaves; ...; next: i += step`."""
    first = nodes[at]
    if not isinstance(first, tree.Instruction) or id(first) not in fresh:
        return None
    after = at + 1
    while after < len(nodes) and isinstance(nodes[after], Place | tree.Loc):
        if _written(nodes[after], bare, needed):
            return None
        after += 1
    loop = nodes[after] if after < len(nodes) else None
    if not isinstance(loop, Loop) or loop.repeat is not None:
        return None
    body = list(loop.body)
    top = [n for n, node in enumerate(body) if not isinstance(node, Place | tree.Loc) or _written(node, bare, needed)]
    if len(top) < 3 or _jumps(body, loop) != 1:
        return None
    test, leave, last = body[top[0]], body[top[1]], body[-1]
    match first, test, leave, last:
        case (tree.Instruction(opcode="mov.u32", operands=(tree.Name(index), start), guard=None),
              tree.Instruction(opcode="setp.ge.u32", operands=(tree.Name(done), tree.Name(tested), stop), guard=None),
              Jump(how="break", guard=tree.Guard(predicate=guard, negated=False)),
              tree.Instruction(opcode="add.u32", operands=(tree.Name(target), tree.Name(source), step), guard=None)):
            if not index == tested == target == source or done != guard or mentions[done] != 2 or id(test) not in fresh:
                return None
            # for_range puts a label before its `add`, where ptxas then begins a basic block: there must have been one.
            end = len(body) - 1
            while isinstance(body[end - 1], Place):
                end -= 1
            if end == len(body) - 1:
                return None
            counts = {index, *(operand.name for operand in (stop, step) if isinstance(operand, tree.Name))}
            if _writes(body[top[1]:-1], counts):
                return None
            if step == tree.Integer(0) or not all(_counts(operand, types) for operand in (start, stop, step)):
                return None
            assert isinstance(test, tree.Instruction)
            kept = [node for n, node in enumerate(body[:-1]) if n not in top[:2]
                    and not (n >= end and isinstance(node, Place) and node.name in bare)]
            return Counting(index, start, stop, step, kept, after + 1 - at, (first, test, last))
    return None


def _written(node: Node, bare: set[str], needed: set[str]) -> bool:
    return isinstance(node, Place) and (node.name in bare or node.name in needed)


def _counts(operand: tree.Operand, types: Mapping[str, str]) -> bool:
    """Whether for_range takes it."""
    if isinstance(operand, tree.Integer):
        return 0 <= operand.value < 1 << 32
    return isinstance(operand, tree.Name) and types.get(operand.name) in _COUNTED


def _writes(nodes: Sequence[Node], names: set[str]) -> bool:
    """Whether the nodes write one of the registers, which for_range refuses."""
    for node in nodes:
        if isinstance(node, tree.Instruction):
            if not names.isdisjoint(accesses(node)[1]):
                return True
        elif isinstance(node, If):
            if _writes(node.body, names) or _writes(node.orelse or (), names):
                return True
        elif isinstance(node, Loop | Scope) and _writes(node.body, names):
            return True
    return False


def _jumps(nodes: Sequence[Node], loop: Loop) -> int:
    """How many branches leave the loop or start its next round."""
    count = 0
    for node in nodes:
        if isinstance(node, Jump):
            count += node.loop is loop
        elif isinstance(node, If):
            count += _jumps(node.body, loop) + _jumps(node.orelse or (), loop)
        elif isinstance(node, Loop | Scope):
            count += _jumps(node.body, loop)
    return count
