# Each target does its own set-up and may be run again at any time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench bench-recall soak format clean help

help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml hatch_build.py src/loom/__init__.py src/loom/index/kernels.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[embed,cli,dev]"
	@touch $(READY)

demo: $(READY) ## load a small conversation, ask it questions, show what was recalled and why
	$(BIN)/loom demo

test: $(READY) ## all the tests
	$(BIN)/python -m pytest -n 2 -m "not soak" $(ARGS)

lint: $(READY) ## ruff, format check, mypy --strict, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What is measured against, and needed for nothing else.
$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[bench]"
	@touch $@

bench: $(VENV)/.bench ## every benchmark, figures printed as ratios
	$(BIN)/python -m benchmarks $(ARGS)

bench-recall: $(VENV)/.bench ## evidence recall in both languages; ARGS="--data locomo10.json" adds LoCoMo
	$(BIN)/python -m benchmarks.recall --out build/recall $(ARGS)

# 1 tries every system call, and takes several hours on two cores.
SCALE ?= 0.3

soak: $(READY) ## long crash, stress, fault and hostile runs; figures in build/soak.json
	@mkdir -p build && rm -f build/soak.jsonl build/soak.xml
	@SOAK_SCALE=$(SCALE) SOAK_TALLY=$(CURDIR)/build/soak.jsonl HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n 2 -m soak \
	  --timeout 14400 --junitxml build/soak.xml $(ARGS); \
	  status=$$?; $(BIN)/python -m tests.tally build; exit $$status

format: $(READY) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/loom/index/_kernels.so
