"""A session in a terminal: plain text, one command a line, also from a file."""

from __future__ import annotations

import cmd
import re
import signal
import threading
from collections.abc import Callable
from typing import Any, TextIO

from ..errors import PtxkitError
from ..layout import Layout
from ..sim.errors import SimulationError
from ..types import TYPES
from .breaks import Stop
from .live import LiveSession
from .tables import aligned
from .values import CODED, PLAIN

ALIASES = {"b": "break", "c": "continue", "s": "step", "n": "next", "r": "registers", "w": "warps", "p": "print", "q": "quit", "l": "list",
           "?": "help", "EOF": "quit"}
GROUPS = {
    "Stop": ("break", "delete", "breaks"),
    "Go on": ("step", "next", "run", "phase", "continue", "finish", "back", "restart"),
    "Look": ("where", "list", "warps", "registers", "print", "tile", "shared", "memory", "barriers", "flight", "findings"),
    "Schedule": ("warp", "late", "land", "save"),
    "Leave": ("help", "quit"),
}


class Usage(PtxkitError):
    """A command that is not written as its help says."""


class Terminal(cmd.Cmd):
    """Reads commands and prints what a session says. `script`: commands come from a file, are printed before they run, and the first that
    fails ends it (`failed`).
    """

    prompt = "(ptxkit) "
    use_rawinput = True

    def __init__(self, session: LiveSession, source: TextIO, out: TextIO, *, script: bool) -> None:
        super().__init__(stdin=source, stdout=out)
        self.session = session
        self.script = script
        self.failed = ""
        self.running = False
        self.use_rawinput = not script
        if script:
            self.prompt = ""

    # ------------------------------------------------------------------------------------------- the loop

    def preloop(self) -> None:
        self.say(self.session.stop)

    def cmdloop(self, intro: Any = None) -> None:
        """At a prompt an interrupt (Ctrl-C) stops what runs, not the session."""
        if self.script or threading.current_thread() is not threading.main_thread():
            super().cmdloop(intro)
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            super().cmdloop(intro)
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, number: int, frame: Any) -> None:
        if not self.running:
            raise KeyboardInterrupt
        self.session.interrupt()

    def precmd(self, line: str) -> str:
        line = line.partition("#")[0].strip()
        if self.script and line and line != "EOF":
            self.say(f"\n(ptxkit) {line}")
        name, _, rest = line.partition(" ")
        return f"{ALIASES.get(name, name)} {rest}".strip()

    def onecmd(self, line: str) -> bool:
        self.running = True
        try:
            return bool(super().onecmd(line))
        except PtxkitError as error:
            return self._wrong(getattr(error, "message", None) or str(error))
        finally:
            self.running = False

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> bool:  # type: ignore[override]
        return self._wrong(f"there is no command {line.split()[0]!r}; `help` lists them")

    def _wrong(self, words: str) -> bool:
        self.say(f"wrong: {words}")
        if self.script:
            self.failed = words
        return self.script

    def say(self, what: Any) -> None:
        print(what, file=self.stdout)

    def _stand(self, stop: Stop) -> None:
        self.say(stop)

    # ------------------------------------------------------------------------------------------- stop

    def do_break(self, rest: str) -> None:
        """break LINE [warp N] [cta N] [skip N] [when NAME == NUMBER]: stop before a line: 12, file.py:12 or ptx:40 (a line of the PTX).
        break phase [BARRIER] [phase N] [cta N] [skip N]: stop when a barrier completes a phase: full[0], full, barrier 1, cluster.
        break finding: stop when the checker has found something."""
        words = rest.split()
        if not words:
            raise Usage(self._help("break"))
        if words == ["finding"]:
            self.say(self.session.break_finding())
        elif words[0] == "phase":
            name, given = _options(words[1:], ("phase", "cta", "skip"))
            self.say(self.session.break_phase(name, **given))
        else:
            place, _, when = rest.partition(" when ")
            name, given = _options(place.split(), ("warp", "cta", "skip"))
            self.say(self.session.break_at(name, when=when, **given))

    def do_delete(self, rest: str) -> None:
        """delete N: forget a breakpoint."""
        self.session.delete(_count(rest, None))

    def do_breaks(self, rest: str) -> None:
        """breaks: the breakpoints, and how often each was reached."""
        self.say(self.session.breakpoints())

    # ------------------------------------------------------------------------------------------- go on

    def do_step(self, rest: str) -> None:
        """step [N]: execute one instruction, or N, of the warp whose turn it is."""
        self._stand(self.session.step(_count(rest, 1)))

    def do_next(self, rest: str) -> None:
        """next: let the warp go on to another line."""
        self._stand(self.session.line())

    def do_run(self, rest: str) -> None:
        """run: let the warp go on until it waits, exits, or lets others go on."""
        self._stand(self.session.run_warp())

    def do_phase(self, rest: str) -> None:
        """phase [BARRIER]: let all go on until a barrier completes a phase."""
        self._stand(self.session.phase(rest))

    def do_continue(self, rest: str) -> None:
        """continue: let all go on to a breakpoint or to the end."""
        self._stand(self.session.go())

    def do_finish(self, rest: str) -> None:
        """finish: let all go on to the end, past breakpoints."""
        try:
            self.session.finish()
        finally:
            self._stand(self.session.stop)

    def do_back(self, rest: str) -> None:
        """back [N]: go back by one turn, or by N: begin again and do the same up to there."""
        self._stand(self.session.back(_count(rest, 1)))

    def do_restart(self, rest: str) -> None:
        """restart: begin again; breakpoints stay."""
        self._stand(self.session.restart())

    # ------------------------------------------------------------------------------------------- look

    def do_where(self, rest: str) -> None:
        """where: why the run stands, and where."""
        self._stand(self.session.stop)

    def do_list(self, rest: str) -> None:
        """list: the source around the next instruction, the author's and the PTX."""
        excerpts = self.session.source()
        if not excerpts:
            self.say("no source is known here")
        for excerpt in excerpts:
            self.say(f"{excerpt.name}:")
            rows = [("->" if number == excerpt.marked else "  ", str(number), text.replace("\t", "    ")) for number, text in excerpt.lines]
            self.say(aligned(rows))

    def do_warps(self, rest: str) -> None:
        """warps: where each warp stands, and what it waits for."""
        self.say(self.session.warps())

    def do_registers(self, rest: str) -> None:
        """registers [all] [NAME ...] [warp N] [cta N] [lane N]: those that have been written and are read later (all: every one), or
        those of these names."""
        words, given = _options(rest.split(), ("warp", "cta", "lane"))
        names = words.split()
        every = "all" in names
        self.say(self.session.registers(*[name for name in names if name != "all"], every=every, **given))

    def do_print(self, rest: str) -> None:
        """print NAME [warp N] [cta N] [lane N]: the 32 lanes of a register, lane by lane."""
        words, given = _options(rest.split(), ("warp", "cta", "lane"))
        if not words:
            raise Usage(self._help("print"))
        for row in self.session.registers(*words.split(), **given):
            self.say(f"{row.register}{f' ({row.name})' if row.name else ''}, {row.type}")
            self.say(row.lanes_table())

    def do_tile(self, rest: str) -> None:
        """tile NAME [STAGE] [cta N]: a tile of the kernel as (rows, columns), without its swizzle.
        tile PLACE [cta N]: the box that a tensor copy has left there. PLACE is a name, name+16 (bytes) or +0x400.
        tile PLACE TYPE ROWSxCOLUMNS [swizzle=128|64|32|16|0] [major=k|mn] [cta N]: what lies there, in that layout."""
        words, given = _options(rest.split(), ("cta",))
        known = [name for name in self.session.memory.tiles() if f"{words} ".startswith(f"{name} ")]  # a name may have spaces
        name = max(known, key=len, default=(words.split() or [""])[0])
        more = words[len(name):].split()
        if not name:
            raise Usage(self._help("tile"))
        if not more or more[0].isdecimal():
            self.say(self.session.tile(name, int(more[0]) if more else 0, **given))
        else:
            self.say(self.session.tile(name, layout=_layout(more), **given))

    def do_shared(self, rest: str) -> None:
        """shared PLACE [COUNT] [TYPE] [cta N]: elements of shared memory as they lie. PLACE is a name, name+16 (bytes) or +0x400."""
        words, given = _options(rest.split(), ("cta",))
        place, count, type_ = _elements(words.split(), self._help("shared"))
        self.say(self.session.shared(place, count, type_, **given))

    def do_memory(self, rest: str) -> None:
        """memory: the buffers in global memory. memory NAME: an array among the arguments, as it is now.
        memory NAME[+BYTES] COUNT TYPE: elements of a buffer as they lie."""
        words = rest.split()
        memory = self.session.memory
        if not words:
            buffers = [(a.name, f"{a.stop - a.start:,} bytes") for a in self.session.machine.memory.allocations]
            self.say(aligned(buffers) if buffers else "there are no buffers in global memory")
        elif len(words) == 1 and "+" not in words[0]:
            self.say(memory.array(words[0]))
        else:
            place, count, type_ = _elements(words, self._help("memory"))
            name, _, more = place.partition("+")
            self.say(memory.globals(name, int(more or "0", 0), count, type_))

    def do_barriers(self, rest: str) -> None:
        """barriers: the phase under way of each barrier: what is missing, who has arrived, who waits."""
        self.say(self.session.barriers())

    def do_flight(self, rest: str) -> None:
        """flight: copies and groups of wgmma that were issued and have not landed."""
        self.say(self.session.flight())

    def do_findings(self, rest: str) -> None:
        """findings: what the checker has found so far."""
        found = self.session.findings
        self.say("\n".join(map(str, found)) if found else "no findings")

    # ------------------------------------------------------------------------------------------- schedule

    def do_warp(self, rest: str) -> None:
        """warp N [cta N] [lane N]: this warp executes the next instruction."""
        words, given = _options(rest.split(), ("cta", "lane"))
        self._stand(self.session.switch(_count(words, None), **given))

    def do_late(self, rest: str) -> None:
        """late [off]: keep copies that are issued from now on in flight, until `land` or until nobody can go on."""
        self.session.late(rest.strip() != "off")
        self.say("operations land " + ("at issue, as the schedule says" if rest.strip() == "off" else "late"))

    def do_land(self, rest: str) -> None:
        """land N [warp N] [cta N]: land an operation in flight, the n-th of its warp."""
        words, given = _options(rest.split(), ("warp", "cta"))
        self.session.land(_count(words, None), **given)
        self.say(self.session.flight())

    def do_save(self, rest: str) -> None:
        """save FILE: write the schedule so far, for --replay."""
        if not rest.strip():
            raise Usage(self._help("save"))
        try:
            path = self.session.save(rest.strip())
        except OSError as error:
            raise SimulationError(f"cannot write {rest.strip()}: {error.strerror}") from None
        self.say(f"{len(self.session.choices.steps)} steps are in {path}")

    # ------------------------------------------------------------------------------------------- leave

    def do_quit(self, rest: str) -> bool:
        """quit: leave."""
        return True

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: what there is, or what a command does."""
        name = ALIASES.get(arg.strip(), arg.strip())
        if name:
            self.say(self._help(name))
            return
        shown = {each: each for names in GROUPS.values() for each in names}
        shown.update({long: f"{long} ({letter})" for letter, long in ALIASES.items() if len(letter) == 1 and letter.isalpha()})
        self.say(aligned([(f"{group}:", ", ".join(shown[each] for each in names)) for group, names in GROUPS.items()]))

    def _help(self, name: str) -> str:
        made: Callable[..., Any] | None = getattr(self, f"do_{name}", None)
        if made is None or made.__doc__ is None:
            raise Usage(f"there is no command {name!r}; `help` lists them")
        return re.sub(r"\n +", "\n", made.__doc__)


def _options(words: list[str], names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """(what stands before, NAME N pairs at the end)."""
    given: dict[str, Any] = {}
    while len(words) >= 2 and words[-2] in names and words[-1].isdecimal():
        given[words[-2]] = int(words[-1])
        words = words[:-2]
    return " ".join(words), given


def _count(text: str, default: int | None) -> int:
    if not text.strip() and default is not None:
        return default
    if not text.strip().isdecimal():
        raise Usage(f"a number is needed, not {text.strip()!r}")
    return int(text)


def _elements(words: list[str], help: str) -> tuple[str, int, str]:
    """(place, count, type) of PLACE [COUNT] [TYPE]."""
    if not words:
        raise Usage(help)
    counts = [int(word) for word in words[1:] if word.isdecimal()]
    types = [word for word in words[1:] if not word.isdecimal()]
    if len(counts) > 1 or len(types) > 1 or (types and types[0] not in PLAIN and types[0] not in CODED):
        raise Usage(f"{help}\nTYPE is one of {', '.join((*PLAIN, *CODED))}")
    return words[0], counts[0] if counts else 8, types[0] if types else "u32"


def _layout(words: list[str]) -> Layout:
    """TYPE ROWSxCOLUMNS [swizzle=N] [major=k|mn]."""
    shape = [word for word in words if re.fullmatch(r"\d+x\d+", word)]
    types = [word for word in words if word in TYPES]
    more = dict(word.split("=", 1) for word in words if "=" in word)
    if len(shape) != 1 or len(types) != 1 or len(words) != 2 + len(more) or more.keys() - {"swizzle", "major"} \
            or not more.get("swizzle", "0").isdecimal():
        raise Usage("a layout is TYPE ROWSxCOLUMNS [swizzle=128] [major=mn], as bf16 64x64 swizzle=128")
    rows, columns = map(int, shape[0].split("x"))
    swizzle = int(more["swizzle"]) if "swizzle" in more else None
    return Layout.of(TYPES[types[0]], rows, columns, major=more.get("major", "k"), swizzle=swizzle)  # type: ignore[arg-type]


__all__ = ["Terminal"]
