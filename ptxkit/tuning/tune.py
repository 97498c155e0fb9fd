"""`kernel.tune(space, ...)`: the fastest right point of a space, found by measuring and kept for the card: docs/tune.md."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cards import Card
from ..dsl.source import named
from ..dsl.tensormap import TensorMap
from ..errors import AssembleError, OpcodeError, PtxkitError, TraceError
from ..files import make_folder
from ..measure import regimes
from ..measure.asked import Arguments, Check, Device, Given, Grid, Launch, Regime
from ..measure.contest import sampled
from ..measure.device import Lost, WrongRun, arguments_of, device_of, is_array, sets_of
from ..measure.figures import spread
from ..measure.files import write_aside
from ..measure.options import check_options
from ..measure.proved import Proof
from ..measure.regimes import Captured, Entry
from ..measure.watch import Step
from ..settings import settings
from . import results
from .assembly import Progress, assembling
from .locks import locked
from .search import FINALISTS, halving
from .space import Given as SpaceGiven
from .space import Point, digest, space_of, words
from .tuned import KINDS, Kind, Options, Skipped, Tuned, TuneError, reasons

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel

PATIENCE_S = 45.0
"""A launch that takes longer hangs."""
WORTH = 0.99
"""What a point must take of the default configuration's time, at most, to replace it: less is noise."""
SHARE = 0.3
"""Of a regime's graph, while many points are compared."""


def check_given(kernel: Kernel[...], options: Options) -> None:
    """Raise TuneError for an option that there is not, a number that is none, or a key of a name that is no argument."""
    check_options(options, Options, TuneError)
    chosen = options.get("key")
    if isinstance(chosen, str) or not (chosen is None or callable(chosen) or isinstance(chosen, Iterable)):
        like = chosen if isinstance(chosen, str) else next(iter(kernel.arguments), "n")
        raise TuneError(f"key= takes names of arguments, as key=({like!r},), or a function, not {chosen!r}")
    for name in () if chosen is None or callable(chosen) else chosen:
        if name not in kernel.arguments:
            raise TuneError(f"key= names `{name}`, the arguments of kernel `{kernel.name}` are {', '.join(kernel.arguments)}")


# --------------------------------------------------------------------------------------------------- what points are legal


def admitted(kernel: Kernel[...], space: SpaceGiven, *, jobs: int | None = None,
             shared_bytes: int | None = None) -> tuple[list[Point], list[Skipped]]:
    """The points that can be traced and assembled, and why others cannot. It needs no GPU: all are then in the cache of cubins.

    `shared_bytes`: what a CTA may have of shared memory.
    """
    points, skipped = _asked(kernel, space)
    legal = []
    for point, error in _assembled(kernel, points, jobs, shared_bytes):
        if error is None:
            legal.append(point)
        else:
            skipped.append(error)
    return legal, skipped


def check_names(kernel: Kernel[...], space: SpaceGiven) -> None:
    """Raise TraceError for a parameter that the kernel does not have."""
    points, others = space_of(space).points()
    for point in (*points[:1], *(other.point for other in others[:1])):
        kernel.config(dict(point))


def _asked(kernel: Kernel[...], space: SpaceGiven) -> tuple[list[Point], list[Skipped]]:
    """The points that the conditions allow. Raises TraceError for a parameter that the kernel does not have."""
    check_names(kernel, space)
    points, others = space_of(space).points()
    return points, [Skipped(other.point, "condition", other.why) for other in others]


def _assembled(kernel: Kernel[...], points: Sequence[Point], jobs: int | None,
               shared_bytes: int | None) -> Iterator[tuple[Point, Skipped | None]]:
    """Each point in its order, once it is assembled."""
    def one(point: Point) -> None:
        try:
            traced = kernel.trace(**dict(point))
        except Exception as error:                  # whatever a kernel's own code says about values that it was not made for
            raise _Refused("trace", _said_by(kernel, error)) from None
        if shared_bytes is not None and traced.shared.total > shared_bytes:
            raise _Refused("launch", f"it has {traced.shared.total:,} bytes of shared memory, a CTA of this card {shared_bytes:,}")
        kernel.assemble(**dict(point))

    for point, error in assembling(points, one, jobs):
        yield point, None if error is None else _skipped(point, error)


