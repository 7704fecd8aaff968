# Each target does its own set-up and may be run again at any time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The tests start about a thousand processes; each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test clients lint docs coverage wheels bench bench-recall soak format clean help

help: ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml hatch_build.py src/loom/__init__.py src/loom/index/kernels.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[embed,cli,dev]"
	@touch $(READY)

demo: $(READY) ## load a small conversation, ask it questions, show what was recalled and why
	$(BIN)/loom demo

# More workers than cores: some tests wait for processes, leases and the disk. Neighbouring tests share a worker, and so
# the stores that they begin with. Without LOOM_REQUIRE_ALL, tests whose programs could not be installed are skipped.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak"
test: $(READY) clients ## all the tests; about seven minutes on two cores
	@echo "all the tests with $(WORKERS) workers: about seven minutes on two cores; ARGS=tests/recall runs one folder"
	env -u LOOM_REQUIRE_ALL $(PYTEST) $(if $(LOOM_REQUIRE_ALL),--require-all) $(ARGS)

# MCP clients from npm, pinned; they talk to servers on loopback alone. A machine without npm goes on without them.
# The source distribution of the installed anthropic package has the tests of its memory tool.
CLIENTS := .clients
SDK = anthropic-$$($(BIN)/python -c 'from importlib.metadata import version; print(version("anthropic"))').tar.gz
clients: $(READY) ## install the MCP clients, and fetch the sources, that tests use into .clients
	@mkdir -p $(CLIENTS) && cmp -s tests/mcp_server/clients.json $(CLIENTS)/.ready \
	  || { cp tests/mcp_server/clients.json $(CLIENTS)/package.json \
	  && (cd $(CLIENTS) && timeout 420 npm install --silent --no-audit --no-fund --no-progress --no-package-lock) \
	  && cp tests/mcp_server/clients.json $(CLIENTS)/.ready; } \
	  || echo "the MCP clients could not be installed from npm; the tests that use them are skipped"
	@sdk=$(SDK) && test -f $(CLIENTS)/$$sdk \
	  || { name=$${sdk%.tar.gz} && rm -rf $(CLIENTS)/.partial \
	  && timeout 420 $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary anthropic \
	     --dest $(CLIENTS)/.partial "anthropic==$${name#anthropic-}" \
	  && mv $(CLIENTS)/.partial/$$sdk $(CLIENTS)/ && rmdir $(CLIENTS)/.partial; } \
	  || echo "the sources of the anthropic package could not be downloaded; the test that uses them is skipped"

lint: $(READY) ## ruff, format check, mypy --strict, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## the documentation site in docs/_build/html; any warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Lines and branches. The gate is in pyproject.toml.
coverage: $(READY) clients ## all the tests, with the coverage of lines and branches
	$(PYTEST) --cov --cov-report term:skip-covered $(ARGS)

$(VENV)/.release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[release]"
	@touch $@

wheels: $(VENV)/.release ## build the wheels and the source distribution into dist, and try them in empty environments
	$(BIN)/python packaging/wheels.py

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
	  status=$$?; SOAK_SCALE=$(SCALE) $(BIN)/python -m tests.tally build; exit $$status

format: $(READY) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist docs/_build docs/reference .clients src/loom/index/_kernels.so
