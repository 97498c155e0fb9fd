"""Reads the logs of ptxas and the driver's assembler: messages become findings, and `-v` gives the resources."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..errors import Finding, Kind, Position, Severity


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one entry, in bytes, except `registers` (of a thread) and `barriers` (named barriers of a CTA).

    `stack` is the cumulative size including calls, `shared` the static part, and `constant` has (bank, bytes).
    """

    name: str
    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0
    constant: tuple[tuple[int, int], ...] = ()

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^\s':]+)")
_STACK = re.compile(r"(\d{1,15}) bytes stack frame, (\d{1,15}) bytes spill stores, (\d{1,15}) bytes spill loads")
_USED = re.compile(r"[Uu]sed (\d{1,15}) registers(.*)")
_SHARED = re.compile(r"(\d{1,15}) bytes smem")
_BARRIERS = re.compile(r"used (\d{1,15}) barriers")
_CONSTANT = re.compile(r"(\d{1,15}) bytes cmem\[(\d{1,15})\]")
_CUMULATIVE = re.compile(r"(\d{1,15}) bytes cumulative stack size")


def resources(log: str) -> dict[str, Resources]:
    """Each entry's resources, in the order in which they were compiled."""
    frames: dict[str, tuple[int, int, int]] = {}
    used: dict[str, str] = {}
    entry = function = ""
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry = found.group(1)
        elif found := _PROPERTIES.search(line):
            function = found.group(1)
        elif found := _STACK.search(line):
            stack, stores, loads = map(int, found.groups())
            frames[function or entry] = stack, stores, loads
        elif found := _USED.search(line):
            used[entry or function] = found.group()
    return {name: _entry(name, said, frames.get(name, (0, 0, 0))) for name, said in used.items()}


def _entry(name: str, said: str, frame: tuple[int, int, int]) -> Resources:
    def number(pattern: re.Pattern[str], default: int = 0) -> int:
        found = pattern.search(said)
        return int(found.group(1)) if found else default

    stack, stores, loads = frame
    constant = tuple((int(bank), int(size)) for size, bank in _CONSTANT.findall(said))
    return Resources(name, number(_USED), number(_CUMULATIVE, stack), stores, loads, number(_SHARED), number(_BARRIERS), constant)


_MESSAGE = re.compile(r"^(?:ptxas\s*)?(?:[^,:;]+, line \d+; )?\s*(?P<severity>info|warning|error|fatal)\s*:\s*"
                      r"(?:\((?P<code>C\d+)\)\s*)?(?P<text>.*)$")
_NUMBER = re.compile(r"(?P<before>, line |(?:around|at) line )(?P<line>\d{1,15})\b")
_FUNCTION = re.compile(r"(?:in|for) (?:the )?function '?([\w$.]+?)'?\.?(?:\s|$)")
_ROUTINE = re.compile(r"\d+ bytes [gc]mem|Compiling entry|Function properties|[Uu]sed \d+ registers|Compile time|Ptx assembly aborted")


@dataclass(frozen=True, slots=True)
class _Remark:
    """A known message: its text, a fix, and its severity."""

    text: str
    fix: str
    kind: Kind = "advice"
    severity: Severity = "review"


_STAGE = ("a stage runs from wgmma.fence over the wgmmas and wgmma.commit_group to wgmma.wait_group, and only wgmma may touch its "
          "registers in between")

# The texts of ptxas 13.0. A message that is not in this list is reported without a fix.
_REMARKS = (
    _Remark("'setmaxnreg' ignored to allow debugging", "assemble without -g and without `debug` in .target: .loc alone already maps lines"),
    _Remark("'setmaxnreg' ignored to maintain compatibility across compilation units",
            "assemble the whole module: no -c and no linker (cuLink, nvJitLink), which compile relocatably; ptxkit joins modules as trees"),
    _Remark("'setmaxnreg' ignored; unable to determine register count at entry",
            "give the entry a register cap: .maxntid or .reqntid together with .minnctapersm 1, or .maxnreg"),
    _Remark("'setmaxnreg' ignored to maintain compatibility into 'extern' call",
            "define the called function in this module, or inline it"),
    _Remark("'setmaxnreg' ignored to maintain minimum register requirements",
            "raise the number of setmaxnreg.dec: the code after it needs more registers"),
    _Remark("setmaxnreg.dec has register count",
            "setmaxnreg.dec only gives registers back: its number must not exceed the count at entry, which .maxntid and .minnctapersm "
            "decide", "language", "error"),
    _Remark("serialized due to the presence of Extern calls",
            "define the called function in this module, or move the call out of the wgmma stage"),
    _Remark("serialized due to wgmma pipeline crossing function boundary",
            "keep fence, wgmmas, commit_group and wait_group in one function: inline the callee into the kernel"),
    _Remark("serialized due to insufficient register resources",
            "accumulators and operands in flight do not fit: a smaller N, fewer values kept alive across the stage, or more registers "
            "(fewer threads, setmaxnreg.inc)"),
    _Remark("serialized due to non wgmma instructions defining input registers",
            f"load the A registers of the next wgmma before wgmma.fence, or into other registers: {_STAGE}"),
    _Remark("serialized due to non wgmma instructions reading accumulator registers",
            f"put wgmma.wait_group before the first use of the accumulators: {_STAGE}"),
    _Remark("serialized due to non wgmma instructions defining accumulator registers",
            f"clear the accumulators before wgmma.fence, or start with scale-d false: {_STAGE}"),
    _Remark("serialized due to ill formed pipeline stage",
            f"every path must pass fence, commit_group and wait_group in that order: {_STAGE}"),
    _Remark("serialized due to program dependence on compiler-inserted",
            "ptxas would have to add a wait or fence where the warps of a warpgroup can differ: write wgmma.fence and wgmma.wait_group "
            "yourself, in code that the whole warpgroup runs"),
    _Remark("serialized due to", _STAGE),
    _Remark("warpgroup.wait is injected",
            "ptxas added a wait before registers that a wgmma still writes: write wgmma.wait_group before their first use", "protocol"),
    _Remark("warpgroup.arrive is injected",
            "ptxas added a fence before a wgmma whose registers other instructions wrote: write wgmma.fence between the last write "
            "and the first wgmma", "protocol"),
    _Remark("Insufficient registers (",
            "fewer threads a CTA (or a higher .maxnreg) leave more registers to each; or a wgmma with a smaller N", "language", "error"),
    _Remark("Registers are spilled", "keep fewer values alive at once, or give each thread more registers"),
    _Remark("Unsupported .version", "emit a lower .version, or install a newer ptxas or driver", "language", "error"),
    _Remark("not supported on .target 'sm_90'", "the instruction needs .target sm_90a", "language", "error"),
    _Remark("Unresolved extern function", "define the function in this module: ptxkit.link joins modules", "language", "error"),
)


