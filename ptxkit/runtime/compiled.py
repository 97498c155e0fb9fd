"""A traced kernel on a device: it is loaded once and launched with arrays and numbers. Tensor maps are encoded from its copies."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..dsl.parameters import Parameter, values
from ..dsl.tensormap import TensorMap, encodable
from ..errors import AssembleError, CheckError, Finding, LaunchError, NoToolError, Position, TraceError
from ..settings import settings
from ..types import TYPES
from . import driver
from .launch import check_aligned, raw_stream, same_device, view
from .launcher import EncodedTensorMap, Launcher, encode_tiled

if TYPE_CHECKING:
    from ..dsl.descriptor import TensorMapFields
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

    def __init__(self, traced: Traced, ordinal: int | None = None, library: driver.Library | None = None) -> None:
        if traced.block is None:
            raise LaunchError(f"kernel `{traced.name}` has no block size: give @kernel(block=...)")
        for parameter in traced.parameters:
            if parameter.kind == "bytes":
                raise LaunchError(f"parameter `{parameter.name}` of kernel `{traced.name}` is a block of bytes: a launch passes numbers, "
                                  "arrays and tensor maps; read each of its members from a parameter of its own")
        self.traced, self.parameters = traced, traced.parameters
        self._records = len(traced.signature) != len(self.parameters) or any(not isinstance(p, Parameter) for p in traced.signature)
        self.ordinal = driver.current_device() if ordinal is None else ordinal
        self.library = library or load(traced, self.ordinal)
        self.kernel = self.library.kernel(traced.name)
        self._launchers: dict[bool, Launcher] = {}
        self._maps: OrderedDict[Any, EncodedTensorMap] = OrderedDict()

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
            names = ", ".join(p.name for p in parameters)
            raise LaunchError(f"kernel `{self.traced.name}` takes {len(parameters)} arguments ({names}), {len(args)} were given")
        arrays: list[tuple[str, ArrayView]] = []
        scalars: list[Any] = []
        maps: list[EncodedTensorMap] = []
        for parameter, value in zip(parameters, args, strict=True):
            if parameter.kind == "scalar":
                scalars.append(_scalar(parameter, value))
            elif parameter.kind == "pointer":
                if isinstance(value, int):
                    scalars.append(value)
                    continue
                seen = _pointer(parameter, view(value, parameter.name))
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
            try:
                fields = self._fields(name, seen, explicit)
            except TraceError as error:
                raise LaunchError(error.message) from None
            known = self._maps[key] = encode_tiled(fields, seen.pointer + (explicit.offset if explicit is not None else 0))
            if len(self._maps) > _MAPS_KEPT:
                self._maps.popitem(last=False)
        return known

    def _fields(self, name: str, seen: ArrayView, explicit: TensorMap | None) -> TensorMapFields:
        """The fields of this argument's map: from the kernel's copies, or from an explicit map. If there are both, they must agree."""
        record = self.traced.copies.records.get(name)
        if explicit is not None:
            fields = encodable(explicit.fields(seen.shape, seen.strides, TYPES[seen.dtype]), seen.pointer + explicit.offset,
                               f"the tensor map of `{name}`")
            if record is not None and (fields.box, fields.swizzle, fields.type.bits) != (record.box, record.swizzle, record.type.bits):
                given = f"box {'x'.join(map(str, fields.box))} {fields.type.__name__}, swizzle {fields.swizzle or 'none'}"
                raise LaunchError(f"the tensor map given for `{name}` ({given}) differs from the tile that the kernel copies: {record}; "
                                  "pass the plain array and it is encoded to fit")
            return fields
        if record is None:
            raise LaunchError(f"kernel `{self.traced.name}` copies no tile through `{name}`, so its box is unknown: "
                              "pass TensorMap(array, box=...)")
        if len(seen.shape) != len(record.box):
            raise LaunchError(f"`{name}` has {len(seen.shape)} dimensions, the kernel copies boxes of {len(record.box)}")
        if seen.strides[-1] != 1:
            raise LaunchError(f"`{name}` has strides {seen.strides}: a tensor map needs the last dimension contiguous")
        if seen.dtype != record.type.__name__ and TYPES[seen.dtype].bits != record.type.bits:
            raise LaunchError(f"`{name}` has elements of {seen.dtype}, the kernel copies {record.type.__name__}")
        strides = tuple(s * record.type.bits // 8 for s in reversed(seen.strides[:-1]))
        return encodable(record.fields(tuple(reversed(seen.shape)), strides), seen.pointer, f"the tensor map of `{name}`")


def _word(parameter: Parameter) -> str:
    assert parameter.type is not None
    return parameter.type.__name__


def _scalar(parameter: Parameter, value: Any) -> Any:
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if not isinstance(value, int | float):
        raise LaunchError(f"`{parameter.name}` is a {_word(parameter)}: pass a number, not {type(value).__name__}")
    if isinstance(value, float) and not _word(parameter).startswith("f"):
        raise LaunchError(f"`{parameter.name}` is a {_word(parameter)}: pass an int, not {value!r}")
    return value


def _pointer(parameter: Parameter, seen: ArrayView) -> ArrayView:
    if parameter.type is None:
        return seen
    bits_alone = parameter.type.__name__.startswith("b") and TYPES[seen.dtype].bits == parameter.type.bits
    if seen.dtype != parameter.type.__name__ and not bits_alone:
        raise LaunchError(f"`{parameter.name}` points to {parameter.type.__name__}, the array has elements of {seen.dtype}")
    check_aligned(parameter.name, seen, max(1, parameter.type.bits // 8))
    return seen


def _grid(grid: int | tuple[int, ...]) -> tuple[int, int, int]:
    extents = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(extents) <= 3 or any(not isinstance(e, int) or e < 1 for e in extents):
        raise LaunchError(f"a grid is one to three positive extents in CTAs, not {grid!r}")
    return (*extents, 1, 1)[:3]  # type: ignore[return-value]


__all__ = ["Compiled", "load", "load_text"]
