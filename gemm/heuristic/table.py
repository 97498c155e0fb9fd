"""Configurations that were measured to be the fastest, per card: `lookup` finds one, `Table` reads and writes them, `keep` adds one.

A table is a JSON file of one card. Of entries for the same product the first of these goes before the others:

1. what this process has tuned (`keep`);
2. the table of a block `with gemm.tuning(table=...)`, that of PTXKIT_TUNE, then that of PTXKIT_TABLE: a file, or a folder with a file for
   each card;
3. the user's own, in the cache directory;
4. what ships with the package, in gemm/cards.

What another card or another version of the package has tuned is not used, which is said once.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxkit import __version__
from ptxkit.cards import Card, known
from ptxkit.errors import PtxkitError
from ptxkit.files import WRONG_DATA, folder_of, make_folder, read_kept
from ptxkit.grammar.errors import printable
from ptxkit.measure.files import write_aside
from ptxkit.settings import settings
from ptxkit.tuning.locks import locked
from ptxkit.tuning.names import file_name, own_name

SCHEMA = 2
FOLDER = Path(__file__).parents[1] / "cards"
Shape = tuple[int, ...]
"""M, N and K; before them the number of products of a batch."""
Knobs = Mapping[str, Any]
_EXTENTS = r"[1-9][0-9]{0,14}(x[1-9][0-9]{0,14}){2,3}"
_LOG = logging.getLogger("ptxkit")


class TableError(PtxkitError, ValueError):
    """A file that is not a table."""


class OldTableError(TableError):
    """A table of another version, whose configurations have other fields."""


@dataclass(slots=True)
class Table:
    """What was tuned on one card: by kind ("bf16/bf16/nt": operands, result, layout) and shape ("4096x4096x4096"; "16x512x512x128" is
    a batch of 16) an entry with "config" (the knobs of the configuration) and how it was measured. `sms` 0: those of the card of that
    name; `version` "": of no one in particular, as in tables that ship."""

    device: str
    entries: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    sms: int = 0
    version: str = ""

    @classmethod
    def read(cls, path: Path) -> Table:
        """Raises TableError for a file that is none."""
        try:
            data = read_kept(path)
            if data["schema"] != SCHEMA:
                raise OldTableError(f"{path} is a table of schema {data['schema']}, this version reads {SCHEMA}: its configurations are "
                                    "not used; measure them again with `ptxkit gemm tune`, which replaces the file")
            table = cls(data["device"], data["entries"], int(data.get("sms", 0)), str(data.get("version", "")))
            for kind, shapes in table.entries.items():
                for shape, entry in shapes.items():
                    if len(kind.split("/")) != 3 or not re.fullmatch(_EXTENTS, shape) or not isinstance(entry["config"], dict):
                        raise TableError(f"{path}: {kind} {shape} is no entry")
        except TableError:
            raise
        except WRONG_DATA as error:
            raise TableError(f"{path} is no table of configurations: {error!r}") from None
        return table

    @classmethod
    def of(cls, card: Card) -> Table:
        """An empty one of this card and this version."""
        return cls(card.name, sms=card.sms, version=__version__)

    def put(self, kind: str, shape: Shape, entry: Mapping[str, Any]) -> None:
        self.entries.setdefault(kind, {})["x".join(map(str, shape))] = dict(entry)

    def merge(self, other: Table) -> None:
        """The other's entries go first."""
        for kind, shapes in other.entries.items():
            self.entries.setdefault(kind, {}).update(shapes)

    def write(self, path: Path) -> None:
        """Sorted by kind and size, an entry a line, so that a table can be read and compared. Written aside, then put in place."""
        make_folder(path.parent, settings().cache_dir)
        kinds = []
        for kind, shapes in sorted(self.entries.items()):
            ordered = sorted(shapes.items(), key=lambda item: (len(extents(item[0])), extents(item[0])))
            rows = [f"   {json.dumps(shape)}: {json.dumps(entry)}" for shape, entry in ordered]
            kinds.append(f"  {json.dumps(kind)}: {{\n" + ",\n".join(rows) + "\n  }")
        about: dict[str, Any] = {"schema": SCHEMA, "device": self.device}
        about |= {"sms": self.sms} if self.sms else {}
        about |= {"version": self.version} if self.version else {}
        head = "{\n" + "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in about.items()) + ' "entries": {\n'
        write_aside(path, head + ",\n".join(kinds) + "\n }\n}\n")

    def cards_sms(self, card: Card) -> tuple[str, int]:
        """The name and the SMs of the card that it is of."""
        whole = known(self.device)
        return self.device, self.sms or (whole.sms if whole is not None else card.sms)

    def why_not(self, card: Card) -> str:
        """Why its entries are not used on a card; empty when they are."""
        device, sms = self.cards_sms(card)
        if (device, sms) != (card.name, card.sms):
            return f"is of {device} with {sms} SMs, not of {card.name} with {card.sms}"
        return "" if self.version == __version__ else f"was tuned by ptxkit {self.version or 'before 0.1'}, not by {__version__}"


