# Two commands matter: `make demo` and `make test`. Both need only Python 3.11 or newer and make.

.DEFAULT_GOAL := help
.PHONY: help demo test test-sglang bench lint format clean

PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
READY := $(VENV)/.ready
PYTEST := $(PY) -m pytest
NATIVE := $(wildcard native/include/ngramspec.h)

# A python that runs, is new enough and can make environments; PYTHON=... overrides the search.
PYTHON ?= $(shell for p in $(PYTHONS); do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

help:
	@echo 'make demo    replay the bundled trace, compare drafters; report.html shows it'
	@echo 'make test    lint, types and tests, with compiled kernels and again without, and the C core'
	@echo 'make test-sglang   serve two small models with the real SGLang on this CPU, in an environment of its own (4 GB)'
	@echo 'make bench   measure, the released rivals too, in an environment of its own (2.5 GB); BENCH=quick is short'
	@echo 'make lint    ruff and mypy alone          make format   apply ruff'
	@echo 'make clean   remove everything the commands above made'

$(READY): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  echo 'ngramspec needs Python 3.11 or newer with its venv module; tried: $(PYTHONS).' >&2; \
	  echo 'On Debian or Ubuntu: apt-get install python3 python3-venv. Elsewhere: make PYTHON=/path/to/python3' >&2; \
	  exit 1; fi
	@[ -x $(PY) ] || { echo 'creating $(VENV) with $(PYTHON)'; $(PYTHON) -m venv $(VENV); }
	@echo 'installing ngramspec and its development extras into $(VENV)'
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	@mkdir -p .demo
	@$(PY) -m ngramspec demo --json .demo/replay.json --report report.html

test: lint
	$(PYTEST) -n 2 --dist worksteal -m 'not native'
	NUMBA_DISABLE_JIT=1 $(PYTEST) -n 2 --dist worksteal -m jit_off
ifneq ($(NATIVE),)
	$(PY) -m ngramspec native build
	$(PYTEST) -n 2 --dist worksteal -m native
endif

# Environments with another numba keep what it compiled for themselves: it would take turns with ours in one folder.
# SGLang has no CPU build: its wheel without dependencies, what of those runs on a CPU, and tests/sglang/stand_in.
SGLANG_VENV := .venv-sglang
SGLANG_PY := $(SGLANG_VENV)/bin/python
SGLANG_READY := $(SGLANG_VENV)/.ready
SGLANG_PIP = $(SGLANG_PY) -m pip install --quiet --disable-pip-version-check

$(SGLANG_READY): tests/sglang/requirements.txt pyproject.toml
	@[ -x $(SGLANG_PY) ] || $(PYTHON) -m venv $(SGLANG_VENV)
	@echo 'installing SGLang for CPU tests into $(SGLANG_VENV)'
	@$(SGLANG_PIP) --requirement tests/sglang/requirements.txt
	@$(SGLANG_PIP) --no-deps sglang==0.5.23 torchvision==0.28.0
	@$(SGLANG_PIP) --no-deps --editable .
	@touch $@

# SGLang compiles its own corpus when it is first used, by g++ and the environment's ninja.
test-sglang: $(SGLANG_READY)
	@command -v g++ >/dev/null || { echo 'make test-sglang needs g++: apt-get install g++' >&2; exit 1; }
	PATH="$(CURDIR)/$(SGLANG_VENV)/bin:$$PATH" NUMBA_CACHE_DIR=$(CURDIR)/$(SGLANG_VENV)/numba \
	  SGLANG_USE_CPU_ENGINE=1 PYTHONPATH=tests/sglang/stand_in $(SGLANG_PY) -m pytest tests/sglang

lint: $(READY)
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary

format: $(READY)
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

# The released rivals in an environment of their own; one that cannot be installed is listed as missing in the results.
BENCH_VENV := .venv-bench
BENCH_PY := $(BENCH_VENV)/bin/python
BENCH_READY := $(BENCH_VENV)/.ready
BENCH_PIP = $(BENCH_PY) -m pip install --quiet --disable-pip-version-check
LLAMA := llama-cpp-python==0.3.36
LLAMA_SDIST := $(BENCH_VENV)/sdist

$(BENCH_READY): benchmarks/requirements-rivals.txt benchmarks/requirements-rivals-alone.txt pyproject.toml
	@[ -x $(BENCH_PY) ] || $(PYTHON) -m venv $(BENCH_VENV)
	@echo 'installing ngramspec and the released rivals into $(BENCH_VENV) (2.5 GB)'
	@$(BENCH_PIP) --editable '.[replay]'
	@$(BENCH_PIP) --requirement benchmarks/requirements-rivals.txt || echo 'some rivals will be missing'
	@grep -v '^#' benchmarks/requirements-rivals-alone.txt | while read one; do \
	  $(BENCH_PIP) --no-deps $$one || echo "$$one will be missing"; done
	@$(BENCH_PY) -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
	  --dest $(LLAMA_SDIST) $(LLAMA) || echo "$(LLAMA) will be missing"
	@touch $@

bench: $(BENCH_READY) $(READY)
	@NUMBA_CACHE_DIR=$(CURDIR)/$(BENCH_VENV)/numba LLAMA_CPP_PYTHON_SDIST=$(LLAMA_SDIST) $(BENCH_PY) -m benchmarks.run $(if $(filter quick,$(BENCH)),--quick)

clean:
	rm -rf $(VENV) .venv-* .bench .demo .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist report.html
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
