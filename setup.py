"""Everything is in pyproject.toml. This refuses a checkout in which links are text files, as git writes them on Windows unless told."""

from pathlib import Path

from setuptools import setup

for name in ("gemm", "grammar"):
    if not Path(__file__).parent.joinpath("ptxkit", name, "__init__.py").is_file():
        raise SystemExit(f"ptxkit/{name} is no link to the folder {name}, so the package would lack ptxkit.{name}: "
                         "run `git config core.symlinks true`, delete ptxkit/gemm and ptxkit/grammar, and check them out again")

setup()