def extents(shape: str) -> Shape:
    """Those that an entry's name says."""
    return tuple(map(int, shape.split("x")))


def user_path(card: Card) -> Path | None:
    """Where the tuner keeps its table; None when the cache is off, or is not this user's own."""
    folder = folder_of(settings().cache_dir, "tuned")
    return folder and folder / own_name(card)


def within(path: Path, card: Card) -> Path:
    """The table of a card at a path that a user gives: the file, or the card's file in a folder."""
    return path / own_name(card) if path.is_dir() else path


def kept_at(card: Card, wish: Path | None = None) -> Path | None:
    """Where what is tuned on a card is kept: at the path that is wished, else that of PTXKIT_TUNE, else in the cache directory."""
    path = wish if wish is not None else settings().tune
    return within(path, card) if isinstance(path, Path) else user_path(card)


def _tables(card: Card) -> Iterator[Table]:
    """Those whose entries are used, later ones first. A file that is no table is as good as none."""
    with suppress(TableError):
        shipped = Table.read(FOLDER / file_name(card.name))
        if (whole := known(card.name)) is None or whole.sms == card.sms:
            yield shipped
    shared, wish = settings().table, settings().tune
    if shared is not None and not (shared.is_file() or shared.is_dir()):
        what = "no file or folder" if shared.exists() else "not there"
        _say(f"PTXKIT_TABLE={shared} is {what}: `ptxkit gemm tune --table FILE` makes such a table")
    given = [within(path, card) for path in (shared, wish if isinstance(wish, Path) else None, *_also) if path is not None]
    for path in (user_path(card), *given):
        if path is None or not path.is_file():
            continue
        try:
            found = Table.read(path)
        except OldTableError as error:
            _say(str(error))
            continue
        except TableError as error:
            if path in given:
                _say(str(error))
            continue
        if why := found.why_not(card):
            _say(f"{path} {why}: its configurations are not used; `ptxkit gemm tune` makes others")
        else:
            yield found


@functools.cache
def _say(sentence: str) -> None:
    """Once."""
    _LOG.warning("%s", printable(sentence))


@functools.lru_cache(64)
def _known(card: Card) -> dict[str, dict[Shape, Knobs]]:
    """Every entry for a card that is used."""
    merged = Table(card.name)
    for table in _tables(card):
        merged.merge(table)
    merged.merge(_own(card))
    return {kind: {extents(shape): entry["config"] for shape, entry in shapes.items()} for kind, shapes in merged.entries.items()}


