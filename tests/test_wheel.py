"""A wheel and a source distribution are built and installed, next to other packages that are called `grammar` and `gemm`."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.distributions import (
    Refused,
    build,
    call,
    contents,
    environment,
    example,
    expected,
    make_environment,
    project,
    unpack_sdist,
    version_of,
)

ROOT = Path(__file__).parents[1]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "build", "dist", "*.egg-info", "ptxkit-keep")
STRANGERS = {name: {f"{name}/__init__.py": f"WHO = 'another {name}'\n", f"{name}/read.py": "", f"{name}/__main__.py": "print(1)\n"}
             for name in ("grammar", "gemm", "attention")}
"""Files of packages that have names of ours, and modules of those names."""
PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry store(.param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 7;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""

pytestmark = pytest.mark.pure


@dataclass(frozen=True)
class Built:
    """What the build made, and a Python that has nothing but setuptools."""

    wheel: Path
    sdist: Path
    again: Path
    python: Path


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and an empty folder to work in."""

    folder: Path
    empty: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        program = str(self.folder / "bin" / command[0])
        return subprocess.run([program, *command[1:]], cwd=self.empty, env=environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Installs into the environment of a Python: with the pip of the tests' own environment, or a new one's where that has none."""
    has_pip = importlib.util.find_spec("pip") is not None
    own = Path(sys.executable) if has_pip else make_environment(tmp_path_factory.mktemp("pip"), with_pip=True)

    def installed(python: Path, *what: str | Path, cwd: Path) -> None:
        call(own, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python, "install", "--retries", "1", *what, cwd=cwd)

    return installed


@pytest.fixture(scope="session")
def built(pip: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built in a földer")
    python = make_environment(folder / "builder", with_pip=False)
    needs = project(ROOT)["build-system"]["requires"]
    try:
        pip(python, *needs, cwd=folder)
    except Refused as error:
        pytest.skip(f"pip cannot install {', '.join(needs)}, which builds the wheel: {str(error).strip().splitlines()[-1]}")
    shutil.copytree(ROOT, folder / "tree", symlinks=True, ignore=NOT_COPIED)
    sdist = build(python, folder / "tree", folder / "dist", "sdist")
    wheel = build(python, folder / "tree", folder / "dist", "wheel")
    again = build(python, unpack_sdist(sdist, folder / "unpacked"), folder / "again", "wheel")
    return Built(wheel, sdist, again, python)


def sources() -> dict[str, bytes]:
    """Every file of the package, by its name in a wheel."""
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for folder, _, names in os.walk(ROOT / "ptxkit", followlinks=True)
            for name in names if "__pycache__" not in (path := Path(folder, name)).parts}


def stranger(name: str, folder: Path) -> Path:
    """A wheel of another package with that name."""
    about = f"{name}-3.0.dist-info"
    files = {**STRANGERS[name], f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.0\n",
             f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, text in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.writerow((path, f"sha256={digest}", len(text)))
    rows.writerow((f"{about}/RECORD", "", ""))
    wheel = folder / f"{name}-3.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{about}/RECORD": record.getvalue()}.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(scope="session")
def installed(built: Built, pip: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Two strangers are there before ptxkit, one comes after it. Dependencies are those of the tests' own environment."""
    folder, empty = tmp_path_factory.mktemp("installed in a földer"), tmp_path_factory.mktemp("an empty földer")
    python = make_environment(folder / "venv", with_pip=False)
    for wheels in ((stranger("gemm", folder), stranger("attention", folder)), (built.wheel,), (stranger("grammar", folder),)):
        pip(python, "--no-deps", "--no-index", *wheels, cwd=empty)
    dependencies = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site(folder / "venv") / "dependencies.pth").write_text("\n".join(dependencies), encoding="utf-8")
    return Installed(folder / "venv", empty)


def site(folder: Path) -> Path:
    (found,) = (folder / "lib").glob("python*/site-packages")
    return found


