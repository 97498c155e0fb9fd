"""The user's source position: the innermost line of the call stack outside ptxkit."""

from __future__ import annotations

import linecache
import os
import sys
from bisect import bisect_right
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..grammar.errors import Position

if TYPE_CHECKING:
    from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_KERNELS = tuple(_PACKAGE + name + os.sep for name in ("gemm", "attention"))
"""They use this package like user code, although they lie in its folder."""
_COMMAND = _PACKAGE + os.path.join("cli", "guard.py")
_PYTHON = str(Path(os.__file__).parent) + os.sep
_CONTEXTLIB = sys.modules["contextlib"].__file__ if "contextlib" in sys.modules else None


def user_position() -> Position | None:
    """File and line of the innermost frame outside this package; None if there is none. `ptxkit.gemm` and
    `ptxkit.attention` count as outside."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        filename = code.co_filename
        ends = _ends.get(filename)
        if ends is None:
            ends = _ends[filename] = filename == _COMMAND or (outside(filename) and not of_python(filename))
        if ends:
            return None if filename == _COMMAND else _position(code, frame.f_lasti)     # what started the command is nobody's kernel
        frame = frame.f_back
    return None


_ends: dict[str, bool] = {}
"""Whether the way up the stack ends at a frame of this file."""


def _position(code: CodeType, at: int) -> Position:
    """The place in the source of the instruction at an offset of a function's code."""
    found = _positions.get((id(code), at))
    if found is None or found[0] is not code:
        if len(_positions) >= MOST:
            _positions.clear()
        found = _positions[id(code), at] = code, Position(named(code.co_filename), line_at(code, at) or code.co_firstlineno)
    return found[1]


MOST = 1 << 15
"""Places of instructions that are kept."""
_positions: dict[tuple[int, int], tuple[CodeType, Position]] = {}


def named(filename: str) -> str:
    """What a source is called: a file by its path, a notebook's cell by what stands beside it: `In[3]`.

    The file that a cell is compiled as has the number of a process in its name, so that no two runs would write the same PTX. Bytes of a
    path that are no UTF-8 are escaped: PTX, pages and logs are UTF-8.
    """
    if filename in _files:
        return filename
    cell = _cell(filename)
    if cell is None and not filename.isascii():
        cell = filename.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if cell is None or cell == filename:
        _files.add(filename)
        return filename
    if lines := linecache.getlines(filename):
        linecache.cache[cell] = sum(map(len, lines)), None, lines, cell
    return cell


def _cell(filename: str) -> str | None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(filename)
    return None if name is None else str(name[1])


_files: set[str] = set()
"""Sources that are no cells."""


@cache
def of_python(filename: str) -> bool:
    """Whether a file is one of Python itself, such as a pool of threads or the loader of modules."""
    return filename.startswith("<frozen ") or (filename.startswith(_PYTHON) and not installed(filename))


def installed(filename: str) -> bool:
    """Whether a file is one of a library that was installed."""
    return "site-packages" in filename or "dist-packages" in filename


@lru_cache(1 << 12)
def outside(filename: str) -> bool:
    """Whether a file is the user's. `ptxkit.gemm` and `ptxkit.attention` are, and `contextlib` is not."""
    return (not filename.startswith(_PACKAGE) or filename.startswith(_KERNELS)) and filename != _CONTEXTLIB


def line_at(code: CodeType, at: int) -> int | None:
    """The line of the instruction at an offset of a function's code.

    A frame's own `f_lineno` reads the line table from its start, which is quadratic in a long trace.
    """
    table = _tables.get(id(code))
    if table is None or table.code is not code:
        if len(_tables) >= FUNCTIONS:
            _tables.clear()
        table = _tables[id(code)] = _Table(code)
    return table.lines[bisect_right(table.starts, at) - 1]


class _Table:
    """The offsets in a function's code at which its lines begin."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        rows = list(code.co_lines())
        self.starts = [first for first, _, _ in rows]
        self.lines = [line for _, _, line in rows]


FUNCTIONS = 1 << 9
"""Functions whose lines are kept."""
_tables: dict[int, _Table] = {}
