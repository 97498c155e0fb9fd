"""Errors of Python's own that a trace ends in, where this package is what was misused: each becomes one sentence at the author's line.

An error of the author's own code stays what it is.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, TracebackType
from typing import Any

from ..errors import PtxkitError, TraceError
from ..grammar.errors import Position
from .blocks import Block
from .carried import Carried, Round
from .coordinates import Coordinates
from .label import Label
from .refused import NoItems
from .source import installed, line_at, named, of_python, outside
from .special import Dim3
from .uncalled import Emitting, Handle

_ROOTS = NoItems, Handle, Block, Carried, Round, Label, Emitting, Coordinates, Dim3
"""What a trace gives an author to hold."""
_CAUGHT = TypeError, AttributeError, ValueError, LookupError, ArithmeticError, AssertionError
_NO_FIT = re.compile(r"^([\w.<>]+)\(\) (missing .*|takes .*|got .*)$")
_NAMED = re.compile(r"'(\w+)'|\b([A-Z]\w+)\b")
_DOES = {
    "object is not subscriptable": "has no items", "has no len()": "has no length", "object is not iterable": "is no sequence",
    "object is not callable": "is not called", "does not support the context manager protocol": "does not stand after `with`",
    "does not support item assignment": "has no items", "non-iterable": "is no sequence", "is not iterable": "is no sequence",
}
"""What a value cannot do, by what Python says of it."""
_INSTEAD = {
    "NamedBarriers": "`barriers[i]` is one of them, with `sync()` and `arrive()`",
    "MBarriers": "`barriers[i]` is one of them, which instructions take, as `wait(barriers[i], parity)` and "
                 "`mbarrier.init.shared__cta.b64(barriers[i], 1)`",
    "MBarrier": "instructions take it, as `wait(barriers[i], parity)` and `mbarrier.arrive.shared__cta.b64(barriers[i])`",
    "Pipeline": "`p.full[stage]` and `p.empty[stage]` are its barriers, and `p.producer_acquire(stage, parity)`, "
                "`p.consumer_wait(stage, parity)` and `p.consumer_release(stage)` use them",
    "Tile": "`tile[stage]` is one stage, `tile[stage].at(row, column)` the place of an element, and `tile.layout` says the shape",
    "TileView": "`tile[stage].at(row, column)` is the place of an element, and `tile.layout` says the shape",
    "Shared": "`array[i]` is the place of an element, and `array.count` is the length of an array",
    "Round": "name its registers, `with ring(STAGES, n) as (k, stage, parity):`",
    "Reg": "it has no value while the kernel is being traced, and instructions take it, as `add.u32(x, 1)`",
    "Coordinates": "`here.runs(acc)` gives (row, column, neighbours) and `here.elements(acc)` each register",
    "Dim3": "it has `x`, `y` and `z`, as `tid.x`",
    "Opcode": "an opcode is called, as `add.u32(x, 1)`",
    "Ptr": "`p.at(i)` is the place of an element, and `ld.global_.u32(p.at(i))` reads it",
}
"""What is written instead, by the class of the value that was misused."""
_EXAMPLES = {
    "tile": "`smem.tile(bf16, (64, 64))`", "array": "`smem.array(f32, 256)`", "mbarrier": "`smem.mbarrier(4)`",
    "Pipeline": "`Pipeline(STAGES, consumers=128, bytes=tile.layout.bytes)`", "NamedBarrier": "`NamedBarrier(128)`",
    "NamedBarriers": "`NamedBarriers(2, 128)`", "if_": "`if_(p & q)`", "else_": "`else_()`",
    "loop": "`loop(total=zero)`", "for_range": "`for_range(n, step=2)`", "ring": "`ring(STAGES, n)`",
}


def run(function: Callable[..., Any], *arguments: Any, **config: Any) -> Any:
    """Call the function of a kernel. Raises TraceError for one of Python's own errors that misuses this package."""
    try:
        return function(*arguments, **config)
    except PtxkitError:
        raise
    except _CAUGHT as error:
        told = _told(error)
        if told is None:
            raise
        raise told from error