def findings(log: str, ptx: str = "", lines: Mapping[int, Position] | None = None) -> tuple[Finding, ...]:
    """The log's messages in order, with spills and without routine messages.

    A message with a function but no line gets the position of the function's declaration in `ptx`.
    """
    declared = _Declarations(ptx, lines)
    return (*_messages(log, declared, lines), *_spills(log, declared))


def _messages(log: str, declared: _Declarations, lines: Mapping[int, Position] | None) -> Iterator[Finding]:
    for line in log.splitlines():
        found = _MESSAGE.match(line)
        if found is None or _ROUTINE.match(found["text"]):
            continue
        text, code = found["text"].strip(), found["code"]
        remark = next((remark for remark in _REMARKS if remark.text in text), None)
        if found["severity"] in ("error", "fatal"):
            kind, severity = "language", "error"
        elif remark is not None:
            kind, severity = remark.kind, remark.severity
        else:
            kind, severity = "advice", "review" if code or found["severity"] == "warning" else "info"
        number = _NUMBER.search(line)
        function = _FUNCTION.search(text)
        where = position(int(number["line"]), lines) if number else declared.of(function.group(1)) if function else None
        text = text.replace("around line", "around PTX line").replace("at line", "at PTX line")
        yield Finding(code or "ptxas", text, remark.fix if remark else "", where, kind, severity)  # type: ignore[arg-type]


def _spills(log: str, declared: _Declarations) -> Iterator[Finding]:
    for name, entry in resources(log).items():
        if entry.spills:
            message = f"{name} spills registers to local memory: {entry.spill_stores} bytes stored, {entry.spill_loads} bytes loaded"
            fix = "keep fewer values alive at once, or give each thread more registers (fewer threads, .maxnreg, setmaxnreg.inc)"
            yield Finding("spill", message, fix, declared.of(name), "advice", "review")


_HEAD = re.compile(r"\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([%\w$]+)")


class _Declarations:
    """The positions of the functions of a text. The text is scanned once, at the first request."""

    def __init__(self, ptx: str, lines: Mapping[int, Position] | None) -> None:
        self.ptx = ptx
        self.lines = lines

    def of(self, function: str) -> Position | None:
        """The source position of a function: of its first line that has one, since declarations have none."""
        line = self._found.get(function)
        if line is None:
            return None
        at = bisect_left(self._known, line)
        return position(self._known[at] if at < len(self._known) else line, self.lines)

    @cached_property
    def _found(self) -> dict[str, int]:
        """The line of the first declaration of each function."""
        found: dict[str, int] = {}
        line, before = 1, 0
        for head in _HEAD.finditer(self.ptx):
            line += self.ptx.count("\n", before, head.start())
            before = head.start()
            found.setdefault(head[1], line)
        return found

    @cached_property
    def _known(self) -> list[int]:
        """The lines that have a source position."""
        return sorted(self.lines or ())


def position(line: int, lines: Mapping[int, Position] | None) -> Position:
    """The source position of a line of the PTX text; the PTX line itself if the map does not have it."""
    return (lines.get(line) if lines else None) or Position(None, line)


def renumber(log: str, numbers: Mapping[int, int]) -> str:
    """The log with its PTX line numbers replaced through `numbers`."""
    return _NUMBER.sub(lambda found: f"{found['before']}{numbers.get(int(found['line']), int(found['line']))}", log)
