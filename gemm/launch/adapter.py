"""Layer 5 as an object: a product that is checked and prepared once and launched repeatedly, also on other arrays."""

from __future__ import annotations

from typing import Any

from ptxkit.errors import LaunchError, PtxkitError
from ptxkit.runtime import driver
from ptxkit.runtime.arrays import ArrayView
from ptxkit.runtime.launch import check_aligned, check_contiguous, check_device, raw_stream, refuse_gradients, same_device, view
from ptxkit.types import TYPES

from ..config.dense import DenseConfig
from ..config.parts import StreamK
from ..problem.dense import Arrays, Problem
from ..problem.matmul import products
from ..problem.options import check_kind, options
from . import tuning
from .dense import Launch, Plan, as_one, card_of, check_config, check_overlap, configuration, launches
from .grid import COUNTER_BYTES, Grid
from .zeros import Zeros

WORKSPACE_ALIGNMENT = 16    # bytes: partial sums are read and written as vectors of four


class Adapter:
    """`gemm.gemm` in separate steps, with the same arguments. `out` is required.

        product = Adapter(a, b, out, bias=bias)
        product.initialize(workspace)           # or no workspace: it has its own
        product.run(stream)                     # nothing but the launch; can be captured into a CUDA graph
        product.update(a=other, out=another)    # arrays of the same shape, strides and type
        product.run(stream)

    With `pdl` the launch may start while the previous kernel in the stream ends. Launches that share a workspace must not overlap: run an
    adapter's launches in one stream, or order them yourself.
    """

    __slots__ = ("_arrays", "_config", "_launch", "_options", "_own", "_plan", "_workspace", "ordinal", "pdl", "problem")

    def __init__(self, a: Any, b: Any, out: Any, *, c: Any = None, alpha: float = 1.0, beta: float = 0.0, bias: Any = None,
                 activation: Any = None, residual: Any = None, a_scale: Any = None, b_scale: Any = None, accumulate: str = "f32",
                 fast_accum: bool | None = None, batch_invariant: bool = False, config: DenseConfig | None = None,
                 pdl: bool = True) -> None:
        given = (a, b, out, c, bias, residual, a_scale, b_scale)
        refuse_gradients(*zip(Arrays._fields, given, strict=True))
        self._arrays = Arrays(*(None if array is None and name in Arrays._field_defaults else view(array, name)  # type: ignore[arg-type]
                                for name, array in zip(Arrays._fields, given, strict=True)))
        self._options = options(alpha, beta, activation, accumulate, fast_accum, batch_invariant)
        check_kind(config, DenseConfig)
        self.ordinal = same_device(self._arrays.named())
        parts = products(self._arrays)
        if len(parts) > 1:                      # an adapter is one launch
            raise LaunchError(f"the batches of these arrays lie so that they are {len(parts)} launches, and an adapter has one: call "
                              "gemm.gemm, or make an adapter of each")
        self.problem = Problem(as_one(parts[0], config), self._options)
        self.pdl = pdl
        self._plan: Plan | None = None
        self._launch: Launch | Zeros | None = None
        self._workspace = 0
        self._own: _Memory | None = None
        if self._launches and config is not None:
            check_config(config, self.problem)
            Grid.of(self.problem, config, 1)
        self._config = config

    @classmethod
    def can_implement(cls, a: Any, b: Any, out: Any, **more: Any) -> str | None:
        """None, or the reason if this product is not supported. Takes the arguments of the class; needs no GPU."""
        try:
            cls(a, b, out, **more)
        except PtxkitError as error:
            return str(error)
        return None

    @property
    def _launches(self) -> bool:
        """Whether there is a kernel to launch: D has elements and K is not 0."""
        return not self.problem.empty and self.problem.k > 0

    @property
    def config(self) -> DenseConfig:
        """The configuration: the caller's, the tuned one or the heuristic's for this device."""
        if self._config is None and tuning.wish() is not None:
            stream = raw_stream(None, self._arrays.a)
            self._config, _ = tuning.first_use(self.problem, products(self._arrays)[0], self.ordinal, stream, card_of(self.ordinal),
                                               launches(self.problem, self._options, self.ordinal))
        if self._config is None:
            self._config = configuration(self.problem, self.ordinal)
        return self._config

    @property
    def workspace_size(self) -> int:
        """Bytes of device memory that a launch needs besides its arrays: 0 unless the scheduler is SplitK through the workspace, StreamK or
        Dynamic. With StreamK every CTA has a place for a tile's sums, so the kernel is loaded to ask how many CTAs the device holds."""
        if not self._launches:
            return 0
        grid = self._prepared().grid if isinstance(self.config.scheduler, StreamK) else Grid.of(self.problem, self.config, 1)
        return grid.workspace_bytes

    def _prepared(self) -> Plan:
        """The plan: the configuration, loaded on the device once."""
        if self._plan is None:
            self._plan = Plan(self.problem, self.ordinal, self.config, pdl=self.pdl)
        return self._plan

    def initialize(self, workspace: Any = None, stream: Any = None) -> None:
        """Load the kernel, encode the tensor maps, and clear the workspace's counters on `stream`. The first run must use this stream.

        `workspace` is a contiguous device array of any type, with at least `workspace_size` bytes, at a multiple of 16 bytes. Its contents
        do not matter, but nothing else may write to it between launches. None: the adapter allocates its own.
        """
        self._workspace, self._own = 0, None
        size = self.workspace_size
        if workspace is not None:
            self._check_workspace(view(workspace, "workspace"), size)
        check_overlap(self._arrays)
        if not self._launches:
            self._launch = None if self.problem.empty else Zeros(products(self._arrays)[0].out)
            return
        plan = self._prepared()
        if size and workspace is None:
            self._own = _Memory(size, self.ordinal)
            self._workspace = self._own.address
        elif size:
            self._workspace = view(workspace).pointer
            with driver.on(self.ordinal):
                driver.call("cuMemsetD8Async", self._workspace, 0, COUNTER_BYTES, raw_stream(stream, self._arrays.a))
        self._launch = Launch(plan, products(self._arrays)[0], self._options)

    def _check_workspace(self, seen: ArrayView, size: int) -> None:
        check_device("workspace", seen, self.ordinal)
        check_contiguous("workspace", seen)
        check_aligned("workspace", seen, WORKSPACE_ALIGNMENT)
        bytes = TYPES[seen.dtype].bits // 8
        for extent in seen.shape:
            bytes *= extent
        if bytes < size:
            raise LaunchError(f"the workspace has {bytes:,} bytes, this product needs {size:,} (workspace_size): pass a larger one, none, "
                              "or a config whose scheduler is Static()")

    def update(self, **arrays: Any) -> None:
        """Use other arrays from the next run on, given by name. Shape, strides, type and device must be the same as before."""
        refuse_gradients(*arrays.items())
        changed: dict[str, ArrayView] = {}
        for name, array in arrays.items():
            if name not in Arrays._fields:
                raise LaunchError(f"a product has no array {name!r}: {', '.join(Arrays._fields)}")
            old = getattr(self._arrays, name)
            if old is None:
                raise LaunchError(f"{name} was not given when this product was made: make another Adapter with it")
            seen = view(array, name)
            if seen._replace(pointer=0, owner="") != old._replace(pointer=0, owner=""):
                raise LaunchError(f"{name} is {_words(seen)}, this product was made for {_words(old)}: make another Adapter")
            check_aligned(name, seen, min(16, old.pointer & -old.pointer or 16))
            changed[name] = seen
        replaced = self._arrays._replace(**changed)
        if self._launch is not None:
            check_overlap(replaced)
        self._arrays = replaced
        if isinstance(self._launch, Zeros):
            self._launch = Zeros(products(self._arrays)[0].out)
        elif self._launch is not None:
            self._launch = Launch(self._prepared(), products(self._arrays)[0], self._options)

    def run(self, stream: Any = None) -> None:
        """Launch on `stream` (None: the current stream of the library of a). Allocates nothing and waits for nothing."""
        if self._launch is None:
            if self.problem.empty:
                return
            raise LaunchError("this product is not initialized: call initialize() once, before the first run")
        raw = raw_stream(stream, self._arrays.a)
        if isinstance(self._launch, Zeros):
            self._launch.run(raw)
        else:
            self._launch.run(raw, self._workspace)

    def __str__(self) -> str:
        """The configuration with its budget, and the size of the workspace."""
        if not self._launches:
            return "nothing to multiply"
        return f"{self.config.describe()}\nworkspace           {self.workspace_size:,} bytes"


class _Memory:
    """Cleared device memory, freed with the object."""

    __slots__ = ("address", "ordinal")

    def __init__(self, size: int, ordinal: int) -> None:
        self.ordinal = ordinal
        self.address = driver.allocate_cleared(size, ordinal)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            driver.free(self.address, self.ordinal)


def _words(seen: ArrayView) -> str:
    return f"{seen.dtype} {seen.shape} with strides {seen.strides} on device {seen.device}"


__all__ = ["WORKSPACE_ALIGNMENT", "Adapter"]
