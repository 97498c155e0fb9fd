"""Per entry: what ptxas gave it, which of Hopper's instructions it has, and whether its setmaxnreg took effect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..grammar import tree
from ..grammar.walk import instructions
from ..runtime.diagnostics import Resources
from ..sass import hints

COUNTED = ("instructions", "wgmma", "tma_load", "tma_store", "tma_reduce", "tma_prefetch", "dsmem_copy", "mbarrier", "fence", "setmaxnreg")


@dataclass(frozen=True, slots=True)
class Report:
    """One entry. `counts` has a number for every word of `COUNTED`; `resources` is None when nothing assembled it.

    `setmaxnreg` is None when the entry has none, else whether it is in the machine code; None too when nothing could tell.
    `hint` is what the PTX asks ptxkit to change in the machine code, "" for nothing.
    """

    name: str
    counts: Mapping[str, int]
    resources: Resources | None = None
    setmaxnreg: bool | None = None
    hint: str = ""

    def rows(self) -> list[tuple[str, object]]:
        """The report as (what, how much) lines; counts that are zero are left out."""
        used = self.resources
        rows: list[tuple[str, object]] = [] if used is None else [
            ("registers", used.registers), ("spills (bytes stored, loaded)", f"{used.spill_stores}, {used.spill_loads}"),
            ("stack (bytes)", used.stack), ("static shared memory (bytes)", used.shared), ("barriers", used.barriers)]
        rows += [(word.replace("_", " "), count) for word, count in self.counts.items() if count or word in ("instructions", "wgmma")]
        if self.counts["setmaxnreg"]:
            rows.append(("setmaxnreg in effect", {True: "yes", False: "no", None: "unknown"}[self.setmaxnreg]))
        if self.hint:
            rows.append(("machine-code hint", self.hint))
        return rows


def report(module: tree.Module, resources: Mapping[str, Resources] | None = None, *, sass: str = "", log: str = "") -> tuple[Report, ...]:
    """A report of every entry. With `sass` (nvdisasm's text), or else ptxas's `log`, it says whether setmaxnreg took effect."""
    found = []
    for entry in module.entries:
        counts = count_instructions(module, entry)
        effect = in_effect(entry.name, sass, log) if counts["setmaxnreg"] else None
        found.append(Report(entry.name, counts, (resources or {}).get(entry.name), effect, hints.said(module)))
    return tuple(found)


def count_instructions(module: tree.Module, entry: tree.Function) -> dict[str, int]:
    """How many instructions of each kind stand in the entry and, once each, in the functions of the module that it calls."""
    counts = Counter[str]()
    for instruction in instructions_of(module, entry):
        counts["instructions"] += 1
        kind = kind_of(instruction.opcode)
        if kind:
            counts[kind] += 1
    return {word: counts[word] for word in COUNTED}


def instructions_of(module: tree.Module, entry: tree.Function) -> Iterator[tree.Instruction]:
    """The instructions of the entry and, once each, of the functions of the module that it calls."""
    for function in reached(module, entry):
        yield from instructions(function.body or ())


def reached(module: tree.Module, entry: tree.Function) -> list[tree.Function]:
    """The entry and the functions of the module that it calls, each once."""
    functions = {function.name: function for function in module.functions if function.body is not None}
    found, todo = {entry.name: entry}, [entry]
    while todo:
        for instruction in instructions(todo.pop().body or ()):
            for operand in instruction.operands if instruction.mnemonic == "call" else ():
                if isinstance(operand, tree.Name) and operand.name in functions and operand.name not in found:
                    found[operand.name] = functions[operand.name]
                    todo.append(functions[operand.name])
    return list(found.values())


def kind_of(opcode: str) -> str:
    """The word of `COUNTED` that an opcode counts for, "" for none."""
    if opcode.startswith("wgmma.mma_async"):
        return "wgmma"
    if opcode.startswith("cp.reduce.async.bulk"):
        return "tma_reduce"
    if opcode.startswith("cp.async.bulk.prefetch"):
        return "tma_prefetch"
    if opcode.startswith(("cp.async.bulk.commit_group", "cp.async.bulk.wait_group")):
        return ""
    if opcode.startswith("cp.async.bulk"):
        if ".global.shared::cta" in opcode:
            return "tma_store"
        return "dsmem_copy" if ".shared::cluster.shared::cta" in opcode else "tma_load"
    mnemonic = opcode.partition(".")[0]
    return {"mbarrier": "mbarrier", "fence": "fence", "membar": "fence", "setmaxnreg": "setmaxnreg"}.get(mnemonic, "")


def in_effect(entry: str, sass: str, log: str) -> bool | None:
    """Whether the entry's setmaxnreg is in the machine code; None when nothing tells."""
    if sass:
        section = re.search(rf"^\s*\.section\s+\.text\.{re.escape(entry)},.*?(?=^\s*\.section\s|\Z)", sass, re.M | re.S)
        return None if section is None else "USETMAXREG" in section.group()
    if log:
        return "'setmaxnreg' ignored" not in log
    return None
