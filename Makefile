# make test, make demo: each sets up .venv first, and again only when the dependencies have changed.
# PYTHON chooses the interpreter (3.11 or newer); ARGS goes to pytest or to `ildm demo`.

PYTHON ?= python3
UV ?= uv
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up

.PHONY: help setup test lint format demo lock clean

help:
	@echo 'make demo          three brokers that behave as one, on this machine (ARGS=--once: a short run, no screen)'
	@echo 'make test          lint, types and tests (ARGS: for pytest)'
	@echo 'make lint          ruff and mypy alone'
	@echo 'make format        let ruff rewrite what it can'
	@echo 'make lock          work requirements.lock out again (needs uv)'
	@echo 'make clean         remove .venv and all that was generated'

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'Python 3.11 or newer is needed; say which with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo '$(PYTHON) cannot make virtual environments: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	$(BIN)/ildm demo $(ARGS)

lock:
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --all-extras \
	    --no-header pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
