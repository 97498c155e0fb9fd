"""How much a simulation may take of the machine that it runs on."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

from .errors import SimulationError

MAX_STEPS = 20_000_000
"""Warp instructions of a run that is given no `max_steps`: two minutes under the checker, if most of them load and store."""

UNLIMITED = 1 << 62
"""The `max_steps` of kernels that are known to end."""

LOCAL_LIMIT, CONST_LIMIT, PARAMETER_LIMIT = 512 << 10, 64 << 10, 32764
"""Bytes that a GPU has at most: of local memory for a thread, of constant variables, of the parameters of an entry."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may take; where it takes more it ends with a sentence. Pass another one as `limits=` to `ptxkit.sim.run`.

    `ctas` of the grid; `memory`: bytes of global memory, and of the local memory of all resident threads; `output`: characters that printf
    writes; `registers` that a function declares.
    """

    ctas: int = 1 << 20
    memory: int = 2 << 30
    output: int = 1 << 20
    registers: int = 1 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                fine = operator.index(value) > 0
            except TypeError:
                fine = False
            if not fine:
                raise SimulationError(f"Limits({field.name}=...) is a positive int, not {value!r}")

    def says(self, name: str) -> str:
        """The limit of that name, and how it is raised, in words."""
        value = getattr(self, name)
        return f"at most {value:,}, unless limits=sim.Limits({name}=...) allows more"


LIMITS = Limits()