def _said_by(kernel: Kernel[...], error: Exception) -> str:
    """Why a point is not traced, with the kernel's line. Elsewhere nobody of the user's stands on the stack: threads trace points."""
    if not isinstance(error, TraceError):
        return _first_line(error)
    here = error.position is not None and error.position.file == named(kernel.function.__code__.co_filename)
    text = error.message.splitlines()[0].rstrip(":")
    return f"{error.position}: {text}" if here else text


class _Refused(PtxkitError):
    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind: Kind = kind
        self.why = why


def _skipped(point: Point, error: PtxkitError) -> Skipped:
    match error:
        case _Refused():
            return Skipped(point, error.kind, error.why)
        case AssembleError():
            first = next((str(finding) for finding in error.findings), "") or error.log.strip() or str(error)
            return Skipped(point, "assembler", first.splitlines()[0])
        case TraceError() | OpcodeError():
            return Skipped(point, "trace", _first_line(error))
        case _:
            return Skipped(point, "launch", _first_line(error))


def _first_line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, PtxkitError) else f"{type(error).__name__}: {text}".removesuffix(": ")


# --------------------------------------------------------------------------------------------------- the key


def key_of(kernel: Kernel[...], arguments: Arguments, chosen: Any = None) -> tuple[Any, ...]:
    """What a result depends on: types, shapes and strides of arrays, and integers. `chosen`: names of the arguments that count; or a
    function of them, and what it returns counts."""
    if callable(chosen):
        return (chosen(*arguments),)
    if chosen is None:
        return tuple(map(_described, arguments))
    return tuple(_described(arguments[kernel.arguments.index(name)]) for name in chosen)


def _described(value: Any) -> Any:
    if is_array(value):
        strides = value.stride() if callable(getattr(value, "stride", None)) else getattr(value, "strides", None)
        return value.dtype, tuple(value.shape), None if strides is None else tuple(strides)
    if isinstance(value, TensorMap):
        return _described(value.array), value.key
    return None if isinstance(value, float) else value if isinstance(value, int | str) else repr(type(value))


def _worded(key: tuple[Any, ...]) -> str:
    """A key as text that is the same in every process."""
    return json.dumps(key, default=str)


# --------------------------------------------------------------------------------------------------- the tuner


def tune(kernel: Kernel[...], space: SpaceGiven, grid: Grid, args: Given, check: Check, options: Options) -> Tuned:
    """The fastest point of the space on these arguments, of which copies are measured. Raises TuneError where no point is right."""
    begin = time.perf_counter()
    check_given(kernel, options)
    first = arguments_of(kernel, args)
    device = device_of(options.get("device", "gpu"), first)
    points, left_out = _asked(kernel, space)
    regime = _regime(device, options.get("regime"))
    key = _worded(key_of(kernel, first, options.get("key")))
    path = results.path_of(device.card, options.get("results")) if device.unit == "us" else None
    name = _name(kernel, points, key, regime.name, left_out)
    with _turn(path, name, options.get("seconds")):
        known = None if options.get("again") else results.find(path, device.card, name, kernel, points)
        if known is not None:
            return of_entry(kernel, device.card, known, path)
        with _noted(path, name) as step:
            field = _Field(kernel, device, grid, regime, sets_of(device, args, first, regime.cold),
                           Proof(kernel, device, first, check, options.get("tolerance")), step, options)
            found = field.search(points, left_out, begin)
        results.keep(path, device.card, name, kernel, tuple(found.config.items()), {
            "key": key, "regime": regime.name, "us": found.time, "default_us": found.default, "measured": len(found.times),
            "skipped": found.counts, "checked": check is not None, **found.sensors})
    return replace(found, path=path, seconds=time.perf_counter() - begin)


