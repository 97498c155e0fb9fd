# Every target sets up .venv by itself: Python >= 3.11 with venv is all that is needed.
#   make demo PYTHON=python3.13       choose the Python that .venv is made of
#   make test PY=/path/to/python      use an environment that has everything already; nothing is set up
VENV ?= .venv
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3.14 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v $$p && break; done)
JOBS ?= 2
FOREIGN ?= .venv-foreign
# Without the page of stars that setuptools prints at each editable installation.
PIP_INSTALL = PYTHONWARNINGS=ignore $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

ifdef PY
python_ready :=
demo_ready :=
test_ready :=
else
PY = $(VENV)/bin/python
python_ready = $(VENV)/bin/python
demo_ready = $(VENV)/.demo-ready
test_ready = $(VENV)/.test-ready
endif

.PHONY: demo test test-foreign scoreboard lint docs bench dist clean

demo: $(demo_ready)
	"$(PY)" -m ptxkit.gemm run -m 512 -n 512 -k 512

test: $(test_ready)
	"$(PY)" -m pytest -n $(JOBS)

lint: $(test_ready)
	"$(PY)" -m ruff check .
	"$(PY)" -m mypy
	"$(PY)" -m basedpyright --level error

test-foreign: $(FOREIGN)/.ready
	$(FOREIGN)/bin/python -m pytest -m foreign tests/foreign

scoreboard: $(FOREIGN)/.ready
	$(FOREIGN)/bin/python -m benchmarks.scoreboard

docs: $(test_ready)
	"$(PY)" docs/generate.py
	NO_MKDOCS_2_WARNING=1 "$(PY)" -m mkdocs build --strict --quiet
	@echo "site/index.html"

# The source distribution and the wheel, built of the last commit in a clean folder and tried; RELEASE=1 refuses what is not to be published.
dist: $(python_ready)
	"$(PY)" -m tests.distributions $(if $(RELEASE),--release)

bench: $(demo_ready)
	"$(PY)" -m ptxkit.gemm bench

clean:
	rm -rf $(VENV) $(FOREIGN) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with the venv module was found; name one with PYTHON=..." >&2; exit 2; }
	"$(PYTHON)" -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

$(VENV)/.demo-ready: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable . --group demo
	@touch $@

$(VENV)/.test-ready: pyproject.toml | $(VENV)/bin/python
	$(PIP_INSTALL) --editable . --group dev
	@touch $@ $(VENV)/.demo-ready

$(FOREIGN)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python >= 3.11 with the venv module was found; name one with PYTHON=..." >&2; exit 2; }
	"$(PYTHON)" -m venv $(FOREIGN)
	$(FOREIGN)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(FOREIGN)/bin/python -m pip install --quiet --disable-pip-version-check --editable . --group foreign
	@touch $@
