"""Control-flow graphs: immediate post-dominators and live registers. A graph maps a node to its successors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

Graph = Mapping[int, Sequence[int]]
END = -1
"""The node that control goes to from nodes without successors."""


class Parents(dict[int, "int | None"]):
    """The parent of each node of a forest, None for a root."""

    def above(self, node: int, other: int) -> bool:
        """Whether `node` is `other` or one of the nodes above it."""
        if node == other:
            return True
        (begin, end), (number, _) = self._spans.get(node, (0, 0)), self._spans.get(other, (0, 0))
        return begin <= number < end

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """The number of each node in a walk from the roots, from 1 on, and that of the first after all that are below it."""
        children: dict[int | None, list[int]] = {}
        for node, parent in self.items():
            children.setdefault(parent, []).append(node)
        begins: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}
        todo = children.get(None, [])[:]
        while todo:
            node = todo.pop()
            if node in begins:
                found[node] = begins[node], len(begins) + 1
            else:
                begins[node] = len(begins) + 1
                todo.append(node)
                todo += children.get(node, ())
        return found


def post_dominators(graph: Graph) -> Parents:
    """The immediate post-dominator of each node: None where it is the end, or where the end is never reached.

    Found from semidominators (Georgiadis's Semi-NCA): no step is repeated until nothing changes, whatever the graph is.
    """
    order, parent = _from_end(graph)
    number = {node: i for i, node in enumerate(order)}
    semi, lowest, above = list(range(len(order))), list(range(len(order))), [-1] * len(order)

    def least(i: int) -> int:
        """The lowest semidominator on the path from a node up to the first that is not linked yet. The path is made short."""
        path = []
        while above[i] >= 0 and above[above[i]] >= 0:
            path.append(i)
            i = above[i]
        for j in reversed(path):
            if semi[lowest[above[j]]] < semi[lowest[j]]:
                lowest[j] = lowest[above[j]]
            above[j] = above[i]
        return semi[lowest[path[0] if path else i]]

    for i in range(len(order) - 1, 0, -1):
        semi[i] = min(least(number[after]) for after in graph[order[i]] or (END,) if after in number)
        above[i] = parent[i]
    found = [0] * len(order)
    for i in range(1, len(order)):
        nearest = parent[i]
        while nearest > semi[i]:
            nearest = found[nearest]
        found[i] = nearest
    nearest_of = {order[i]: order[nearest] for i, nearest in enumerate(found) if nearest}
    return Parents((node, nearest_of.get(node)) for node in graph)


def _from_end(graph: Graph) -> tuple[list[int], list[int]]:
    """The nodes from which the end is reached, as a depth-first search from the end finds them, and the place of each one's parent."""
    before: dict[int, list[int]] = {END: []}
    for node, after in graph.items():
        for successor in after or (END,):
            before.setdefault(successor, []).append(node)
    order, parent, seen = list[int](), list[int](), set[int]()
    todo = [(END, 0)]
    while todo:
        node, came = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [(previous, len(order)) for previous in before.get(node, ()) if previous not in seen]
            order.append(node)
            parent.append(came)
    return order, parent


def loops(graph: Graph) -> dict[int, frozenset[int]]:
    """For each node from which control comes back to it: all nodes of its strongly connected component (Tarjan's)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    found: dict[int, frozenset[int]] = {}
    open_nodes: list[int] = []
    for root in graph:
        todo = [(root, iter(graph[root]))] if root not in number else []
        while todo:
            node, rest = todo[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                open_nodes.append(node)
            for after in rest:
                if after not in number:
                    todo.append((after, iter(graph[after])))
                    break
                if after in low:
                    low[node] = min(low[node], number[after])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[node])
                if low[node] == number[node]:
                    at = len(open_nodes) - 1
                    while open_nodes[at] != node:
                        at -= 1
                    members = frozenset(open_nodes[at:])
                    del open_nodes[at:]
                    for member in members:
                        del low[member]
                    if len(members) > 1 or node in graph[node]:
                        found.update(dict.fromkeys(members, members))
    return found


def liveness(graph: Graph, effects: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The registers live at the begin of each node, from (read before written, written) of each, as bit sets."""
    live = dict.fromkeys(graph, 0)
    before: dict[int, list[int]] = {node: [] for node in graph}
    for node, after in graph.items():
        for successor in after:
            before[successor].append(node)
    todo = sorted(graph)
    waiting = set(todo)
    while todo:
        node = todo.pop()
        waiting.discard(node)
        out = 0
        for successor in graph[node]:
            out |= live[successor]
        read, written = effects[node]
        new = read | out & ~written
        if new != live[node]:
            live[node] = new
            for previous in before[node]:
                if previous not in waiting:
                    waiting.add(previous)
                    todo.append(previous)
    return live
