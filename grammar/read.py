"""PTX text to tree. `docs/readers.md` says which readers there are and why."""

from __future__ import annotations

from .errors import ParseError
from .gc_pause import gc_pause
from .readers.fallback import MAX_ERRORS as MAX_ERRORS
from .readers.module import ModuleReader
from .readers.source import Source
from .tree import Module


def parse(text: str) -> Module:
    """The module that a PTX text is. `ParseError` says where it is not PTX and what was expected there."""
    module, errors = _parse(text, None)
    if module is None:
        raise errors[0]
    return module


def parse_all(text: str) -> tuple[Module | None, list[ParseError]]:
    """The module without what is wrong in the text, and the errors, `MAX_ERRORS` and one more at most.

    After an error reading goes on with the next statement or item. The module is None if there are too many errors or if the text does not
    even begin as a module.
    """
    return _parse(text, [])


def _parse(text: str, errors: list[ParseError] | None) -> tuple[Module | None, list[ParseError]]:
    """`errors`: the list for errors. None: reading ends at the first one."""
    try:
        with gc_pause():
            return ModuleReader(Source(text), errors).read(), errors or []
    except ParseError as error:
        return None, [*(errors or ()), error]
