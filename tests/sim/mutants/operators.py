"""Mutation operators: the same small mistake at every place of a kernel where it can be made, whatever the kernel is.

Each operator yields (what it does, the mutated source) for one subject. A mutant must earn an error under every schedule, unless it is
listed in `ALIKE` or `HERE`: there the kernel does not depend on what was changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ptxkit.grammar import tree

from .edit import Edit, ptx, written
from .subjects import SUBJECTS, Subject

Made = Iterator[tuple[str, Edit]]
Operator = Callable[[Subject], Made]
LEAVES = ("bra", "ret", "exit", "call", "brx")
MEMORY = re.compile(r"^(@!?%\w+ )?(ld|st|red|atom|stmatrix|ldmatrix|cp\.async|cp\.reduce|wgmma\.mma|st\.async)\b")
ORDER = re.compile(r"^(@!?%\w+ )?(fence|membar|bar|barrier|mbarrier\.arrive|cp\.async\.(bulk\.)?(wait|commit)|wgmma\.(fence|commit|wait))")


def _edit(subject: Subject) -> Edit:
    return Edit(subject.original, subject.entry)


def _sites(subject: Subject, pattern: str) -> list[tree.Instruction]:
    return [s for s in _edit(subject).find(pattern) if isinstance(s, tree.Instruction)]


def _each(subject: Subject, pattern: str, old: str, new: Any, what: str) -> Made:
    """The text `old` becomes `new`, at one match after the other."""
    for number, statement in enumerate(_sites(subject, pattern)):
        text = written(statement)
        changed = re.sub(old, new, text, count=1)
        if changed != text:
            made = ptx(changed)
            yield f"{what} {number}: {text}", _edit(subject).change(pattern, lambda s, made=made: made, number)  # type: ignore[misc]


def relaxed(subject: Subject) -> Made:
    """An order is weakened: release or acquire becomes relaxed; without one it was release or acquire."""
    yield from _each(subject, r"\b(mbarrier\.\w+|ld|st|red|atom|barrier\.cluster\.arrive)\..*\.(release|acquire|acq_rel)\b",
                     r"\.(release|acquire|acq_rel)\b", ".relaxed", "relaxed")
    yield from _each(subject, r"mbarrier\.(arrive|try_wait|test_wait)(?!.*(release|acquire|relaxed)).*shared",
                     r"(\.parity|\.expect_tx|arrive|arrive_drop)(\.noComplete)?\.shared", r"\1\2.relaxed.cta.shared", "relaxed default")
    yield from _each(subject, r"barrier\.cluster\.arrive(?!.*(release|relaxed))", r"arrive", "arrive.relaxed", "relaxed cluster")


def narrowed(subject: Subject) -> Made:
    """A scope becomes the CTA."""
    yield from _each(subject, r"^(?!.*(fence|tensormap)).*\.(acquire|release|acq_rel|relaxed)\.(cluster|gpu|sys)\b",
                     r"\.(cluster|gpu|sys)\b", ".cta", "cta")
    yield from _each(subject, r"^(?!.*(tensormap|mbarrier_init)).*\b(fence|membar)\..*(gpu|sys|cluster|gl)\b", r"\.(gpu|sys|cluster|gl)\b",
                     ".cta", "cta fence")


def counts(subject: Subject) -> Made:
    """A count of arrivals, bytes, threads or groups is off."""
    for by in (1, -1):
        pattern = r"mbarrier\.init.*, \d+;" if by > 0 else r"mbarrier\.init.*, ([2-9]|\d\d+);"
        yield from _each(subject, pattern, r", (\d+);", lambda m: f", {int(m[1]) + by};", f"init {by:+}")  # noqa: B023
    for by in (16, -16):
        yield from _each(subject, r"expect_tx.*, \d+;", r", (\d+);", lambda m: f", {int(m[1]) + by};", f"bytes {by:+}")  # noqa: B023
    for by in (32, -32):
        yield from _each(subject, r"\bbar(rier)?\.(sync|arrive).*, \d+;", r", (\d+);", lambda m: f", {int(m[1]) + by};", f"threads {by:+}")  # noqa: B023
    yield from _each(subject, r"\bbar(rier)?\.(sync|arrive) \d+, \d+;", r" (\d+),", lambda m: f" {int(m[1]) + 5},", "barrier")
    yield from _each(subject, r"wait_group(\.\S+)? \d+;", r" (\d+);", lambda m: f" {int(m[1]) + 1};", "groups")


def parities(subject: Subject) -> Made:
    """A wait for the other parity."""
    for number, statement in enumerate(_sites(subject, r"(try|test)_wait\.parity")):
        text = written(statement).rstrip(";")
        words = text.split(", ")
        at = next(i for i, word in enumerate(words) if word.startswith("[")) + 1
        given, words[at] = words[at], "%other"
        change = ptx(f"xor.b32 %other, {given}, 1;\n" + ", ".join(words) + ";") if given.startswith("%") \
            else ptx(", ".join(words).replace("%other", str(1 - int(given))) + ";")
        edit = _edit(subject).change(r"(try|test)_wait\.parity", lambda s, change=change: change, number)  # type: ignore[misc]
        yield f"parity {number}: {text}", edit.top(".reg .b32 %other;")


def repeated(subject: Subject) -> Made:
    """Done twice."""
    pattern = r"mbarrier\.(arrive|expect_tx|init)|bar\.arrive|barrier\.cluster\.arrive|cp\.async\.bulk\.(tensor|shared)"
    for number, statement in enumerate(_sites(subject, pattern)):
        yield f"twice {number}: {written(statement)}", _edit(subject).twice(pattern, number)


def shared_out(subject: Subject) -> Made:
    """Only some of the threads that did it do it."""
    conditions = {"warp 0": "and.b32 %some, %some, 96;\nsetp.eq.u32 %skip, %some, 0;",
                  "lane 0": "and.b32 %some, %some, 31;\nsetp.eq.u32 %skip, %some, 0;",
                  "not lane 3": "and.b32 %some, %some, 31;\nsetp.ne.u32 %skip, %some, 3;"}
    pattern = r"^(fence|bar\.(sync|arrive|warp)|cp\.async\.(bulk\.)?wait|wgmma\.(fence|wait)|mbarrier\.arrive|barrier\.cluster\.a|setmaxn)"
    for number, statement in enumerate(_sites(subject, pattern)):
        for name, condition in conditions.items():
            if statement.mnemonic in ("bar", "wgmma") and name != "warp 0" and "warp" not in written(statement):
                continue
            made = ptx(f"mov.u32 %some, %tid.x;\n{condition}\n@%skip {written(statement)}")
            edit = _edit(subject).change(pattern, lambda s, made=made: made, number)  # type: ignore[misc]
            yield f"only {name} {number}: {written(statement)}", edit.top(".reg .b32 %some;\n.reg .pred %skip;")


def moved(subject: Subject) -> Made:
    """An instruction that orders changes places with the next, or the previous, access of memory in its block."""
    flat = _edit(subject).find(lambda s: isinstance(s, tree.Instruction | tree.Label))
    for number, statement in enumerate(flat):
        if not isinstance(statement, tree.Instruction) or not ORDER.match(written(statement)):
            continue
        for step in (1, -1):
            at = number + step
            while 0 <= at < len(flat):
                other = flat[at]
                if not isinstance(other, tree.Instruction) or other.mnemonic in LEAVES or "try_wait" in other.opcode:
                    break
                if MEMORY.match(written(other)) and not ORDER.match(written(other)):
                    edit = _edit(subject)
                    edit.delete(lambda s, statement=statement: s is statement)  # type: ignore[misc]
                    place = edit.after if step > 0 else edit.before
                    place(lambda s, other=other: s is other, [statement])  # type: ignore[misc]
                    yield f"{'later' if step > 0 else 'earlier'} {number}: {written(statement)} than {written(other)}", edit
                    break
                at += step


def replaced(subject: Subject) -> Made:
    """A weaker instruction of the same family."""
    yield from _each(subject, r"^(@!?%\w+ )?bar\.sync .*", r"bar\.sync .*", "bar.warp.sync 4294967295;", "bar.warp for bar")
    yield from _each(subject, r"^bar\.warp\.sync", r"bar\.warp\.sync.*", "vote.sync.ballot.b32 %votes, 1, 4294967295;", "vote for bar.warp")
    yield from _each(subject, r"fence\.proxy\.async", r"fence\.proxy\.async\S*;", "fence.acq_rel.cta;", "fence for proxy fence")
    yield from _each(subject, r"fence\.proxy\.async(?!.*global)", r"fence\.proxy\.async\S*;", "fence.proxy.async.global;", "space")
    yield from _each(subject, r"fence\.proxy\.async(?!.*shared)", r"fence\.proxy\.async\S*;", "fence.proxy.async.shared::cta;", "space")
    yield from _each(subject, r"cp\.async\.bulk\.wait_group \d", r"wait_group ", "wait_group.read ", "read")
    yield from _each(subject, r"^barrier\.cluster\.wait", r"barrier\.cluster\.wait.*", "bar.sync 0;", "bar for cluster wait")


ALIKE = {
    r"^(only|twice).*fence\.mbarrier_init": "the barrier that follows orders the inits",
    r"^relaxed default.*(expect_tx|mbarrier\.(arrive|try_wait)).*": "only asynchronous operations read and write what it guards",
    r"^(later|earlier).*expect_tx.* than cp\.async": "the phase cannot complete before its arrival",
    r"^relaxed \d+: .*expect_tx": "only asynchronous operations write what it announces",
    r"^only .*(expect_tx|: @?%?p?\d* ?mbarrier\.arrive|wait_group|fence\.proxy\.tensormap)": "one thread executes it, among these",
    r"^only .*warp 0": "one warp executes it",
    r"^(read|groups|earlier).*bulk\.(wait|commit)_group": "stores in flight at exit: a review",
    r"^(later|earlier).* than (ld|st)\.global": "global memory has nothing to do with it",
    r"^(later|earlier).*commit_group.* than ldmatrix": "what is waited for are older groups",
    r"^vote for bar\.warp|^only .*bar\.warp": "the next instruction meets the lanes again",
    r"^init \+1": "a stage that no phase of this launch reuses",
    r"^cta .*(tensormap|try_wait.*acquire.cluster|st\.relaxed)": "the other side is in this CTA, or it is a copy that completes",
}
"""Mutants, by what was done to what, that may earn no error, and why. Mistakes of the same text elsewhere still earn one."""

HERE: dict[str, dict[str, str]] = {
    "tma_copy": {r"proxy": "the barrier's init needs no proxy fence"},
    "staged_mma": {r"bar\.sync": "any warp's wait_group covers the operand reads of the whole warpgroup"},
    "cluster_multicast": {r"barrier": "each CTA waits for the copies into it"},
    "nvcc.around": {r"^relaxed cluster 0": "it publishes nothing: the CTAs have begun"},
    "nvcc.staged": {r"^bar\.warp for bar": "the neighbour is a lane of the same warp",
                    r" (72|103|104|105): |^groups 4": "the last round, and the loop that five rounds do not enter"},
}


def alike(subject: str, what: str) -> bool:
    """Whether a mutant may earn no error."""
    return any(re.search(pattern, what) for pattern in (*ALIKE, *HERE.get(subject, ())))


OPERATORS: tuple[Operator, ...] = (relaxed, narrowed, counts, parities, repeated, shared_out, moved, replaced)


def mutants(name: str, operators: tuple[Operator, ...] = OPERATORS) -> Iterator[tuple[str, Any]]:
    """All mutants of a subject: what was done, the source."""
    subject = SUBJECTS[name]
    for operator in operators:
        for what, edit in operator(subject):
            if operator is replaced:
                edit.top(".reg .b32 %votes;")
            yield what, edit.done()


__all__ = ["ALIKE", "HERE", "OPERATORS", "alike", "mutants"]