def lookup(card: Card, kind: str, m: int, n: int, k: int, batches: int | None = None, *, exact: bool = False) -> Knobs | None:
    """The knobs tuned for a product of this kind ("bf16/bf16/nt") on this card, or (unless `exact`) for one with the same N and K and M
    within a factor of the square root of two (the nearest); None when there is none. Of a batch, the factors of M and of the number of
    products count together."""
    shapes = _known(card).get(kind)
    if not shapes:
        return None
    wanted: Shape = (m, n, k) if batches is None else (batches, m, n, k)
    found = shapes.get(wanted)
    if found is not None or exact:
        return found
    near = [(_apart(wanted, other), other) for other in shapes if len(other) == len(wanted) and other[-2:] == (n, k)]
    if not near or min(near)[0] > 2 ** 0.5:
        return None
    return shapes[min(near)[1]]


def _apart(one: Shape, other: Shape) -> float:
    """The product of the factors between all extents but N and K."""
    return math.prod(max(pair) / min(pair) for pair in zip(one[:-2], other[:-2], strict=True))


# ------------------------------------------------------------------------------------------------------------- what is tuned here

_tuned_here: dict[Card, Table] = {}
_also: dict[Path, None] = {}


def also_read(path: Path) -> None:
    """Use the entries of this table, too, from now on: before those of the environment's."""
    _also.pop(path, None)
    _also[path] = None
    reread()


def _own(card: Card) -> Table:
    """What this process has tuned on a card."""
    return _tuned_here.setdefault(card, Table.of(card))


def keep(card: Card, kind: str, shape: Shape, entry: Mapping[str, Any], path: Path | None) -> None:
    """Use this entry from now on, and add it to the table at `path`, which may have entries of other processes by now. Where it cannot be
    written, that is said once, and this process uses it nevertheless."""
    _own(card).put(kind, shape, entry)
    reread()
    if path is None:
        return
    try:
        make_folder(path.parent, settings().cache_dir)
        with locked(path):
            table = _to_add_to(path, card)
            if table is not None:
                table.put(kind, shape, entry)
                table.write(path)
    except OSError as error:
        _say(f"cannot write to {path} ({error.strerror or error}): what is tuned is used by this process alone")


def entry(card: Card, kind: str, shape: Shape) -> Mapping[str, Any] | None:
    """What this process has tuned for just these extents, with how it was measured."""
    return _own(card).entries.get(kind, {}).get("x".join(map(str, shape)))


def _to_add_to(path: Path, card: Card) -> Table | None:
    """The table at a path as far as it is this card's and this version's. Another version's is put aside; another card's is left alone."""
    if not os.path.lexists(path):
        return Table.of(card)
    try:
        found = Table.read(path)
    except TableError as error:
        _say(f"{error}; it is put aside")
        found = Table("")
    if found.device and found.cards_sms(card) != (card.name, card.sms):
        _say(f"{path} is a table of {found.device}: what is tuned on {card.name} with {card.sms} SMs is used by this process alone; give a "
             "folder, which has a table for each card")
        return None
    if path.parent.resolve() != FOLDER.resolve() and found.why_not(card):
        aside = path.with_name(f"{path.stem}.{re.sub(r'[^0-9A-Za-z.+-]', '_', found.version)[:40] or 'old'}{path.suffix}")
        os.replace(path, aside)
        return Table.of(card)
    return found


@contextmanager
def nothing_tuned_here() -> Iterator[None]:
    """For tests: without what this process has tuned, and afterwards with that alone."""
    before = dict(_tuned_here), dict(_also)
    _tuned_here.clear()
    _also.clear()
    forget()
    try:
        yield
    finally:
        _tuned_here.clear()
        _also.clear()
        _tuned_here.update(before[0])
        _also.update(before[1])
        forget()


def reread() -> None:
    """The tables are read again at the next lookup."""
    _known.cache_clear()


def forget() -> None:
    """The same, and what was said of them may be said again."""
    reread()
    _say.cache_clear()


__all__ = ["Knobs", "OldTableError", "Shape", "Table", "TableError", "also_read", "entry", "extents", "file_name", "forget", "keep",
           "kept_at", "lookup", "nothing_tuned_here", "own_name", "reread", "user_path", "within"]
