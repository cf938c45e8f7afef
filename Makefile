# `make help` lists the commands. PYTHON=/path/to/python3.14 selects the interpreter of .venv.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test lint cuda-check clean

VENV := .venv
BIN := $(VENV)/bin
# Written at the end of an installation; if one is newer than its requirements, nothing is installed. Running the program
# takes fewer packages than its tests.
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --retries 10 --timeout 60
PYTHON ?=
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3.13 python3.14 python3)
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
JITTOR := jittor>=1.3.11,<1.3.12
# What depends on the instruction set: native operations, golden files, short trainings; of these a few for processors
# without AVX.
in_tests = $(addprefix tests/test_,$(addsuffix .py,$(1)))
ISA_FEW := $(call in_tests,every_float isa optimizer parity)
ISA_TESTS := $(ISA_FEW) $(call in_tests,fields finite grid hits march native_sampling nerf packed patches rounding \
  short_trainings splat_wander splats volrend)
$(foreach file,$(ISA_TESTS),$(if $(wildcard $(file)),,$(error $(file) is gone: take it out of ISA_TESTS, or name its successor)))
# Over the cores, each file in one process: what a file has trained serves all its tests. All share one cache of Jittor's.
# No process that has died is started again: that can wait forever.
TESTS := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
# Jittor builds itself here, once, where its progress shows: not in each worker, nor where pytest would swallow it.
STARTED := $(BIN)/python -c 'from models.machine.backend import device_info; print(device_info().line())'
DEMO := $(BIN)/python exp_runner.py --conf confs/demo.conf

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: $(STAMP) ## train on the bundled scene (a second call resumes), write mesh, image and metrics to exp/demo
	$(DEMO) --mode train --is_continue
	$(DEMO) --mode evaluate --resolution 256

check: lint ## before a commit: lint and the tests that neither train nor start the program, in a minute and a half
	$(STARTED)
	$(TESTS) -m unit

test: lint ## before a merge: lint and every test
	$(STARTED)
	$(TESTS) -m 'not alone'
	$(BIN)/python -m pytest -m alone
	@# Again as processors without AVX-512 run it, and as those without AVX: the native forms, which take the least compiling.
	for level in $$($(BIN)/python -c 'from models.machine import isa; print(*isa.lower())'); do \
	  [ $$level = x86-64-v2 ] && files='$(ISA_FEW)' || files='$(ISA_TESTS)'; \
	  export NEUS_ISA=$$level; \
	  $(STARTED); \
	  $(TESTS) -k 'not cuda and not reference' $$files; \
	done

lint: $(DEV_STAMP) ## style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

cuda-check: $(DEV_STAMP) ## compile every operation for CUDA and read its machine code; requires nvcc, a minute
	$(BIN)/python -m benchmarks.cuda_check

clean: ## remove .venv and caches, keep the results in exp/
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The next call completes an interrupted installation; a .venv that does not work is created again.
$(STAMP): requirements.txt
	@if ! $(BIN)/python -c '$(SUPPORTED)' 2>/dev/null || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  python=; \
	  for candidate in $(CANDIDATES); do \
	    if "$$candidate" -c '$(SUPPORTED)' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "error: '$(CANDIDATES)': none is Python 3.11 to 3.14; install one, or name it: make PYTHON=/path/to/it" >&2; \
	    exit 2; \
	  fi; \
	  echo "making $(VENV) with $$("$$python" --version)"; \
	  if ! "$$python" -m venv --clear $(VENV); then \
	    echo "error: cannot make $(VENV); on Debian and Ubuntu: apt install python3-venv" >&2; \
	    exit 2; \
	  fi; \
	fi
	@echo "installing requirements.txt into $(VENV) (240 MB of packages the first time)"
	@$(PIP_INSTALL) -r requirements.txt
	@$(PIP_INSTALL) --quiet --no-deps '$(JITTOR)'
	@touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.txt requirements-view.txt requirements-mpi.txt
	@echo "installing requirements-dev.txt into $(VENV) (120 MB more the first time)"
	@$(PIP_INSTALL) -r requirements-dev.txt
	@touch $@
