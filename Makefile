# Everything that people and CI run. Needs Python 3.11+, make and the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet -c constraints.txt

# One thread a process, and none that spins: processes share few cores.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: quickstart test test-harnesses check format clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "OpenGyre needs Python 3.11 or newer; set PYTHON=…" && false)
	$(PYTHON) -m venv $(VENV)

# torch first and alone: it then comes as the CPU build, and nothing later replaces it.
$(VENV)/.quickstart: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[quickstart]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[dev]'
	touch $@

quickstart: $(VENV)/.quickstart  ## train the bundled policy through Claude Code; ARGS="--seed 1" and so on
	$(BIN)/opengyre quickstart $(ARGS)

test: $(VENV)/.dev  ## all tests but those of test-harnesses
	$(BIN)/pytest -m "not harnesses"

test-harnesses: $(VENV)/.dev  ## real agent programs, installed by npm, against a scripted policy
	$(BIN)/python -m tests.conformance.programs
	$(BIN)/pytest -m harnesses tests/conformance tests/proxy

check: $(VENV)/.dev  ## format, lint, types, layers, tests
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not harnesses"

format: $(VENV)/.dev
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

clean:
	rm -rf $(VENV)
