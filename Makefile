# make demo, make test, make bench: each sets up .venv first, and again only when the dependencies have
# changed. The demo needs requirements.lock alone, the others requirements-all.lock. The others compile the hot
# modules where that is possible (ildm/core/compiled.md); the demo runs interpreted where nobody has, to begin at once.
# PYTHON chooses the interpreter (3.11 or newer); ARGS goes to pytest or to `ildm demo`.

PYTHON ?= python3
UV ?= uv
ARGS ?=
TIME ?= 60
TARGET ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
STAMP_ALL := $(VENV)/.set-up-all
CLASSES := $(VENV)/.classes
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# On every processor, as pip does not. What this Python cannot compile (some packages carry such) stays as it is.
BYTECODE := $(BIN)/python -m compileall -qq -j 0
COMPILE := pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help setup setup-all compiled test unit-tests interpreted-tests spark-tests bench-tests site-tests other-tests long skew lint format demo bench fuzz hunt lock man dist deb clean

help:
	@echo 'make demo          three brokers that behave as one, on this machine (ARGS=--once: a short run, no screen)'
	@echo 'make test          lint, types and tests (ARGS: for pytest)'
	@echo 'make bench         ildm-bench with all it needs, Spark among it (ARGS: what it is to do; none: its help)'
	@echo 'make fuzz          arbitrary bytes for TIME seconds into each part that reads any (TARGET: one; ARGS=--compiled)'
	@echo 'make hunt          new examples for the property tests, in whole passes, for TIME seconds (ARGS: for pytest);'
	@echo '                   what fails is tried again, and it says how to keep it as a test'
	@echo 'make long          more of the same tests: every pair of parameters, larger networks, and all tests of the'
	@echo '                   codec and the core in the interpreted form (ARGS: for pytest)'
	@echo 'make setup-all     what make test and make bench need'
	@echo 'make compiled      the hot modules as machine code, after their sources have changed'
	@echo 'make lint          ruff and mypy alone'
	@echo 'make skew          the last release and this tree in one network (ARGS: for pytest)'
	@echo 'make format        let ruff rewrite what it can'
	@echo 'make man           the manual pages ildm(1) and ildm.yaml(5), into dist/man'
	@echo 'make dist          wheels, source archive and bill of materials (CycloneDX), into dist'
	@echo 'make deb           the Debian package, into dist (configs/debian/README.md)'
	@echo 'make lock          work the lock files out again (needs uv)'
	@echo 'make clean         remove .venv and all that was generated'

setup: $(STAMP) compiled

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'Python 3.11 or newer is needed; say which with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	    { echo '$(PYTHON) cannot make virtual environments: apt-get install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	-@$(BYTECODE) $(VENV)/lib ildm algorithms bench
	@touch $@

setup-all: $(STAMP_ALL) $(CLASSES) compiled

# The hot modules as machine code (ildm/core/compiled.md); what is there and fits its sources stays.
compiled: $(STAMP)
	@$(BIN)/python configs/release/compile.py

$(STAMP_ALL): $(STAMP) requirements-all.lock
	@echo 'installing what tests and benchmarks need, Spark among it: about 1.8 GB, once'
	$(PIP) --require-hashes -r requirements-all.lock
	-@$(BYTECODE) $(VENV)/lib tests
	@touch $@

# Spark starts without, only slower.
$(CLASSES): $(STAMP_ALL)
	-@$(BIN)/python -m ildm_bench.analysis.classes
	@touch $@

# Without ARGS five parts at a time: after lint first what mostly waits (the sites have a processor for four tenths of
# their time), so that what keeps the processors busy fills the gaps. JUNIT_DIR: for reports.
UNIT_TESTS := tests/admin tests/algorithms tests/core tests/fuzz tests/hostile tests/mqtt tests/state
SPARK_TESTS := tests/bench/analysis tests/bench/chaos/test_spark.py tests/bench/report tests/bench/sim
BENCH_TESTS := tests/bench
SITE_TESTS := tests/sites
INTERPRETED_TESTS := tests/core tests/hostile tests/mqtt
PYTEST = $(BIN)/python -m pytest $(if $(JUNIT_DIR),--junitxml=$(JUNIT_DIR)/$@.xml)

