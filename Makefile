# Each target does all of its own set-up: a Python >= 3.11 with its venv module, make, and a package index are enough.
.POSIX:
.SUFFIXES:

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What pytest is given: make test PYTEST_ARGS='tests/unit -x'.
# More workers than cores: many tests wait for a server, or for a deadline. A file's tests stay on one, and share what they started;
# in the order of their names, so that the longest file (the crash matrix) does not come last, alone.
PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
# Which mutants (all), and how often `make soak` lets each fault strike.
MUTANTS ?=
ROUNDS ?= 20

.PHONY: help venv demo test crash mutants soak coverage lint format types layers docs wheel check bench clean

help: ## say what there is (the default)
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

venv: $(VENV)/.with-dev ## make the virtual environment for working on the code

demo: $(VENV)/.with-demo ## see a purge planned, run, refused and stopped, on stores of its own
	$(BIN)/python examples/demo.py

test: $(VENV)/.with-test ## run the whole suite, on servers it starts itself
	$(BIN)/python -m pytest $(PYTEST_ARGS)

crash: $(VENV)/.with-test ## kill a run at every single I/O boundary; make test tries each way to be dead once, fewer where a second cause is added
	SAFEDELETE_CRASH=all $(BIN)/python -m pytest tests/crash $(PYTEST_ARGS)

mutants: $(VENV)/.with-test ## break each promise on purpose, and see that a test notices; ends with N of N caught
	$(BIN)/python -m tests.mutants $(MUTANTS)

soak: $(VENV)/.with-test ## race for every lock 200 times, then faults, fuzz and the model for about an hour
	SAFEDELETE_SOAK=200 $(BIN)/python -m pytest tests/locks/test_race.py
	SAFEDELETE_FAULTS=$(ROUNDS) $(BIN)/python -m pytest tests/crash/test_faults.py
	SAFEDELETE_FUZZ_EXAMPLES=20000 $(BIN)/python -m pytest tests/fuzz --timeout 3600
	SAFEDELETE_MODEL_EXAMPLES=3000 SAFEDELETE_MODEL_STEPS=30 $(BIN)/python -m pytest tests/model --timeout 7200

coverage: $(VENV)/.with-dev ## run the suite and say which lines no test has reached; the tests' children are measured too
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/coverage run -m pytest $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

lint: $(VENV)/.with-dev ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.with-dev ## repair style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.with-dev ## check the types: the package's, and its public API's as a user sees them
	$(BIN)/mypy --strict
	if [ -d tests/typing ]; then $(BIN)/mypy --strict tests/typing; fi

layers: $(VENV)/.with-dev ## check that nothing imports upwards
	$(BIN)/lint-imports

docs: $(VENV)/.with-dev ## build the documentation into site/; a warning is an error
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.with-dev ## build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist

check: lint types layers test ## everything a change must pass

bench: $(VENV)/.with-bench ## measure, beside what we compare ourselves with; writes .bench/results.json
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

clean: ## remove whatever these targets have made
	rm -rf $(VENV) .demo .bench dist build site htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache \
		.hypothesis .import_linter_cache

# The stamps are older than pyproject.toml once that changes: then the environment is made anew, so that what is no
# longer asked for is no longer there.
$(VENV)/.made: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "safedelete needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.with-demo: $(VENV)/.made
	$(PIP) --editable '.[demo,postgres]'
	@touch $@

$(VENV)/.with-test: $(VENV)/.made
	$(PIP) --editable '.[test]'
	@touch $@

$(VENV)/.with-dev: $(VENV)/.made
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.with-bench: $(VENV)/.made
	$(PIP) --editable '.[test,bench]'
	@touch $@
