"""What the static rules found."""

from __future__ import annotations

from ..grammar.errors import Finding


class Findings(tuple[Finding, ...]):
    """The findings, by line. It is a tuple; as text it has a line for each, and a notebook shows each with its source."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no findings"

    def _repr_html_(self) -> str:
        from ..html.reports import checked

        return checked(self)


__all__ = ["Findings"]
