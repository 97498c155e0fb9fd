"""The files of an export: all of them are written, or none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..files import write_whole
from .kernel import ExportError

_DECLARED = re.compile(r"^(?:\w[\w ]*[ *]+(\w+)\(|\} (\w+);)", re.MULTILINE)
"""A function or a type of a header."""
_OURS = "#ifndef PTXKIT_"
"""Stands in the headers of exports."""


class FolderError(ExportError):
    """A folder that cannot be written."""


def write(folder: str | os.PathLike[str], contents: Mapping[str, bytes], *, force: bool = False) -> tuple[Path, ...]:
    """Write files into a folder, which is made if it is not there. Raises ExportError where a file exists, unless `force`, and where a
    header declares what another export there does. Leaves everything as it was where one cannot be written."""
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise FolderError(f"{place} is a file: name a folder")
    paths = {name: place / name for name in contents}
    there = [path for path in paths.values() if path.exists()]
    if there and not force:
        raise ExportError(f"{there[0]} exists: name another folder, or overwrite it with force (--force)")
    _check_names(place, contents)
    made: list[Path] = []
    folders = [each for each in (place, *place.parents) if not each.exists()]
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            made.append(path.with_name(f".{name}.{os.getpid()}"))
            write_whole(made[-1], contents[name])
        for aside, path in zip(made, paths.values(), strict=True):
            os.replace(aside, path)
    except OSError as error:
        for aside in made:
            aside.unlink(missing_ok=True)
        for each in folders:
            if each.is_dir() and not any(each.iterdir()):
                each.rmdir()
        wanted = dict(zip(map(str, made), paths.values(), strict=False))
        raise FolderError(f"cannot write {wanted.get(str(error.filename), place)}: {error.strerror}") from None
    return tuple(paths.values())


def _check_names(place: Path, contents: Mapping[str, bytes]) -> None:
    """Raise ExportError where a program could not take a header beside another export's in the folder."""
    declared = {name for file, text in contents.items() if file.endswith(".h") for name in _names(text.decode())}
    for path in sorted(place.glob("*.h")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.name not in contents and path.is_file() else ""
        both = declared & _names(text) if _OURS in text else ()
        if both:
            raise ExportError(f"{path} declares `{min(both)}`, too, so that no program could have both: give this export another name "
                              "(--name) or another folder")


def _names(header: str) -> set[str]:
    return {function or type_ for function, type_ in _DECLARED.findall(header)}


__all__ = ["FolderError", "write"]
