"""How a command ends: what it raises becomes one sentence on stderr, and an exit status. Streams may be closed or full.

Exit status: what the command returns; 1 a failure, or output that cannot be written; 2 usage, and settings that are not legal; 130 after
Ctrl-C; 141 when the reader of stdout has gone, as of a program that SIGPIPE ends. SIGTERM and SIGHUP end the command as they end any
program, after its assembler was stopped and its temporary folders are gone.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ..errors import AssembleError, CheckError, PtxkitError, SettingsError
from ..settings import settings
from .errors import UsageError
from .extras import EXTRAS, way_out
from .messages import about, drop, plain, say, shown
from .output import finding_row, show_json
from .source import author_line, error_named

FAILED, USAGE, INTERRUPTED, PIPE = 1, 2, 130, 141
_STDOUT = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EAGAIN)


class UsageExit(SystemExit):
    """argparse has refused a command line, and has said so on stderr."""

    def __init__(self, message: str) -> None:
        super().__init__(USAGE)
        self.message = message


class Parser(argparse.ArgumentParser):
    """A parser of a command line whose refusal can be told as JSON, too."""

    def error(self, message: str) -> NoReturn:
        with contextlib.suppress(OSError):
            self.print_usage(sys.stderr)
        say(f"{self.prog}: error: {message}")
        raise UsageExit(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Help and the version. argparse would drop the error of a stdout that takes nothing, which shows here where it is not buffered."""
        if message:
            (file or sys.stderr).write(message)


class Stopped(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Signals that end a process are raised as `Stopped`, so that what is under way cleans up. They then end it."""
    names = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    if threading.current_thread() is not threading.main_thread():
        names = []                                                  # only that thread is told of signals
    owner = os.getpid()

    def stop(number: int, frame: Any) -> None:
        if os.getpid() == owner:
            raise Stopped(number)
        signal.signal(number, signal.SIG_DFL)                       # a process of a pool, which is forked
        os.kill(os.getpid(), number)

    mine = [number for number in names if signal.getsignal(number) == signal.SIG_DFL]
    for number in mine:
        signal.signal(number, stop)
    try:
        yield
    except Stopped as error:
        signal.signal(error.number, signal.SIG_DFL)
        os.kill(os.getpid(), error.number)
        raise
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


def guarded(run: Callable[[], int], arguments: Sequence[str], prefix: str = "ptxkit: ") -> int:
    """The exit status of `run`. With --json among the arguments, an error is also a JSON object on stdout: `error`, and `findings`."""
    _replace_closed()
    try:
        try:
            with stoppable(), about(arguments):
                status = _told(run, arguments, prefix)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        return PIPE
    except OSError as error:
        drop(sys.stdout)
        say(f"{prefix}cannot write to stdout: {error.strerror or error}")
        return FAILED
    return status


def _told(run: Callable[[], int], arguments: Sequence[str], prefix: str) -> int:
    as_json = _wants_json(arguments)

    def failed(said: str, status: int, **more: Any) -> int:
        if as_json:
            show_json({"error": plain(said).splitlines()[0], **more})
        say(prefix + said)
        return status

    try:
        settings()
        for word in arguments:
            if "\0" in word:
                raise UsageError(f"{shown(word)} has a NUL character, which no name and no value has")
        return run()
    except UsageExit as end:
        if as_json:
            show_json({"error": plain(end.message)})
        raise
    except SystemExit as end:  # of --help, or of an author's function, which would end the command without a word
        if (place := author_line(end)) is None:
            raise
        return failed(f"{place}: {error_named(end)}: a kernel cannot end Python, raise an error", FAILED)
    except (UsageError, SettingsError) as error:
        return failed(str(error), USAGE)
    except (AssembleError, CheckError) as error:
        return failed(str(error), FAILED, findings=[finding_row(finding) for finding in error.findings])
    except PtxkitError as error:
        return failed(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except MemoryError:
        return failed("there is not enough memory", FAILED)
    except Exception as error:  # of an author's function, while it is traced; of a stream; or a fault of ptxkit
        if place := author_line(error):
            return failed(f"{place}: {error_named(error)}", FAILED)
        if isinstance(error, OSError) and error.filename is None and error.errno in _STDOUT:
            raise
        if isinstance(error, OSError) and error.strerror:
            return failed(f"cannot use {error.filename}: {error.strerror}" if error.filename else error.strerror, FAILED)
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            return failed(f"this needs {error.name}, which is not installed: `{way_out(error.name)}`", FAILED)
        logging.getLogger("ptxkit").debug("a fault of ptxkit", exc_info=error)
        where = traceback.extract_tb(error.__traceback__)[-1]
        return failed(f"a fault of ptxkit at {where.filename}:{where.lineno}: {error_named(error)} "
                      "(PTXKIT_LOG=debug shows how it came about)", FAILED)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether stdout is to be JSON: --json alone, or with - as its file."""
    for at, word in enumerate(arguments):
        if word == "--json":
            following = arguments[at + 1] if at + 1 < len(arguments) else "-"
            if following.startswith("-") or arguments[0] not in ("bench", "ladder", "timeline", "verify", "grouped"):
                return True
        elif word == "--json=-":
            return True
    return False


def _replace_closed() -> None:
    """Open what this process was started without: no file of its own gets that number. Reading stdin and writing to stdout then fail."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                opened = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
                if opened != number:
                    os.dup2(opened, number)
                    os.close(opened)
            setattr(sys, name, open(number, mode, closefd=False, encoding="utf-8", errors="backslashreplace"))  # noqa: SIM115


__all__ = ["Parser", "UsageExit", "guarded"]
