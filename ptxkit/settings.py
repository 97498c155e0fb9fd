"""What the PTXKIT_* environment variables say, read once per process."""

from __future__ import annotations

import logging
import os
import stat
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
VARIABLES = ("PTXKIT_CACHE_DIR", "PTXKIT_CACHE_MB", "PTXKIT_CHECK", "PTXKIT_KEEP", "PTXKIT_KEEP_DIR", "PTXKIT_LOG", "PTXKIT_PTXAS",
             "PTXKIT_PTX_MB", "PTXKIT_TABLE", "PTXKIT_TUNE")
DEFAULT_MB = 2048
MOST_MB = 1_000_000
"""A million million bytes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment's wishes.

    `cache_dir`: where cubins are kept, None for `off`, and where there is no home directory. `cache_mb`: how many million bytes they may
    have in all; those that were not used for longest are removed. `ptxas`: an executable, `"driver"` for the driver's own
    assembler, None to look for one. `keep`: which products of an assembly are also written to `keep_dir`.
    `ptx_mb`: how many million bytes a PTX file may have.
    `log`: the level at which the logger "ptxkit" is written to stderr, None for silence. `table`: a table of tuned configurations that
    goes before the user's own, or a folder of them. `tune`: whether new shapes are tuned on their first use, or the table to keep them in.
    """

    cache_dir: Path | None
    cache_mb: int = DEFAULT_MB
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
        """The settings in `environment`; an empty variable counts as absent, and `unknown` ones are ignored. Raises SettingsError."""
        given = {name: value.strip() for name, value in environment.items() if name in _READ and value.strip()}
        check = given.get("PTXKIT_CHECK", "warn").lower()
        if check not in CHECKS:
            raise _wrong("PTXKIT_CHECK", given["PTXKIT_CHECK"], CHECKS)
        log = given.get("PTXKIT_LOG")
        if log is not None and log.lower() not in LEVELS:
            raise _wrong("PTXKIT_LOG", log, LEVELS)
        return cls(
            cache_dir=_cache_dir(given),
            keep=_keep(given.get("PTXKIT_KEEP", "")),
            cache_mb=_mb("PTXKIT_CACHE_MB", given, DEFAULT_MB),
            keep_dir=_keep_dir(given),
            ptxas=_ptxas(given.get("PTXKIT_PTXAS")),
            check=check,  # type: ignore[arg-type]  # compared with CHECKS above
            log=log.lower() if log else None,
            color="NO_COLOR" not in given,
            ptx_mb=_mb("PTXKIT_PTX_MB", given, 64),
            table=_path("PTXKIT_TABLE", given["PTXKIT_TABLE"])[0] if "PTXKIT_TABLE" in given else None,
            tune=_tune(given.get("PTXKIT_TUNE", "0")),
        )


_READ = frozenset((*VARIABLES, "NO_COLOR", "XDG_CACHE_HOME"))


def _wrong(variable: str, value: str, legal: tuple[str, ...]) -> SettingsError:
    return SettingsError(f"{variable}={_cut(value)} is not legal: it is one of {', '.join(legal)}")


def _cache_dir(given: Mapping[str, str]) -> Path | None:
    wish = given.get("PTXKIT_CACHE_DIR")
    if wish is not None and wish.lower() == "off":
        return None
    if wish is None:
        base = Path(given["XDG_CACHE_HOME"]) if os.path.isabs(given.get("XDG_CACHE_HOME", "")) else _user_cache()
        return base and base / "ptxkit"
    path, status = _path("PTXKIT_CACHE_DIR", wish)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise SettingsError(f"PTXKIT_CACHE_DIR={_cut(wish)} is a file: give a directory, which ptxkit makes when it is missing, or off")
    return path


def _user_cache() -> Path | None:
    """`.cache` in the home directory: that of HOME, else that of the system's table of users. None where neither has one."""
    home = os.environ.get("HOME", "") if os.name == "posix" else os.path.expanduser("~")
    if not os.path.isabs(home):
        try:
            import pwd

            home = pwd.getpwuid(os.getuid()).pw_dir
        except (ImportError, KeyError):
            return None
    return Path(home, ".cache") if os.path.isabs(home) else None


