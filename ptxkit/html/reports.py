"""What was found: by the static rules, in a run on the CPU device, in a proof, by a search for a failing schedule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .parts import badge, code, finding, folded, framed, pre, said

if TYPE_CHECKING:
    from ..explain.instruction import Explanation
    from ..grammar.errors import Finding
    from ..proof.result import Proof
    from ..replay.found import Search
    from ..sim.report import Report


def checked(found: Iterable[Finding]) -> str:
    """Findings of the static rules."""
    listed = list(found)
    if not listed:
        return framed(f"<p>{badge('clean')}no findings</p>")
    worst = next(severity for severity in ("error", "review", "info") if any(each.severity == severity for each in listed))
    many = f"{len(listed)} finding{'s' * (len(listed) > 1)}"
    return framed(f"<p>{badge(worst)}{many}</p>", *map(finding, listed))


def report(made: Report) -> str:
    """A run on the CPU device."""
    first, *rest = str(made).splitlines()
    word, _, counts = first.partition(": ")
    said_by = [line for finding_ in made.findings for line in str(finding_).splitlines()]
    return framed(f"<p>{badge(word)}{code(counts)}</p>", *(f"<p>{code(line)}</p>" for line in rest if line not in said_by),
                  *map(finding, made.findings), *_output(made.output))


def _output(text: str) -> Iterable[str]:
    return [folded("what the kernel printed", pre(text), open=True)] if text else []


def proof(made: Proof) -> str:
    """Several schedules of one launch."""
    head, *rest = made.lines()
    word, _, what = head.partition(": ")
    found = [(each, _within(schedules, len(made.runs))) for each, schedules in made.findings()]
    sentences = rest[:len(rest) - len(found)]
    return framed(f"<p>{badge(word)}{code(what)}</p>", *(f"<p>{code(line)}</p>" for line in sentences),
                  *(finding(each, more) for each, more in found))


def _within(schedules: tuple[Any, ...], count: int) -> str:
    """In which schedules a finding is, where that is not all of them."""
    if len(schedules) == count:
        return ""
    return f" [in {', '.join(map(str, schedules[:3]))}" + (f" and {len(schedules) - 3} more]" if len(schedules) > 3 else "]")


def search(made: Search) -> str:
    """The failures that a search has found, each with the choices of its schedule."""
    head, *_ = str(made).splitlines()
    word = "error" if made.replays else "clean"
    return framed(f"<p>{badge(word)}{code(head)}</p>", *(pre(str(each)) for each in made.replays))


def explanation(made: Explanation, text: str) -> str:
    """An instruction explained, as its page of text."""
    opcode = made.opcode + ("" if made.complete or not made.forms else "...")
    return framed(f'<p class="title"><code>{code(opcode)}</code></p>', pre(text.partition("\n")[2]),
                  *([] if made.complete or not made.next else [said("The opcode is not complete.")]))
