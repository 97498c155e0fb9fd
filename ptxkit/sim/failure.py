"""What an author is told when the simulator itself fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..grammar import tree
from ..grammar.errors import PtxkitError
from .errors import InternalError, SimulationError


@contextmanager
def explained(module: tree.Module, *, callers: bool) -> Iterator[None]:
    """Every exception that leaves the block is one of ptxkit's: the module's own mistake where it has one, else a defect of ptxkit, or of
    an observer or a policy of the caller if there are such (`callers`).
    """
    try:
        yield
    except PtxkitError:
        raise
    except MemoryError:
        raise SimulationError("the simulation needs more memory than this machine has: simulate a smaller launch") from None
    except Exception as error:
        raise _reason(module, error, callers) from error


def _reason(module: tree.Module, error: Exception, callers: bool) -> PtxkitError:
    from ..check import check

    wrong = [finding for finding in check(module) if finding.kind == "language" and finding.severity == "error"]
    if wrong:
        return SimulationError(f"this is no legal PTX: {wrong[0]}")
    whose = "ptxkit, or of an observer or policy that was passed" if callers else "ptxkit"
    return InternalError(f"the simulator failed with {type(error).__name__}: {error}; this is a defect of {whose}: please report it with "
                         "the text and its launch")