ifneq ($(strip $(ARGS)),)
test: lint compiled
	$(PYTEST) $(ARGS)
else
test: $(STAMP_ALL) compiled
	+@$(MAKE) --no-print-directory -k -j5 lint site-tests other-tests bench-tests unit-tests spark-tests interpreted-tests
endif

unit-tests: $(STAMP_ALL)
	$(PYTEST) $(UNIT_TESTS)

# Examples that make test, whose are fixed, does not try; .hypothesis keeps those that fail, for the next hunt.
# That directory is of one machine, and of one version of hypothesis: who finds one makes a test of it.
hunt: $(STAMP_ALL) compiled
	@end=$$(($$(date +%s) + $(TIME))); while :; do \
	    ILDM_HUNT=1 $(BIN)/python -m pytest -m hypothesis $(or $(ARGS),tests) || break; \
	    [ "$$(date +%s)" -lt "$$end" ] || exit 0; \
	done; \
	echo 'make hunt tries again what failed. To keep it for all: write the arguments of "Failing test case" above its test,'; \
	echo 'as @example(...); drawn data and the steps of a state machine become a test of their own.'; \
	exit 1

# All others run in the compiled form where there is one. Here each test that names its cases is carried out once more,
# with each value of each of its parameters; all combinations, and the many examples of properties, are left to make long.
interpreted-tests: $(STAMP_ALL)
	ILDM_COMPILED=0 ILDM_SPREAD=1 $(PYTEST) -m 'not hypothesis and not long' $(INTERPRETED_TESTS)

# What make test leaves out of tests that have many cases alike; an hour or so.
long: $(STAMP_ALL) compiled
	$(PYTEST) -m long tests $(ARGS)
	ILDM_COMPILED=0 $(PYTEST) -m 'not long' $(INTERPRETED_TESTS) $(ARGS)

spark-tests: $(STAMP_ALL) $(CLASSES)
	$(PYTEST) $(SPARK_TESTS)

bench-tests: $(STAMP_ALL)
	$(PYTEST) $(BENCH_TESTS) $(addprefix --ignore=,$(SPARK_TESTS))

site-tests: $(STAMP_ALL)
	$(PYTEST) $(SITE_TESTS)

other-tests: $(STAMP_ALL)
	$(PYTEST) tests $(addprefix --ignore=,$(UNIT_TESTS) $(BENCH_TESTS) $(SITE_TESTS))

# The last release and this tree in one network.
skew: $(STAMP_ALL) compiled
	$(PYTEST) tests/skew $(ARGS)

lint: $(STAMP_ALL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP_ALL)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	$(BIN)/ildm demo $(ARGS)

bench: $(STAMP_ALL) $(CLASSES) compiled
	$(BIN)/ildm-bench $(or $(ARGS),--help)

# With atheris interpreted: compiled code does not tell which way it goes. ARGS=--compiled: without, and quicker.
fuzz: $(STAMP_ALL) compiled
	$(BIN)/python -m tests.fuzz --time $(TIME) $(ARGS) $(TARGET)

man: $(STAMP)
	$(BIN)/python -m ildm.manual dist/man

dist: $(STAMP_ALL) compiled
	HATCH_BUILD_NO_HOOKS=true $(BIN)/hatchling build -d dist
	@if $(BIN)/ildm --version | grep -q '(compiled)'; then \
	    HATCH_BUILD_HOOKS_ENABLE=true $(BIN)/hatchling build -t wheel -d dist/compiled; fi
	$(BIN)/python configs/release/sbom.py requirements.lock pyproject.toml \
	    dist/ildm-$$($(BIN)/hatchling version).cdx.json

deb: $(STAMP)
	configs/debian/build dist

lock:
	$(UV) $(COMPILE) --extra demo --extra build --extra discover pyproject.toml -o requirements.lock
	$(UV) $(COMPILE) --all-extras -c requirements.lock pyproject.toml -o requirements-all.lock

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist ildm/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
