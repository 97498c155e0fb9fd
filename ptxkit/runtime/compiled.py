"""A traced kernel on a device: it is loaded once and launched with arrays and numbers. Tensor maps are encoded from its copies."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dsl.arguments import counted, map_fields, needed, number, pointed
from ..dsl.parameters import Parameter, values
from ..dsl.tensormap import TensorMap
from ..errors import AssembleError, CheckError, Finding, LaunchError, NoToolError, Position
from ..newest import Newest
from ..settings import settings
from . import driver
from .images import Image
from .launch import raw_stream, same_device, view
from .launcher import EncodedTensorMap, Launcher, encode_tiled

if TYPE_CHECKING:
    from ..dsl.traced import Traced
    from .arrays import ArrayView

_MAPS_KEPT = 1024


def load(traced: Traced, ordinal: int) -> driver.Library:
    """The kernel's module on a device."""
    return load_text(traced.ptx(locs=True), traced.module.target[0], traced.positions(), ordinal)


def load_text(text: str, target: str, lines: Mapping[int, Position], ordinal: int) -> driver.Library:
    """Load PTX text on a device: as a cubin of ptxas, kept in the cache; without ptxas the driver assembles it.

    Either way the module is loaded whole, because a linker would drop setmaxnreg. With PTXKIT_CHECK=error the assembler's remarks (wgmma
    serialised, setmaxnreg ignored) are errors; with =warn they are logged.
    """
    driver.require_target(target, ordinal)
    if settings().ptxas != "driver":
        from .toolchain import assemble, outruns

        try:
            assembly = assemble(text, target, lines=lines)
        except NoToolError:
            pass
        else:
            _judge(assembly.findings)
            try:
                return driver.load(assembly.cubin, lines=lines, ordinal=ordinal)
            except AssembleError as error:
                if hint := outruns(assembly.tool, driver.driver_version()):
                    raise AssembleError(error.log, error.findings, summary=f"{error}; {hint}") from None
                raise
    library = driver.load(text, lines=lines, ordinal=ordinal)
    _judge(library.findings)
    return library


def _judge(findings: Sequence[Finding]) -> None:
    if findings and settings().check == "error":
        raise CheckError(findings)
    if settings().check != "off":
        for finding in findings:
            logging.getLogger("ptxkit").warning("%s", finding)


class Compiled:
    """A kernel for one configuration, loaded on the current device. Call it to launch."""

    def __init__(self, traced: Traced | Image, ordinal: int | None = None, library: driver.Library | None = None) -> None:
        if traced.block is None:
            raise LaunchError(f"kernel `{traced.name}` has no block size: give @kernel(block=...)")
        for parameter in traced.parameters:
            if parameter.kind == "bytes":
                raise LaunchError(f"parameter `{parameter.name}` of kernel `{traced.name}` is a block of bytes: a launch passes numbers, "
                                  "arrays and tensor maps; read each of its members from a parameter of its own")
        self.traced, self.parameters = traced, traced.parameters
        self._records = len(traced.signature) != len(self.parameters) or any(not isinstance(p, Parameter) for p in traced.signature)
        self.ordinal = driver.current_device() if ordinal is None else ordinal
        if library is None:
            assert not isinstance(traced, Image), "an image comes with its library"
            library = load(traced, self.ordinal)
        self.library = library
        self.kernel = self.library.kernel(traced.name)
        self._launchers: dict[bool, Launcher] = {}
        self._maps: Newest[Any, EncodedTensorMap] = Newest(_MAPS_KEPT)

    @property
    def attributes(self) -> driver.Attributes:
        """Registers and memory as the driver reports them."""
        return self.kernel.attributes(self.ordinal)

    def max_clusters(self) -> int:
        """The number of clusters (or CTAs, without clusters) that the device holds at once: the size of a persistent grid."""
        assert self.traced.block is not None
        self.launcher()                                    # sets the kernel's shared memory, which the answer depends on
        return self.kernel.max_clusters(self.ordinal, block=self.traced.block, cluster=self.traced.cluster, shared=self.traced.dynamic_smem)

    def launcher(self, pdl: bool = False) -> Launcher:
        """The prepared launch. `pdl` sets programmatic stream serialization."""
        if pdl not in self._launchers:
            words = ["tensormap" if p.kind == "tensormap" else "u64" if p.kind == "pointer" else _word(p) for p in self.traced.parameters]
            assert self.traced.block is not None
            self._launchers[pdl] = Launcher(self.kernel, words, block=self.traced.block, cluster=self.traced.cluster,
                                            shared=self.traced.dynamic_smem, pdl=pdl, ordinal=self.ordinal)
        return self._launchers[pdl]

    def __call__(self, grid: int | tuple[int, ...], *args: Any, stream: Any = None, pdl: bool = False, **named: Any) -> None:
        """Launch on `grid` CTAs (one to three extents). `stream` None is the current stream of the arrays' library."""
        parameters = self.parameters
        args = values(self.traced.signature, args, named) if self._records or named else args
        if len(args) != len(parameters):
            counted(self.traced.name, [needed(parameter) for parameter in parameters], len(args))
        arrays: list[tuple[str, ArrayView]] = []
        scalars: list[Any] = []
        maps: list[EncodedTensorMap] = []
        for parameter, value in zip(parameters, args, strict=True):
            if parameter.kind == "scalar":
                scalars.append(number(parameter.name, _word(parameter), value))
            elif parameter.kind == "pointer":
                if isinstance(value, int):
                    scalars.append(value)
                    continue
                seen = view(value, parameter.name)
                pointed(parameter, seen)
                arrays.append((parameter.name, seen))
                scalars.append(seen.pointer)
            else:
                seen = view(value.array if isinstance(value, TensorMap) else value, parameter.name)
                arrays.append((parameter.name, seen))
                maps.append(self._map(parameter.name, seen, value if isinstance(value, TensorMap) else None))
        if arrays and same_device(arrays) != self.ordinal:
            raise LaunchError(f"the arrays are on device {arrays[0][1].device}, kernel `{self.traced.name}` was loaded on device "
                              f"{self.ordinal}: make that device current first")
        stream = raw_stream(stream, arrays[0][1] if arrays else None)
        self.launcher(pdl)(stream, _grid(grid), tuple(scalars), tuple(maps))

    def _map(self, name: str, seen: ArrayView, explicit: TensorMap | None) -> EncodedTensorMap:
        key = (name, seen, explicit and explicit.key)
        known = self._maps.get(key)
        if known is None:
            fields = map_fields(self.traced.name, self.traced.copies.records.get(name), name, seen, explicit)
            known = self._maps[key] = encode_tiled(fields, seen.pointer + (explicit.offset if explicit is not None else 0))
        return known


def _word(parameter: Parameter) -> str:
    assert parameter.type is not None
    return parameter.type.__name__


def _grid(grid: int | tuple[int, ...]) -> tuple[int, int, int]:
    extents = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(extents) <= 3 or any(not isinstance(e, int) or e < 1 for e in extents):
        raise LaunchError(f"a grid is one to three positive extents in CTAs, not {grid!r}")
    return (*extents, 1, 1)[:3]  # type: ignore[return-value]


__all__ = ["Compiled", "load", "load_text"]