def _told(error: BaseException) -> TraceError | None:
    trace = [frame for frame in _frames(error.__traceback__) if frame[0].f_code.co_filename != __file__]
    while len(trace) > 1 and trace[-1][0].f_code.co_name == "__getattr__":
        trace.pop()
    last = max((i for i, (frame, _) in enumerate(trace) if outside(frame.f_code.co_filename)), default=-1)
    if last < 0 or of_python(file := trace[last][0].f_code.co_filename) or installed(file):
        return None
    frame, at = trace[last]
    sentence = _misused(error, frame) if last + 1 == len(trace) else _refused(error, trace[last + 1][0])
    return None if sentence is None else TraceError(sentence, Position(named(file), line_at(frame.f_code, at) or frame.f_lineno))


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _refused(error: BaseException, frame: FrameType) -> str:
    """What is said of a function of this package, called with what it cannot use."""
    code = frame.f_code
    given = ", ".join(f"{name}={frame.f_locals[name]!r:.60}" for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
                      if name != "self" and name in frame.f_locals)
    return f"`{_shown(code.co_qualname)}` cannot use what it is given here, {given}: {type(error).__name__}: {str(error) or 'refused'}"


def _misused(error: BaseException, frame: FrameType) -> str | None:
    """What is said of an error of the author's own line, if a value or a function of this package is misused there."""
    words = str(error)
    if isinstance(error, TypeError) and (call := _NO_FIT.match(words)):
        function = _function(call[1], frame)
        if function is None:
            return None
        name = _shown(call[1])
        example = f", as in {_EXAMPLES[name]}" if name in _EXAMPLES else ""
        return f"`{name}` is called as `{name}({_parameters(function)})`{example}, and this call {_without_self(call[2])}"
    if "values to unpack" in words and "ring(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        return f"a `ring` gives three registers ({words}): {_INSTEAD['Round']}"
    if not isinstance(error, TypeError | AttributeError):
        return None
    known = {each.__name__: each for each in _classes()}
    given = getattr(error, "obj", None)
    found = type(given) if type(given) in known.values() else next(
        (known[name] for pair in _NAMED.findall(words) if (name := pair[0] or pair[1]) in known), None)
    if found is None:
        return None
    does = next((does for said, does in _DOES.items() if said in words), "")
    if not does:
        missing = re.search(r"has no attribute '(\w+)'", words)
        does = f"has no `{missing[1]}`" if missing else f"is not what Python takes here ({words})"
    return f"`{found.__name__}` {does}: {_instead(found)}"


def _instead(class_: type) -> str:
    """What a value offers."""
    for each in class_.__mro__:
        if each.__name__ in _INSTEAD:
            return _INSTEAD[each.__name__]
    names = [name for name in dir(class_) if not name.startswith("_") and name not in ("builder", "seen")]
    return f"it has {', '.join(f'`{name}`' for name in names)}" if names else "instructions take it"


def _classes() -> Iterator[type]:
    """This package's classes of values, those that hold others first."""
    waiting: list[type] = list(_ROOTS)
    seen = set(waiting)
    while waiting:
        each = waiting.pop(0)
        if each.__module__.startswith("ptxkit."):
            yield each
        below: list[type] = type.__subclasses__(each)
        waiting += [inner for inner in below if inner not in seen]
        seen.update(below)


def _function(name: str, frame: FrameType) -> FunctionType | None:
    """The function of this package that a qualified name of a message stands for, unless the author's line may mean one of their own."""
    first, *rest = name.split(".")
    around = {**frame.f_globals, **frame.f_locals}
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if first in around and not _ours(around[first]) and f".{first}(" not in line:
        return None
    for module in [each for key, each in sys.modules.items() if key.startswith("ptxkit.")]:
        value = vars(module).get(first)
        if getattr(value, "__module__", None) == module.__name__ and _ours(value):
            for part in rest:
                value = getattr(value, part, None)
            if isinstance(value, FunctionType) and value.__qualname__ == name:
                return value
    return None


def _ours(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").startswith("ptxkit.")


def _shown(qualified: str) -> str:
    """How an author calls a function: a class for its `__init__`."""
    return qualified.removesuffix(".__init__").rpartition(".")[2]


def _parameters(function: FunctionType) -> str:
    """The parameters of a function, without annotations."""
    given = inspect.signature(function)
    kept = [each.replace(annotation=inspect.Parameter.empty) for name, each in given.parameters.items() if name != "self"]
    return str(inspect.Signature(kept))[1:-1]


def _without_self(words: str) -> str:
    """What Python says of a call, counted without `self`."""
    counted = re.match(r"takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given(.*)", words)
    if counted is None:
        return words.replace("missing", "is missing", 1).replace("got", "has", 1)
    return f"has too many arguments by position{counted[3]}"


__all__ = ["run"]
