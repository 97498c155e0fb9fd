"""PTXKIT_*: what they mean, and that a wrong value names the legal ones."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from ptxkit.errors import SettingsError
from ptxkit.settings import DEFAULT_MB, VARIABLES, Settings, settings


def test_defaults() -> None:
    found = Settings.read({"XDG_CACHE_HOME": "/somewhere"})
    assert found == Settings(cache_dir=Path("/somewhere/ptxkit"))
    assert (found.check, found.keep, found.ptxas, found.color, found.log) == ("warn", frozenset(), None, True, None)
    home = Settings.read({}).cache_dir
    assert home is not None
    assert home.is_absolute()
    assert home.parts[-2:] == (".cache", "ptxkit")


def test_every_variable(tmp_path: Path) -> None:
    found = Settings.read({
        "PTXKIT_CACHE_DIR": str(tmp_path / "cache"), "PTXKIT_KEEP": "ptx, sass", "PTXKIT_KEEP_DIR": str(tmp_path),
        "PTXKIT_PTXAS": sys.executable, "PTXKIT_CHECK": "error", "PTXKIT_LOG": "INFO", "NO_COLOR": "1"})
    assert found.cache_dir == tmp_path / "cache"
    assert found.keep == {"ptx", "sass"}
    assert found.keep_dir == tmp_path
    assert found.ptxas == Path(sys.executable)
    assert (found.check, found.log, found.color) == ("error", "info", False)
    assert Settings.read({"PTXKIT_CACHE_DIR": "off"}).cache_dir is None
    assert Settings.read({"PTXKIT_PTXAS": "driver"}).ptxas == "driver"
    assert Settings.read({"PTXKIT_CHECK": ""}).check == "warn"
    loud = Settings.read({"PTXKIT_CACHE_DIR": "OFF", "PTXKIT_PTXAS": "Driver", "PTXKIT_CHECK": "ERROR", "PTXKIT_KEEP": "PTX"})
    assert (loud.cache_dir, loud.ptxas, loud.check, loud.keep) == (None, "driver", "error", {"ptx"})
    assert Settings.read({"PTXKIT_TABLE": "~/team.json"}).table == Path.home() / "team.json"
    for wish, tune in (("1", True), ("on", True), ("0", False), ("off", False), (str(tmp_path), tmp_path),
                       (str(tmp_path / "new.json"), tmp_path / "new.json")):
        assert Settings.read({"PTXKIT_TUNE": wish}).tune == tune


@pytest.mark.parametrize(("variable", "value", "named"), [
    ("PTXKIT_CHECK", "maybe", "off, warn, error"),
    ("PTXKIT_LOG", "loud", "debug, info, warning, error"),
    ("PTXKIT_KEEP", "ptx,elf", "ptx, cubin, sass, log"),
    ("PTXKIT_PTXAS", "/no/such/ptxas", "path of a ptxas, or driver"),
    ("PTXKIT_CACHE_DIR", sys.executable, "directory"),
    ("PTXKIT_TUNE", "perhaps", "0, or the table to keep it in"),
])
def test_a_wrong_value_names_the_legal_ones(variable: str, value: str, named: str) -> None:
    with pytest.raises(SettingsError, match=variable) as caught:
        Settings.read({variable: value})
    assert named in str(caught.value)


def test_every_variable_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows == sorted((*VARIABLES, "NO_COLOR"), key=[*VARIABLES, "NO_COLOR"].index)
    assert f"| {DEFAULT_MB} |" in page


def test_read_once() -> None:
    assert settings() is settings()


def test_the_library_is_silent_unless_asked() -> None:
    program = "import logging; from ptxkit.settings import settings; settings(); logging.getLogger('ptxkit').info('hello')"

    def stderr(**environment: str) -> str:
        root = Path(__file__).parents[2]
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, cwd=root).stderr

    assert stderr(PATH="") == ""
    assert stderr(PATH="", PTXKIT_LOG="info") == "INFO ptxkit: hello\n"
    assert logging.getLogger("ptxkit").handlers == []
