# Every target makes its own environment under .venv: nothing but Python 3.11+, gcc and make is needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test lint bench paper verify clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml setup.py $(wildcard native/*.c native/*.h native/*.py)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

demo: $(READY)  ## load a million rows into an encrypted database, ask SQL, see what the provider saw
	$(BIN)/python -m benchmarks.demo

test: $(READY)  ## the test suite, without the slow proofs
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

lint: $(READY)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## print every figure that the README and docs quote
	$(BIN)/python -m benchmarks.run

paper: $(READY)  ## reproduce the paper's tables and figures (an hour; `make paper QUICK=1`: a few minutes)
	$(BIN)/python -m benchmarks.paper.run --out paper-output $(if $(QUICK),--quick,--publish)

verify: $(READY)  ## attack every claim, with planted defects, and print a table (docs/verification.md): some 28 minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow --durations=15; tests=$$?; $(BIN)/python -m verify.run $(VERIFY) && exit $$tests

clean:  ## remove everything that the targets made
	rm -rf .venv build dist demo-output verify-output src/*.egg-info src/scumble/*.so
