"""What is behind `autotune`: the first launch with new arguments tunes, later ones take what was found."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import PtxkitError
from ..measure.asked import Arguments, Check, Grid
from ..measure.device import arrays_of, card_of, grid_of
from ..runtime import driver
from ..runtime.arrays import view
from ..runtime.launch import raw_stream
from . import tune as tuner
from .autotuned import Autotuned
from .space import Given, Points, space_of, within
from .tuned import Options, Tuned, TuneError

if TYPE_CHECKING:
    from ..dsl.kernel import Kernel


class FirstTuned(Autotuned):
    """Tunes at the first launch with arguments of a kind, and keeps what it has found."""

    def __init__(self, kernel: Kernel[...], space: Given, check: Check, options: Options) -> None:
        if isinstance(kernel, Autotuned):
            raise TuneError(f"kernel `{kernel.__name__}` is autotuned already: give all parameters in one space")
        if not hasattr(kernel, "config"):
            raise TuneError(f"`{getattr(kernel, '__name__', kernel)}` is no kernel: @autotune(...) stands above @kernel(...)")
        self.kernel, self.check = kernel, check
        self.options = options
        self.space = space_of(space)
        tuner.check_names(kernel, self.space)
        tuner.check_given(kernel, options)
        self.tuned = {}
        self._first: dict[Any, Mapping[str, Any]] = {}
        self._lock = threading.RLock()
        self.__doc__, self.__name__, self.__module__ = kernel.__doc__, kernel.__name__, kernel.__module__

    def __repr__(self) -> str:
        return f"<autotuned {self.kernel!r}>"

    def launch(self, grid: Grid, *args: Any, stream: Any = None, pdl: bool = False, **given: Any) -> None:
        arguments, fixed = self._arguments(args, given)
        config = self._config(grid, arguments, fixed, stream)
        self.kernel.launch(grid_of(grid, self.kernel.config(config)), *arguments, stream=stream, pdl=pdl, **config)

    def config(self, grid: Grid, *args: Any, stream: Any = None, **given: Any) -> Mapping[str, Any]:
        arguments, fixed = self._arguments(args, given)
        return self._config(grid, arguments, fixed, stream)

    def _arguments(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[Arguments, dict[str, Any]]:
        """The arguments in order, and the compile-time parameters that the launch gives."""
        names = self.kernel.arguments
        named = [given[name] for name in names[len(args):] if name in given]
        return (*args, *named), {name: value for name, value in given.items() if name not in names}

    def _config(self, grid: Grid, arguments: Arguments, fixed: Mapping[str, Any], stream: Any) -> Mapping[str, Any]:
        key = tuner.key_of(self.kernel, arguments, self.options.get("key")), tuple(sorted(fixed.items()))
        found = self.tuned.get(key)
        if found is None:
            with self._lock:
                found = self.tuned.get(key)             # another thread may have been faster
                return self._found(grid, arguments, fixed, key, stream) if found is None else found.config
        return found.config

    def _found(self, grid: Grid, arguments: Arguments, fixed: Mapping[str, Any], key: Any, stream: Any) -> Mapping[str, Any]:
        space = self._space(fixed)
        if self.options.get("device", "gpu") == "gpu" and _captured(arguments, stream):
            with driver.beside_captures():
                kept = self._kept(space, arguments)
                if kept is None:                        # a later launch is tuned
                    return self._first_legal(space, key[1])
                self.kernel.compile(**kept.config).launcher()
            self.tuned[key] = kept
            return kept.config
        self.tuned[key] = found = tuner.tune(self.kernel, space, grid, arguments, self.check, self.options)
        return found.config

    def _space(self, fixed: Mapping[str, Any]) -> Points:
        """The points that have the values which the launch gives, with these values."""
        points = within(self.space.points()[0], fixed)
        if not points:
            raise TuneError(f"no point of the space of kernel `{self.kernel.name}` has {dict(fixed)}")
        return Points({**dict(point), **fixed} for point in points)

    def _kept(self, space: Points, arguments: Arguments) -> Tuned | None:
        return tuner.kept(self.kernel, space, arguments, card_of(view(arrays_of(arguments)[0]).device), self.options)

    def _first_legal(self, space: Points, key: Any) -> Mapping[str, Any]:
        """The first point that can be loaded."""
        if key not in self._first:
            why = ""
            for point in space.points()[0]:
                try:
                    self.kernel.compile(**dict(point)).launcher()
                except PtxkitError as error:
                    why = why or str(error).splitlines()[0]
                    continue
                self._first[key] = dict(point)
                break
            else:
                raise TuneError(f"no point of kernel `{self.kernel.name}` can be loaded: {why}")
        return self._first[key]


def _captured(arguments: Arguments, stream: Any) -> bool:
    """Whether the launch is recorded into a graph."""
    arrays = arrays_of(arguments)
    if not arrays:
        return False
    seen = view(arrays[0])
    return driver.capturing(raw_stream(stream, seen), seen.device)
