"""What the PTXKIT_* environment variables say, read once per process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from .errors import SettingsError

Check = Literal["off", "warn", "error"]

KEEPABLE = ("ptx", "cubin", "sass", "log")
CHECKS = ("off", "warn", "error")
LEVELS = ("debug", "info", "warning", "error")
VARIABLES = ("PTXKIT_CACHE_DIR", "PTXKIT_CHECK", "PTXKIT_KEEP", "PTXKIT_KEEP_DIR", "PTXKIT_LOG", "PTXKIT_PTXAS", "PTXKIT_PTX_MB",
             "PTXKIT_TABLE", "PTXKIT_TUNE")


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment's wishes.

    `cache_dir`: where cubins are kept, None for `off`. `ptxas`: an executable, `"driver"` for the driver's own
    assembler, None to look for one. `keep`: which products of an assembly are also written to `keep_dir`.
    `ptx_mb`: how many million bytes a PTX file may have.
    `log`: the level at which the logger "ptxkit" is written to stderr, None for silence. `table`: a table of tuned configurations that
    goes before the user's own, or a folder of them. `tune`: whether new shapes are tuned on their first use, or the table to keep them in.
    """

    cache_dir: Path | None
    keep: frozenset[str] = frozenset()
    keep_dir: Path = Path("ptxkit-keep")
    ptxas: Path | Literal["driver"] | None = None
    check: Check = "warn"
    log: str | None = None
    color: bool = True
    ptx_mb: int = 64
    table: Path | None = None
    tune: bool | Path = False

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """The settings in `environment`; an empty variable counts as absent. Raises SettingsError."""
        given = {name: value.strip() for name, value in environment.items() if name in _READ and value.strip()}
        unknown = sorted(name for name in environment if name.startswith("PTXKIT_") and name not in VARIABLES)
        if unknown:
            raise SettingsError(f"{unknown[0]} is not a variable that ptxkit knows; there are {', '.join(VARIABLES)}")
        check = given.get("PTXKIT_CHECK", "warn")
        if check not in CHECKS:
            raise _wrong("PTXKIT_CHECK", check, CHECKS)
        log = given.get("PTXKIT_LOG")
        if log is not None and log.lower() not in LEVELS:
            raise _wrong("PTXKIT_LOG", log, LEVELS)
        return cls(
            cache_dir=_cache_dir(given),
            keep=_keep(given.get("PTXKIT_KEEP", "")),
            keep_dir=Path(given.get("PTXKIT_KEEP_DIR", "ptxkit-keep")).expanduser(),
            ptxas=_ptxas(given.get("PTXKIT_PTXAS")),
            check=check,  # type: ignore[arg-type]  # compared with CHECKS above
            log=log.lower() if log else None,
            color="NO_COLOR" not in given,
            ptx_mb=_ptx_mb(given.get("PTXKIT_PTX_MB", "64")),
            table=Path(given["PTXKIT_TABLE"]).expanduser().absolute() if "PTXKIT_TABLE" in given else None,
            tune=_tune(given.get("PTXKIT_TUNE", "0")),
        )


_READ = frozenset((*VARIABLES, "NO_COLOR", "XDG_CACHE_HOME"))


def _wrong(variable: str, value: str, legal: tuple[str, ...]) -> SettingsError:
    return SettingsError(f"{variable}={value!r} is not legal: it is one of {', '.join(legal)}")


def _cache_dir(given: Mapping[str, str]) -> Path | None:
    wish = given.get("PTXKIT_CACHE_DIR")
    if wish == "off":
        return None
    if wish is None:
        return Path(given.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "ptxkit"
    path = Path(wish).expanduser()
    if path.exists() and not path.is_dir():
        raise SettingsError(f"PTXKIT_CACHE_DIR={wish!r} is a file: give a directory, which ptxkit makes when it is missing, or off")
    return path.absolute()


def _keep(wish: str) -> frozenset[str]:
    kept = frozenset(word.strip() for word in wish.split(",") if word.strip())
    for word in sorted(kept - set(KEEPABLE)):
        raise SettingsError(f"PTXKIT_KEEP={wish!r} names {word!r}: it is a comma-separated list of {', '.join(KEEPABLE)}")
    return kept


def _ptx_mb(wish: str) -> int:
    if not (wish.isascii() and wish.isdigit() and int(wish) > 0):
        raise SettingsError(f"PTXKIT_PTX_MB={wish!r} is not legal: it is a whole number of million bytes from 1 on, such as 64")
    return int(wish)


def _tune(wish: str) -> bool | Path:
    if wish.lower() in ("0", "off", "1", "on"):
        return wish.lower() in ("1", "on")
    path = Path(wish).expanduser()
    if path.suffix != ".json" and not path.is_dir():
        raise SettingsError(f"PTXKIT_TUNE={wish!r} is not legal: it is 1 (what is tuned is kept in the cache directory), 0, or the table "
                            "to keep it in, a .json file or a folder")
    return path.absolute()


def _ptxas(wish: str | None) -> Path | Literal["driver"] | None:
    if wish is None:
        return None
    if wish == "driver":
        return "driver"
    path = Path(wish).expanduser()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise SettingsError(f"PTXKIT_PTXAS={wish!r} is not an executable file: give the path of a ptxas, or driver")
    return path.absolute()


@cache
def settings() -> Settings:
    """This process's settings, from its environment at the first call. PTXKIT_LOG takes effect then."""
    found = Settings.read(os.environ)
    if found.log is not None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("ptxkit")
        logger.addHandler(handler)
        logger.setLevel(found.log.upper())
    return found