def _path(variable: str, wish: str) -> tuple[Path, os.stat_result | None]:
    """The path that a variable gives, and what is there. Raises SettingsError for one that no file can have."""
    try:
        path = Path(wish).expanduser().absolute()
        try:
            return path, path.stat()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return path, None
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a home directory that is not there
        said = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise SettingsError(f"{variable}={_cut(wish)} is no path ({said}): give one that can be, or unset it") from None


def _cut(wish: str) -> str:
    """A value as a message shows it."""
    return repr(wish) if len(wish) <= 80 else f"{wish[:60]!r}... ({len(wish):,} characters)"


def _keep_dir(given: Mapping[str, str]) -> Path:
    if "PTXKIT_KEEP_DIR" not in given:
        return Path("ptxkit-keep")
    path, status = _path("PTXKIT_KEEP_DIR", given["PTXKIT_KEEP_DIR"])
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise SettingsError(f"PTXKIT_KEEP_DIR={_cut(given['PTXKIT_KEEP_DIR'])} is a file: give a directory")
    return path


def _keep(wish: str) -> frozenset[str]:
    kept = frozenset(word.strip().lower() for word in wish.split(",") if word.strip())
    for word in sorted(kept - set(KEEPABLE)):
        raise SettingsError(f"PTXKIT_KEEP={_cut(wish)} names {_cut(word)}: it is a comma-separated list of {', '.join(KEEPABLE)}")
    return kept


def _mb(variable: str, given: Mapping[str, str], default: int) -> int:
    wish = given.get(variable, str(default))
    if not (wish.isascii() and wish.isdigit() and len(wish) <= len(str(MOST_MB)) and 0 < int(wish) <= MOST_MB):
        raise SettingsError(f"{variable}={_cut(wish)} is not legal: it is a whole number of million bytes from 1 to {MOST_MB:,}, "
                            f"such as {default}")
    return int(wish)


def _tune(wish: str) -> bool | Path:
    if wish.lower() in ("0", "off", "1", "on"):
        return wish.lower() in ("1", "on")
    path, status = _path("PTXKIT_TUNE", wish)
    if path.suffix != ".json" and not (status is not None and stat.S_ISDIR(status.st_mode)):
        raise SettingsError(f"PTXKIT_TUNE={_cut(wish)} is not legal: it is 1 (what is tuned is kept in the cache directory), 0, or the "
                            "table to keep it in, a .json file or a folder")
    return path


def _ptxas(wish: str | None) -> Path | Literal["driver"] | None:
    if wish is None:
        return None
    if wish.lower() == "driver":
        return "driver"
    path, status = _path("PTXKIT_PTXAS", wish)
    if status is None or not stat.S_ISREG(status.st_mode) or not os.access(path, os.X_OK):
        raise SettingsError(f"PTXKIT_PTXAS={_cut(wish)} is not an executable file: give the path of a ptxas, or driver")
    return path


def unknown(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each PTXKIT_* variable that has no meaning."""
    import difflib

    said = []
    words = [each.removeprefix("PTXKIT_") for each in VARIABLES]
    for name in sorted(name for name in environment if name.startswith("PTXKIT_") and name not in VARIABLES):
        near = difflib.get_close_matches(name.removeprefix("PTXKIT_"), words, 1)
        said.append(f"{_cut(name)[1:-1]} is not a variable that ptxkit knows and is ignored; "
                    + (f"did you mean PTXKIT_{near[0]}?" if near else f"there are {', '.join(VARIABLES)}"))
    return tuple(said)


@cache
def settings() -> Settings:
    """This process's settings, from its environment at the first call. PTXKIT_LOG takes effect then, and unknown variables are told."""
    found = Settings.read(os.environ)
    if found.log is not None:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("ptxkit")
        logger.addHandler(handler)
        logger.setLevel(found.log.upper())
    for sentence in unknown(os.environ):
        logging.getLogger("ptxkit").warning("%s", sentence)
    return found
