# Everything a newcomer needs starts here: `make demo` and `make test` build the environment by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
# pytest workers: the suite is written for two cores
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help env demo test lint format browser e2e bench bench-warm-up docs images openapi lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9_-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

env: $(READY)  ## build the environment (any python3 >= 3.11; Node, the JRE and the CDK CLI come with it)

$(READY): requirements-build.lock requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else f"{sys.executable} is Python {sys.version.split()[0]}: Python 3.11, 3.12 or 3.13 is needed; name one with: make PYTHON=/path/to/python3")'
	@echo "building the environment in $(VENV) (once, about two minutes)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements-build.lock
	@$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)  ## the main job: local cloud, cdk deploy, three tenants onboarded over HTTP, predictions checked
	@$(BIN)/mme demo

test: $(READY)  ## the test suite (under 10 minutes on 2 cores)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not e2e"

browser:  ## Chromium for the test of the console: installed where it is missing and this is root
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null || \
	  { echo "chromium is not on the PATH: install it, on Debian with 'apt-get install chromium'" >&2; exit 1; }

e2e: $(READY) browser  ## the slow end-to-end tests
	@$(BIN)/python -m pytest -m e2e

lint: $(READY)  ## formatting, style, types, import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests/typing
	@$(BIN)/interrogate --quiet mme_facts mme_constructs lambda/mme_tenancy mme_fleet mme_local mme_cli stacks app.py benchmarks
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/lint-imports

format: $(READY)  ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY)  ## the figures, with their bounds; writes build/bench.json
	@$(BIN)/python -m benchmarks

bench-warm-up: $(READY)  ## what a warm-up avoids and costs, in virtual time: the whole table, and its plots in docs/images
	@$(BIN)/python -m benchmarks.warm_up --docs

docs: $(READY)  ## the documentation, into build/site
	@JSII_NODE="$$($(BIN)/python -c 'from mme_local.toolchain import node; print(node())')" CDK_VALIDATION=false $(BIN)/python -m tests.constructs.guard_rails.table
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

images: $(READY)  ## refresh mme_facts/images.json from the pinned sagemaker-core
	@$(BIN)/python -m mme_cli.images

openapi: $(READY)  ## write the OpenAPI document of the tenant API, and its page, from the code's models
	@$(BIN)/python -m mme_cli.openapi

# Lock files carry hashes and no addresses, and hold for every supported Python.
LOCK := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet
lock: $(READY)  ## resolve the dependencies anew
	@$(BIN)/uv pip compile $(LOCK) --group build -o requirements-build.lock
	@$(BIN)/uv pip compile $(LOCK) pyproject.toml --all-extras --group dev -o requirements.lock
	@for name in tests/e2e/environments/*.in; do $(BIN)/uv pip compile $(LOCK) $$name -o $${name%.in}.lock; done

clean:  ## remove the environment and everything built
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mme cdk.out build dist
