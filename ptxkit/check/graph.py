"""Control-flow graphs: immediate post-dominators and live registers. A graph maps a node to its successors."""

from __future__ import annotations

from collections.abc import Mapping

Graph = Mapping[int, list[int]]


def post_dominators(graph: Graph) -> dict[int, int | None]:
    """The immediate post-dominator of each node: None where it is the end, or where the end is never reached."""
    end = -1
    order: list[int] = []
    before: dict[int, list[int]] = {end: []}
    for node, after in graph.items():
        before.setdefault(node, [])
        for successor in after or (end,):
            before.setdefault(successor, []).append(node)
    seen = {end}
    stack = [(end, iter(before[end]))]
    while stack:
        node, rest = stack[-1]
        for previous in rest:
            if previous not in seen:
                seen.add(previous)
                stack.append((previous, iter(before[previous])))
                break
        else:
            order.append(node)
            stack.pop()
    number = {node: i for i, node in enumerate(order)}
    found: dict[int, int] = {end: end}

    def meet(a: int, b: int) -> int:
        while a != b:
            while number[a] < number[b]:
                a = found[a]
            while number[b] < number[a]:
                b = found[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            if node == end:
                continue
            known = [s for s in (graph[node] or [end]) if s in found]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            if found.get(node) != new:
                found[node] = new
                changed = True
    return {node: None if found.get(node, end) == end else found[node] for node in graph}


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
