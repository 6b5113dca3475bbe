# make report   ingest the sample traces (TRACES=folder for yours) and write one CSV a view
# make test     run the tests
# make mutants  put small faults into a copy of the sources and see that tests catch them; ONLY=name for one of tests/mutants
# make torture  wrong files and killed writers for MINUTES (10), from a seed that is printed, or from SEED
# make check    lint, types, documentation and its links, import direction, names
# make bench    the speed and memory claims, measured here
# make record   record a grid of real runs on this machine's GPU into tests/recordings/grid (PYTHON_WITH_TORCH=...)
# make validate predict recorded runs of a small GPT from one another, on this machine's CPU and GPU (PYTHON_WITH_TORCH=...)
# make docs     write the generated pages again, and build the site of docs/ into build/site
#
# All that is needed is Python 3.11 or newer; the first run makes an environment in .venv and installs into it.

SHELL := /bin/bash
.DEFAULT_GOAL := report
.PHONY: report test mutants torture check bench record validate docs clean

# Processes keep the bytecode of modules, whatever the shell says: without it each compiles up to 400 of them, 0.3 s.
export PYTHONDONTWRITEBYTECODE :=

TRACES ?= data/traces
BUILD := build/$(notdir $(abspath $(TRACES)))
CORPUS ?= $(BUILD)/corpus
OUTPUT ?= $(BUILD)/report

VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The first Python on the path that is new enough.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

# Any warning fails: a link that leads nowhere, a page that no menu has.
SITE = $(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site

report: $(VENV)/.installed
	@status=0; \
	$(BIN)/lumos-df ingest $(TRACES) --corpus $(CORPUS) || status=$$?; \
	$(BIN)/lumos-df report --corpus $(CORPUS) --output $(OUTPUT) && $(BIN)/lumos-df report --corpus $(CORPUS) && exit $$status

test: $(VENV)/.installed-dev
	@$(BIN)/python -m tools.compile_kernels
	@$(BIN)/python -m pytest --quiet -n auto --dist worksteal

mutants: $(VENV)/.installed-dev
	@$(BIN)/python -m tools.mutants $(if $(ONLY),--only $(ONLY))

MINUTES ?= 10
torture: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.torture $(MINUTES) $(SEED)
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=build/boundscheck $(BIN)/python -m tests.torture $$(($(MINUTES) / 4)) $(SEED)

check: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tools.docs --check
	@$(BIN)/python -m tools.imports
	@$(BIN)/python -m tools.names
	@$(SITE)

bench: $(VENV)/.installed-dev
	@$(BIN)/python -m venv .venv-peers && .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check \
		'HolisticTraceAnalysis>=0.5,<1' || echo "no HolisticTraceAnalysis to compare with" >&2
	@PEERS=$$(ls $(CURDIR)/.venv-peers/bin/python) $(BIN)/python -m tests.bench

PYTHON_WITH_TORCH ?= $(BIN)/python
record: $(VENV)/.installed
	@PYTHONPATH=$(CURDIR) $(PYTHON_WITH_TORCH) -m tools.record_grid tests/recordings/grid

validate: $(VENV)/.installed
	@$(BIN)/python -m tools.validate build/validate --python $(PYTHON_WITH_TORCH)

docs: $(VENV)/.installed-dev
	@$(BIN)/python -m tools.docs
	@$(SITE)
	@echo "build/site/index.html"

clean:
	@rm -rf build dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "lumos-df needs Python 3.11 or newer, and none is on the PATH; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu install the package python3-venv" >&2; rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing lumos-df into $(VENV)" >&2
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing lumos-df and its development tools into $(VENV)" >&2
	@$(INSTALL) --editable '.[dev,docs]'
	@touch $@ $(VENV)/.installed
