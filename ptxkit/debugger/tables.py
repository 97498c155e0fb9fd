"""What a session shows: rows under a head, as text in a terminal and as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, overload

from ..html.parts import framed, said, table

R = TypeVar("R", bound="Row")


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its fields are its cells, but for those whose names begin with `of_`."""

    @classmethod
    def head(cls) -> tuple[str, ...]:
        return tuple(each.name.replace("_", " ") for each in fields(cls) if not each.name.startswith("of_"))

    def cells(self) -> tuple[str, ...]:
        return tuple(_words(getattr(self, each.name)) for each in fields(self) if not each.name.startswith("of_"))


class Rows(Sequence[R], Generic[R]):
    """Rows of one kind. `empty` is what it says of itself when there are none."""

    def __init__(self, rows: Sequence[R], empty: str) -> None:
        self.rows = tuple(rows)
        self.empty = empty

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[R]: ...
    def __getitem__(self, index: int | slice) -> R | Sequence[R]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return self.empty
        head, cells = self._shown()
        return aligned([head, *cells])

    def _repr_html_(self) -> str:
        return framed(self.as_table())

    def as_table(self) -> str:
        """The rows as a table of HTML."""
        return table(*self._shown(), mono=True) if self.rows else said(self.empty)

    def _shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The head and the cells of the columns that are not empty throughout."""
        head, cells = type(self.rows[0]).head(), [row.cells() for row in self.rows]
        kept = [i for i in range(len(head)) if any(row[i] for row in cells)]
        return tuple(head[i] for i in kept), [tuple(row[i] for i in kept) for row in cells]


def aligned(rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Columns of text."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in rows)


def _words(value: Any) -> str:
    return "" if value is None else str(value)