def kept(kernel: Kernel[...], space: SpaceGiven, arguments: Arguments, card: Card, options: Options) -> Tuned | None:
    """What is kept for such a call, without measuring anything."""
    path = results.path_of(card, options.get("results"))
    points, left_out = _asked(kernel, space)
    if path is None or not path.is_file():
        return None
    key = _worded(key_of(kernel, arguments, options.get("key")))
    regime = options.get("regime") or next(iter(regimes.REGIMES))
    known = results.find(path, card, _name(kernel, points, key, regime, left_out), kernel, points)
    return None if known is None else of_entry(kernel, card, known, path)


def of_entry(kernel: Kernel[...], card: Card, known: tuple[Point, Mapping[str, Any]], path: Path | None) -> Tuned:
    """What is kept, as a result."""
    point, entry = known
    default = entry.get("default_us")
    return Tuned(kernel.name, card.name, dict(point), float(entry["us"]), None if default is None else float(default),
                 regime=str(entry.get("regime", "")), kept=True, path=path)


def _regime(device: Device, wish: str | None) -> Regime:
    name = wish or next(iter(device.regimes))
    if name not in device.regimes:
        raise TuneError(f"regime={name!r}: there are {', '.join(device.regimes)}")
    return device.regimes[name]


def _name(kernel: Kernel[...], points: Sequence[Point], key: str, how: str, left_out: Sequence[Skipped]) -> str:
    """The name of the result's entry, by the first point that can be traced."""
    why = left_out[0].why if left_out else "the space has none"
    for point in points:
        try:
            return results.name_of(kernel, point, digest(points), key, how)
        except Exception as error:                  # such points are skipped, and said, later
            why = _first_line(error)
    raise TuneError(f"no point of the space of kernel `{kernel.name}` can be traced: {why}")


@contextmanager
def _turn(path: Path | None, name: str, seconds: float | None) -> Iterator[None]:
    """One process at a time tunes a kernel for a key; the others find what it found."""
    if path is None:
        yield
        return
    try:
        make_folder(path.parent, settings().cache_dir)
    except OSError:                                 # `results.keep` says it
        yield
        return
    with locked(path.with_name(f"{path.stem}.{name[:16]}"), 120.0 if seconds is None else 2 * seconds + 60):
        yield


@contextmanager
def _noted(path: Path | None, name: str) -> Iterator[Step]:
    """The note of what is done now. A process that hung or fell leaves it behind: that point is then skipped."""
    note = None if path is None else path.with_name(f".{path.stem}.{name[:16]}.note")
    try:
        if note is not None and not note.is_file():
            write_aside(note, "{}")
        step = Step(note)
    except (OSError, ValueError, TypeError):
        note, step = None, Step()
    if step.state["at"]:
        step.state["skip"][step.state["at"]] = f"an earlier run hung or fell at it; delete {note} to try it again"
    lost = False
    try:
        yield step
    except (Lost, KeyboardInterrupt):               # who ends a process that hangs does so at the point that hangs
        lost = bool(step.state["at"])
        raise
    finally:
        if note is not None and not lost:
            if step.state["skip"]:
                step.leave()
            else:
                note.unlink(missing_ok=True)