def test_a_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    made, ours = contents(built.wheel), sources()
    assert {name.partition("/")[0] for name in made} == {"ptxkit", built.wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    page = {"ptxkit/check/checks.md": (ROOT / "docs" / "checks.md").read_bytes()}
    assert {name: data for name, data in made.items() if name.startswith("ptxkit/")} == ours | page
    assert {"ptxkit/py.typed", "ptxkit/ptx.pyi", "ptxkit/gemm/py.typed", "ptxkit/gemm/cards/h200.json",
            "ptxkit/gemm/cards/fits/h100-80gb-hbm3.json", "ptxkit/grammar/py.typed",
            "ptxkit/grammar/readers/ptx.lark", "ptxkit/gemm/kernels/dense.py", "ptxkit/attention/py.typed",
            "ptxkit/attention/kernels/forward.py", "ptxkit/grammar/isa/wgmma.py"} <= ours.keys()


def test_a_source_distribution_makes_the_same_wheel(built: Built) -> None:
    assert contents(built.again) == contents(built.wheel)


def test_a_source_distribution_holds_the_tests_and_what_they_read(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
        assert all(member.isfile() or member.isdir() for member in archive), "no links: not every system can make them"
    expected = {path.relative_to(ROOT).as_posix() for folder in ("tests", "docs", "examples", "benchmarks", ".github")
                for path in (ROOT / folder).rglob("*") if path.is_file() and not {"__pycache__", "api"} & set(path.parts)}
    expected |= {"pyproject.toml", "LICENSE", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile",
                 ".pre-commit-config.yaml", *sources()}
    assert expected - names == set()
    assert [name for name in names if name.endswith(".pyc")] == []


def test_no_wheel_is_made_of_links_that_are_text_files(built: Built, tmp_path: Path) -> None:
    """So git leaves them where it may not make links."""
    tree = unpack_sdist(built.sdist, tmp_path / "unpacked")
    shutil.rmtree(tree / "ptxkit" / "gemm")
    (tree / "ptxkit" / "gemm").write_text("../gemm", encoding="utf-8")
    with pytest.raises(Refused, match=r"ptxkit/gemm is no link to the folder gemm, so the package would lack ptxkit\.gemm: run"):
        build(built.python, tree, tmp_path / "dist", "wheel")


def test_other_packages_keep_their_names(installed: Installed) -> None:
    done = installed.run("python", "-c", "import gemm, grammar, ptxkit.gemm, ptxkit.grammar; print(gemm.WHO, grammar.WHO, sep=', ')")
    assert (done.stdout, done.stderr) == ("another gemm, another grammar\n", "")
    assert files_of_strangers(installed) == {name: text for files in STRANGERS.values() for name, text in files.items()}


def files_of_strangers(installed: Installed) -> Mapping[str, str]:
    here = site(installed.folder)
    return {path.relative_to(here).as_posix(): path.read_text(encoding="utf-8") for name in STRANGERS for path in (here / name).rglob("*")
            if path.is_file() and path.suffix != ".pyc"}


def test_doctor(installed: Installed) -> None:
    done = installed.run("ptxkit", "doctor", "--json")
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["ok"] else 1)
    states = {check["name"]: check["state"] for check in said["checks"]}
    assert states["python"] == "ok"
    assert "broken" not in states.values()


def test_the_kernel_of_the_readme(installed: Installed, tmp_path: Path) -> None:
    page, file = (ROOT / "README.md").read_text(encoding="utf-8"), tmp_path / "saxpy.py"
    file.write_text(example(page), encoding="utf-8")
    done = installed.run("python", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, expected(page), "")
    done = installed.run("ptxkit", "check", f"{file}:saxpy", "--json")
    assert (done.returncode, json.loads(done.stdout)["findings"], done.stderr) == (0, [], expected(page))


def test_the_version_is_that_of_the_package(installed: Installed, built: Built) -> None:
    assert installed.run("ptxkit", "--version").stdout == f"ptxkit {version_of(ROOT)}\n"
    assert built.wheel.name.startswith(f"ptxkit-{version_of(ROOT)}-")
    assert built.sdist.name == f"ptxkit-{version_of(ROOT)}.tar.gz"


def test_extras_are_those_that_messages_and_pages_name(built: Built) -> None:
    (about,) = (data.decode() for name, data in contents(built.wheel).items() if name.endswith(".dist-info/METADATA"))
    extras = set(re.findall(r"^Provides-Extra: (.+)$", about, re.M))
    assert {"toolchain", "torch", "jax", "cli", "plot", "dtypes", "notebook"} == extras
    texts = [data.decode() for name, data in sources().items() if name.endswith(".py")]
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    named = {extra for text in (*texts, *pages) for extra in re.findall(r"ptxkit\[(\w+)\]", text)}
    assert extras >= named
    table = dict(re.findall(r"^\| `\[(\w+)\]` \| (.+) \|$", pages[0], re.M))
    assert table.keys() == extras, "the README says what each is for"


@pytest.mark.parametrize(("framework", "oldest"), [("torch", "2.11"), ("jax", "0.10")])
def test_an_adapter_without_its_framework_names_the_extra(installed: Installed, framework: str, oldest: str) -> None:
    program = (f"import sys; sys.modules[{framework!r}] = None\n"
               f"try:\n    import ptxkit.{framework}\nexcept ImportError as error:\n    print(error)")
    due = f"ptxkit.{framework} needs {framework} {oldest} or newer: `pip install 'ptxkit[{framework}]'`\n"
    assert installed.run("python", "-c", program).stdout == due
    (need,) = project(ROOT)["project"]["optional-dependencies"][framework][:1]    # type: ignore[index]
    assert need == f"{framework}>={oldest}"


def test_emit(installed: Installed) -> None:
    done = installed.run("ptxkit", "emit", "ptxkit.gemm.kernels.dense:gemm")
    assert (done.returncode, done.stderr) == (0, "")
    assert ".visible .entry gemm(" in done.stdout
    assert "wgmma.mma_async" in done.stdout


def test_check(installed: Installed, tmp_path: Path) -> None:
    file = tmp_path / "store.ptx"
    file.write_text(PTX, encoding="utf-8")
    done = installed.run("ptxkit", "check", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    file.write_text(PTX.replace("%r1, 7", "%r9, 7"), encoding="utf-8")
    done = installed.run("ptxkit", "check", str(file))
    assert done.returncode == 1
    assert "error [undefined-name]" in done.stdout


def test_the_fixture_for_pytest_and_the_help_of_rules(installed: Installed, tmp_path: Path) -> None:
    for path in (ROOT / "examples" / "ci").glob("*.py"):
        shutil.copy(path, tmp_path / path.name)
    done = installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    assert "5 passed" in done.stdout, done.stdout + done.stderr
    kernels = tmp_path / "kernels.py"
    kernels.write_text(kernels.read_text(encoding="utf-8").replace("    bar.sync(0)\n", "", 1), encoding="utf-8")
    done = installed.run("ptxkit", "check", f"{kernels}:reverse", "--sarif", "-")
    (rule,) = json.loads(done.stdout)["runs"][0]["tool"]["driver"]["rules"]
    assert "bar.sync 0;" in rule["help"]["markdown"]


def test_a_product_on_the_cpu_device(installed: Installed) -> None:
    done = installed.run("python", "-m", "ptxkit.gemm", "run", "-m", "128", "-n", "128", "-k", "128", "--device", "sim")
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout
    assert "verdict: clean" in done.stdout
    assert list(installed.empty.iterdir()) == []


def test_a_wheel_that_was_not_unpacked(built: Built, tmp_path: Path) -> None:
    """Kernels run from the archive; products say that they need files."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "saxpy.py").write_text(example(page), encoding="utf-8")

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False,
                              env={**environment(), "PYTHONPATH": str(built.wheel)})

    done = ran("saxpy.py")
    assert (done.returncode, done.stdout) == (0, expected(page)), done.stderr
    done = ran("-c", "import ptxkit; print(ptxkit.__file__)")
    assert Path(done.stdout.strip()).parents[1] == built.wheel, "it is the archive that is tried"
    for command in (["run", "--device", "sim"], ["explain"]):
        done = ran("-m", "ptxkit", "gemm", *command, "-m", "64", "-n", "64", "-k", "64")
        assert done.returncode == 1
        said = done.stderr.splitlines()[-1]
        assert "ptxkit.gemm reads tables that are files, and " in said
        assert said.endswith(" is in an archive: install the wheel with pip, or unpack it")
