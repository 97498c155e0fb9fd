"""Programs that run as another user. Root's tests need them: nothing is forbidden to root."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
_BECOME = f"""
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that another user may reach. `tmp_path` is none: each start of pytest closes the folder above all of them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_other(imports: str, program: str, *arguments: Path | str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python; after its imports it is another user's if this process is root's. That user may not be able to read them."""
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.run([sys.executable, "-c", f"import os, sys\n{imports}\n{_BECOME}\n{program}", *map(str, arguments)],
                          env={"PYTHONPATH": path, "HOME": "/nowhere", **environment}, cwd="/", capture_output=True, text=True, check=False)
