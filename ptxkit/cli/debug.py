"""The command `ptxkit debug`: step through a launch on the CPU device, by hand or by a file of commands."""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from .errors import UsageError
from .files import is_file
from .launches import ARRAYS, from_file, launch_arguments, spec_of, writable, write_files
from .paths import named, text_of
from .source import kernel_of

if TYPE_CHECKING:
    from ..debugger.live import LiveSession
    from ..proof.spec import Spec

_EXIT = """\
Commands come from the terminal, from --commands, or from standard input where that is no terminal; `help` lists them.

Exit status: 0 the session was left, or the run has ended and its verdict is clean or review; 1 it has ended with another, or a command
of a file was wrong; 2 usage, or a launch that does not fit the kernel."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's source and options."""
    parser.epilog, parser.formatter_class = f"{ARRAYS}\n\n{_EXIT}", argparse.RawDescriptionHelpFormatter
    launch_arguments(parser)
    parser.add_argument("--commands", type=named, metavar="FILE", help="take the commands from a file")
    parser.set_defaults(schedules=None)


def run(options: argparse.Namespace) -> int:
    """Reads commands until `quit` or their end."""
    from ..debugger.terminal import Terminal
    from ..errors import TraceError
    from ..proof.spec import SpecError
    from ..sim import SimulationError, UnsupportedError

    if options.json:
        raise UsageError("debug writes no JSON: a session in Python has it all, `kernel.debug(grid, ...)`")
    if options.replay and (options.schedule or options.seed is not None):
        raise UsageError("--replay has the schedule: leave out --schedule and --seed")
    try:
        spec, session = _session(options)
    except (SimulationError, SpecError, TraceError, UnsupportedError) as error:
        raise UsageError(getattr(error, "message", str(error))) from None
    source, script = _commands(options)
    with source:
        terminal = Terminal(session, source, sys.stdout, script=script)
        terminal.cmdloop()
    if session.report is not None:
        write_files(options, spec, session.launch.arrays)
    if session.report is None:
        return int(bool(terminal.failed))
    good = session.report.verdict in ("clean", "review") or (options.no_check and session.report.verdict != "error")
    return int(bool(terminal.failed) or not good)


def _session(options: argparse.Namespace) -> tuple[Spec, LiveSession]:
    from ..debugger.live import LiveSession
    from ..dsl.named import names_of
    from ..replay.choices import Choices
    from ..replay.policies import Replaying

    spec, source, text = spec_of(options, from_file(options))
    launch = replace(spec.launch(source), text=text)
    writable(options, launch.arrays, [])
    names = None
    if not is_file(spec.source):
        kernel, config = kernel_of(spec.source, spec.config)
        names = names_of(kernel, config)
    schedule = Replaying(Choices.load(options.replay)) if options.replay else spec.schedule
    return spec, LiveSession(launch, schedule=schedule, seed=spec.seed, check=not options.no_check, max_steps=spec.max_steps, names=names)


def _commands(options: argparse.Namespace) -> tuple[TextIO, bool]:
    """Where commands come from, and whether that is a file."""
    if options.commands and options.commands != "-":
        return io.StringIO(text_of(options.commands)), True
    return (sys.stdin, False) if sys.stdin.isatty() else (io.StringIO(sys.stdin.read()), True)
