"""Everything is in pyproject.toml, but for two things: a checkout in which links are text files, as git writes them on Windows unless
told, is refused, and the page of the static rules goes into the wheel, where `ptxkit check --sarif` reads it.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent

for name in ("attention", "gemm", "grammar"):
    if not HERE.joinpath("ptxkit", name, "__init__.py").is_file():
        raise SystemExit(f"ptxkit/{name} is no link to the folder {name}, so the package would lack ptxkit.{name}: "
                         "run `git config core.symlinks true`, "
                         "delete ptxkit/attention, ptxkit/gemm and ptxkit/grammar, and check them out again")


class BuildWithPage(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file(str(HERE / "docs" / "checks.md"), str(Path(self.build_lib) / "ptxkit" / "check" / "checks.md"))


setup(cmdclass={"build_py": BuildWithPage})