class _Field:
    """The points of one kernel on one set of arguments: which are right, and how long they take."""

    def __init__(self, kernel: Kernel[...], device: Device, grid: Grid, regime: Regime, sets: list[Arguments], proof: Proof, step: Step,
                 options: Options) -> None:
        self.kernel, self.device, self.grid, self.regime = kernel, device, grid, regime
        self.sets, self.proof, self.step, self.options = sets, proof, step, options
        self.launches: dict[Point, list[Launch]] = {}
        self.graphs: dict[tuple[Point, bool], Captured] = {}
        self.times: dict[Point, float] = {}

    def search(self, points: Sequence[Point], left_out: Sequence[Skipped], begin: float) -> Tuned:
        skipped = [*left_out, *self.admit(points)]
        right = list(self.launches)
        if not right:
            raise TuneError("\n".join([f"no point of {len(points) + len(left_out)} of kernel `{self.kernel.name}` is legal and right:",
                                       *reasons(skipped)]))
        seconds = self.options.get("seconds")
        best = [point for _, point in halving(right, self._medians, keep=FINALISTS, late=lambda: (
            seconds is not None and time.perf_counter() - begin > seconds))]
        usual = self._default(right)
        finalists = best if usual is None or usual in best else [*best, usual]
        rounds = self.options.get("rounds") or self.regime.rounds
        timed, sampler = sampled(self.device.timer, [self._graph(point, whole=True) for point in finalists], self.regime, rounds,
                           self.device.sensors, self.options.get("seed", 0))
        final = {point: spread(one.us)["us"] for point, one in zip(finalists, timed, strict=True)}
        self.times.update(final)
        winner = min(final, key=lambda point: final[point])
        if usual is not None and final[winner] > WORTH * final[usual]:
            winner = usual
        return Tuned(self.kernel.name, self.device.card.name, dict(winner), final[winner], None if usual is None else final[usual],
                     self.device.unit, self.regime.name, tuple(sorted(self.times.items(), key=lambda item: item[1])), tuple(skipped),
                     sampler.within())

    def admit(self, points: Sequence[Point]) -> list[Skipped]:
        """Those that are right get launches; why the others do not. Points are assembled while those before them are checked."""
        skipped = []
        progress = Progress(len(points), f"{self.kernel.name} checking")
        for point, refused in _assembled(self.kernel, points, self.options.get("jobs"), self.device.card.shared_bytes):
            refused = refused or self._refused(point)
            progress.step()
            if refused is not None:
                self.launches.pop(point, None)
                skipped.append(refused)
        progress.close()
        return skipped

    def _refused(self, point: Point) -> Skipped | None:
        """Why a point cannot be measured."""
        why = self.step.begin(words(point))
        if why is not None:
            return Skipped(point, "hang", why)
        try:
            launches = [self.device.launch(self.kernel, dict(point), self.grid, arguments) for arguments in self.sets]
            self.proof.prepare(self.sets[0])
            with self.device.timer.aside():
                launches[0]()
        except WrongRun as error:
            return Skipped(point, "wrong", _first_line(error))
        except PtxkitError as error:
            return Skipped(point, "launch", _first_line(error))
        try:
            self.device.finish(self.options.get("patience_s", PATIENCE_S))
        except Lost as error:
            raise Lost(f"{self.kernel.name} {words(point)}: {error}. The card cannot be used by this process any more: start it again, and "
                       "this point is skipped") from None
        sentence = self.proof.fault(self.sets[0])
        self.step.leave()
        if sentence is not None:
            return Skipped(point, "wrong", sentence)
        self.launches[point] = launches
        return None

    def _graph(self, point: Point, *, whole: bool = False) -> Captured:
        if (point, whole) not in self.graphs:
            entry = Entry(words(point), self.launches[point])
            length = self.regime.graph_ms * (1.0 if whole else SHARE)
            self.graphs[point, whole] = regimes.capture(self.device.timer, entry, self.regime, length)
        return self.graphs[point, whole]

    def _medians(self, some: Sequence[Point], rounds: int) -> list[float]:
        graphs = [self._graph(point) for point in some]
        timed = regimes.measure(self.device.timer, graphs, self.regime, rounds, self.options.get("seed", 0) + rounds, settle_s=0.0)
        self.times.update({point: one.median for point, one in zip(some, timed, strict=True)})
        return [one.median for one in timed]

    def _default(self, right: Sequence[Point]) -> Point | None:
        """The point that is the kernel's configuration where none is given."""
        try:
            usual = self.kernel.config({})
        except TraceError:                          # a parameter has no default
            return None
        return next((point for point in right if self.kernel.config(dict(point)) == usual), None)


__all__ = ["KINDS", "Options", "Skipped", "TuneError", "Tuned", "admitted", "kept", "key_of", "tune"]
