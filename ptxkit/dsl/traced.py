"""A kernel after its trace: the tree and the data for launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..grammar import tree
from ..grammar.errors import Position
from ..smem import SharedPlan
from .lines import numbered
from .module import Copies
from .parameters import Parameter, Record, flat

if TYPE_CHECKING:
    from ..runtime.diagnostics import Resources
    from .dropped import Result
    from .marks import Named


@dataclass(frozen=True)
class Traced:
    """A kernel for one configuration: its tree and the data for launches. Sizes are in threads, CTAs and bytes."""

    name: str
    module: tree.Module
    signature: tuple[Parameter | Record, ...]
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int]
    shared: SharedPlan
    copies: Copies
    files: Mapping[int, str]
    config: Mapping[str, Any]
    setmaxnreg: bool
    marks: Named | None = None
    """The names of its marks, where it was traced with them."""
    dropped: tuple[Result, ...] = ()
    """The results that nothing reads, of calls that are statements of their own."""
    guarded: tuple[Result, ...] = ()
    """The results of guarded calls without a destination."""
    _text: dict[bool, str] = field(default_factory=dict, repr=False)
    resources: dict[str, Resources] = field(default_factory=dict, repr=False, compare=False)
    """Of each entry, once `Kernel.assemble` has assembled it."""

    def _repr_html_(self) -> str:
        from ..html.kernels import trace

        return trace(self)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The PTX parameters in order. The fields of a record stand in its place."""
        return flat(self.signature)

    @property
    def dynamic_smem(self) -> int:
        """The bytes of dynamic shared memory that a launch asks for."""
        return self.shared.total if self.shared.dynamic else 0

    def ptx(self, *, locs: bool = False) -> str:
        """The PTX text; `locs` keeps `.file` and `.loc`."""
        if locs not in self._text:
            from ..grammar.write import write

            self._text[locs] = write(self.module, locs=locs)
        return self._text[locs]

    def numbered(self) -> tuple[tree.Module, dict[int, Position]]:
        """The tree with its lines in `ptx(locs=True)` as positions, and the Python position of each line of that text."""
        return numbered(self.module, self.files)

    def positions(self) -> dict[int, Position]:
        """The Python position by line of `ptx(locs=True)`."""
        found: dict[int, Position] = {}
        here: Position | None = None
        for number, line in enumerate(self.ptx(locs=True).splitlines(), 1):
            words = line.split()
            if words and words[0] == ".loc":
                here = Position(self.files[int(words[1])], int(words[2]))
            elif here is not None and words and not words[0].startswith("."):
                found[number] = here
        return found


class Traceable:
    """An object with a trace for each configuration, such as a `Kernel`. Code that takes kernels need not import `Kernel`'s module."""

    def trace(self, **config: Any) -> Traced:
        """The trace for this configuration."""
        raise NotImplementedError

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of a launch."""
        raise NotImplementedError
