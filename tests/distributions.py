"""Builds the source distribution and the wheel from a clean folder and tries both where nothing else is: `make dist`.

The folder holds what the last commit has, so a file that was forgotten is missed here. Each distribution is installed into a virtual
environment of its own. Its dependencies come from the index that pip uses; ptxkit itself comes from the file alone. The kernel that the
README shows is run, checked and assembled there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
GEMM = ("-m", "ptxkit.gemm", "run", "-m", "128", "-n", "128", "-k", "128", "--dtype", "f16", "--device", "sim")


class Refused(Exception):
    """Why there is no distribution, in a sentence with the way out."""


def environment() -> dict[str, str]:
    """This process's, without what leads Python elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def call(*command: str | Path, cwd: Path) -> str:
    """What a program prints. Raises Refused when it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(str(part) for part in command)
        raise Refused(f"`{words}` ended with status {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def make_environment(folder: Path, *, with_pip: bool) -> Path:
    """The Python of a new virtual environment."""
    venv.create(folder, with_pip=with_pip, symlinks=os.name == "posix")
    return folder / ("bin" if os.name == "posix" else "Scripts") / "python"


def install(python: Path, *what: str | Path, cwd: Path) -> None:
    call(python, "-m", "pip", "install", "--quiet", "--retries", "1", "--disable-pip-version-check", *what, cwd=cwd)


def build(python: Path, tree: Path, folder: Path, kind: str) -> Path:
    """The wheel or the sdist that the build backend makes of a folder."""
    folder.mkdir(exist_ok=True)
    script = f"from setuptools import build_meta; print('made', build_meta.build_{kind}({str(folder)!r}))"
    return folder / call(python, "-c", script, cwd=tree).splitlines()[-1].removeprefix("made ")


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))    # Python 3.11.4 has it


def unpack_sdist(sdist: Path, folder: Path) -> Path:
    """The one folder that a source distribution holds."""
    with tarfile.open(sdist) as archive:
        unpack(archive, folder)
    (tree,) = folder.iterdir()
    return tree


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def project(tree: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(tree: Path, *extras: str) -> list[str]:
    """What the project needs at run time, with these extras."""
    about = project(tree)["project"]
    optional = about["optional-dependencies"]
    return [*about["dependencies"], *(each for extra in extras for each in optional[extra])]    # type: ignore[misc, index]


def version_of(tree: Path) -> str:
    """The version, from the one line that has it."""
    text = (tree / "ptxkit" / "__init__.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "([^"]+)"$', text, re.M)
    return found


def example(page: str) -> str:
    """The first kernel of the README."""
    found = re.search(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert found is not None
    return found[1]


def expected(page: str) -> str:
    """What the README says that it prints."""
    found = re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)
    assert found is not None
    return found[1]


def committed(repository: Path, folder: Path) -> Path:
    """The files of the last commit. Raises Refused where the repository has others."""
    if not (repository / ".git").exists():
        raise Refused(f"{repository} is no checkout: distributions are made of what is committed")
    if changed := call("git", "status", "--porcelain", cwd=repository).splitlines():
        raise Refused(f"what is here is not what is committed (`git status` lists {changed[0].split(maxsplit=1)[1]}): "
                      "commit it, or put it away with `git stash -u`")
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=repository, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        unpack(tar, folder)
    return folder


def unfinished(tree: Path, tags: Sequence[str]) -> str:
    """What a release still lacks, "" if nothing: its section of the changelog, and its tag at the commit."""
    version, changelog = version_of(tree), (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", changelog, flags=re.M)[1:]
    if not any(re.match(rf"\[{re.escape(version)}] - \d{{4}}-\d\d-\d\d\n", section) for section in sections):
        return f"CHANGELOG.md has no section `## [{version}] - YEAR-MONTH-DAY`"
    if sections[0] != "[Unreleased]\n\n":
        return f"CHANGELOG.md has lines under Unreleased: they belong to {version}, or `__version__` has to rise"
    return "" if f"v{version}" in tags else f"the last commit has no tag v{version}"


def tried(distribution: Path, tree: Path, folder: Path) -> None:
    """Install a distribution and use it as a newcomer does. Raises Refused where something is not as the README says."""
    folder.mkdir()
    empty = folder / "work"
    empty.mkdir()
    python = make_environment(folder / "environment", with_pip=True)
    build_needs = project(tree)["build-system"]["requires"]
    install(python, *requirements(tree, "toolchain", "dtypes"), *build_needs, cwd=empty)    # type: ignore[misc]
    install(python, "--no-index", "--no-deps", "--no-build-isolation", distribution, cwd=empty)
    call(python, "-m", "pip", "--disable-pip-version-check", "check", cwd=empty)
    page = (tree / "README.md").read_text(encoding="utf-8")
    (empty / "saxpy.py").write_text(example(page), encoding="utf-8")
    command = python.with_name("ptxkit")
    require("its version", call(command, "--version", cwd=empty), f"ptxkit {version_of(tree)}\n")
    where = call(python, "-c", "import ptxkit.gemm; print(ptxkit.gemm.__file__)", cwd=empty)
    if not Path(where).resolve().is_relative_to((folder / "environment").resolve()):
        raise Refused(f"{distribution.name}: ptxkit.gemm was imported from {where.strip()}, not from what was installed")
    require("the kernel of the README", call(python, "saxpy.py", cwd=empty), expected(page))
    require("its check", call(command, "check", "saxpy.py:saxpy", cwd=empty), "saxpy.py:saxpy: no findings\n")
    call(command, "assemble", "saxpy.py:saxpy", "-o", "saxpy.cubin", cwd=empty)
    call(command, "doctor", cwd=empty)
    if "verdict: clean" not in (said := call(python, *GEMM, cwd=empty)):
        raise Refused(f"{distribution.name}: a product on the CPU device said\n{said}")


def require(what: str, seen: str, due: str) -> None:
    if seen != due:
        raise Refused(f"{what} is {seen!r}, not {due!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.distributions", description=__doc__.partition("\n")[0])
    parser.add_argument("--release", action="store_true", help="also refuse what is not ready to be published")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where they go (default dist)")
    options = parser.parse_args(arguments)
    try:
        make(options.output, release=options.release)
    except Refused as error:
        print(f"make dist: {error}", file=sys.stderr)
        return 1
    return 0


def make(output: Path, *, release: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ptxkit dist ") as name:
        folder = Path(name)
        tree = committed(ROOT, folder / "tree")
        lacks = unfinished(tree, call("git", "tag", "--points-at", "HEAD", cwd=ROOT).split())
        if release and lacks:
            raise Refused(lacks)
        python = make_environment(folder / "builder", with_pip=True)
        install(python, *project(tree)["build-system"]["requires"], cwd=folder)    # type: ignore[misc]
        sdist = build(python, tree, folder / "made", "sdist")
        wheel = build(python, unpack_sdist(sdist, folder / "unpacked"), folder / "made", "wheel")
        if contents(wheel) != contents(build(python, tree, folder / "direct", "wheel")):
            raise Refused("the wheel of the source distribution is not that of the checkout")
        for number, distribution in enumerate((sdist, wheel)):
            tried(distribution, tree, folder / f"try {number}")
        output.mkdir(exist_ok=True)
        for distribution in (sdist, wheel):
            shutil.copy(distribution, output)
            digest = hashlib.sha256(distribution.read_bytes()).hexdigest()
            print(f"{output / distribution.name}  {distribution.stat().st_size:,} bytes  sha256 {digest}")
    print(f"not ready to be published: {lacks}" if lacks else "ready to be published")


if __name__ == "__main__":
    sys.exit(main())
