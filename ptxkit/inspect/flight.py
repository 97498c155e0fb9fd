"""How many wgmmas can be unfinished at once: all sequences of issue, commit and wait that the control flow allows."""

from __future__ import annotations

from ..check.program import Routine, Site
from ..check.values import Values
from .facts import FlightFact

MOST_GROUPS = 16
MOST_PRODUCTS = 512
MOST_STATES = 4000

State = tuple[int, tuple[int, ...]]
"""(products issued since the last commit, products of each unfinished group, the oldest first)"""


def flight(routine: Routine, values: Values) -> FlightFact | None:
    """The most at any place; None for an entry without wgmma."""
    inside = {index: [site for site in routine.sites[routine.blocks[index].first:routine.blocks[index].end] if "wgmma" in site.opcode]
              for index in routine.order}
    if not any("wgmma.issue" in site.sync for sites in inside.values() for site in sites):
        return None
    products = groups = 0
    at: dict[int, set[State]] = {0: {(0, ())}}
    todo: list[tuple[int, State]] = [(0, (0, ()))]
    while todo:
        index, state = todo.pop()
        for site in inside[index]:
            state = _after(site, state, values)
            if state[0] + sum(state[1]) > MOST_PRODUCTS or len(state[1]) > MOST_GROUPS:
                return FlightFact(None, None)  # a loop issues without waiting
            products, groups = max(products, state[0] + sum(state[1])), max(groups, len(state[1]))
        for successor in routine.blocks[index].successors:
            known = at.setdefault(successor, set())
            if state not in known:
                known.add(state)
                if sum(map(len, at.values())) > MOST_STATES:
                    return FlightFact(None, None)
                todo.append((successor, state))
    return FlightFact(products, groups)


def _after(site: Site, state: State, values: Values) -> State:
    issued, groups = state
    if "wgmma.issue" in site.sync:
        return issued + 1, groups
    if "wgmma.commit" in site.sync:
        return (0, (*groups, issued)) if issued else state
    if "wgmma.wait" in site.sync:
        operand = site.value("n")
        left = values.number(values.of(site, operand)) if operand is not None else 0
        return issued, groups[max(0, len(groups) - (left or 0)):] if left else ()
    return state
