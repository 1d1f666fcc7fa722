# One word a task. Each does its own set-up: a fresh Debian, Ubuntu or macOS with Python >= 3.11 (with venv), git and make is enough.

VENV    ?= .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -P -m pip --quiet --disable-pip-version-check --no-input
PYTEST  := $(BIN)/pytest
WANTED  := python3.13 python3.12 python3.11 python3.14 python3
CAN     := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ROOMS   := agent call exporters policies proxy
RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev

# The programs that `make bench` measures with are of C, and so some of their tests need a compiler.
NO_CC   := $(shell command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || echo and not compiler)
HALF    := tests/bench tests/call tests/house tests/proxy
SHORT   := not soak and not journey $(NO_CC)

.PHONY: help demo test lint types imports tests soak disk journeys compose-test phoenix test-all bench lock docs coverage clean

help:
	@echo "make demo       see the gateway at work: no key, no configuration, no network"
	@echo "make test       everything that must hold: style, types, imports, tests, the built wheel"
	@echo "make soak       the long forms of the tests (up to an hour)"
	@echo "make disk       rows on a disk that fills up (root on Linux: it mounts one)"
	@echo "make journeys   foreign clients, each in an environment of its own"
	@echo "make compose-test   docker-compose.yml brought up, called and looked at (needs Docker)"
	@echo "make phoenix    a real Phoenix reads our spans (half a gigabyte, in an environment of its own)"
	@echo "make test-all   make test on every Python >= 3.11 found here"
	@echo "make bench      what a call costs, beside nginx and a direct connection"
	@echo "make coverage   the tests again, with the lines they miss"
	@echo "make docs       write the generated pages again"
	@echo "make lock       pin the newest versions that pyproject.toml allows"
	@echo "make clean      remove what these made"
	@echo
	@echo "One test: make $(DEV), then $(PYTEST) tests/call/test_chain.py (never python -m pytest)."

demo: $(RUNTIME)
	@$(BIN)/spangate demo

test: lint types imports tests

lint: $(DEV)
	@echo "== style"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted; mend with: $(BIN)/ruff format ."; exit 1; }

types: $(DEV) .types
	@echo "== types"
	@$(BIN)/mypy

imports: $(DEV) .types
	@echo "== imports"
	@said=`PYTHONPATH=.types $(BIN)/lint-imports --no-cache` || { echo "$$said"; exit 1; }

tests: $(DEV) .types
	@echo "== tests, in two halves at once, since most of them wait"
	@said=`mktemp`; $(PYTEST) -q -m "$(SHORT)" $(HALF) >$$said 2>&1 & half=$$!; trap 'kill $$half' INT TERM; \
	  $(PYTEST) -q -m "$(SHORT)" $(addprefix --ignore=,$(HALF)) || failed=1; \
	  wait $$half || failed=1; cat $$said; rm -f $$said; [ -z "$$failed" ]

soak: $(DEV) .types
	@$(PYTEST) -q -m "soak and not mount $(NO_CC)" --timeout 3600 --hypothesis-profile soak

disk: $(DEV) .types
	@$(PYTEST) -q -m mount --timeout 600 tests/exporters

journeys: $(DEV) .types
	@SPANGATE_JOURNEYS=1 $(PYTEST) -q -m journey --timeout 1200 tests/journeys

compose-test: $(DEV) .types
	@$(PYTEST) -q --timeout 1200 tests/journeys/compose.py

phoenix: $(DEV) .types
	@[ -x .venv-phoenix/bin/phoenix ] || { echo "== installing Phoenix"; $(BIN)/python -P -m venv .venv-phoenix \
	  && .venv-phoenix/bin/pip --quiet --disable-pip-version-check install arize-phoenix; }
	@SPANGATE_PHOENIX=.venv-phoenix/bin/phoenix $(PYTEST) -q --timeout 600 tests/journeys/phoenix.py

coverage: $(DEV) .types
	@$(BIN)/coverage run $(PYTEST) -q -m "$(SHORT)" && $(BIN)/coverage report --show-missing --skip-covered

test-all:
	@ran=0; for minor in 11 12 13 14; do \
	  if python3.$$minor -c "$(CAN)" 2>/dev/null; then \
	    echo "== Python 3.$$minor"; ran=1; \
	    $(MAKE) --no-print-directory test VENV=.venv-3.$$minor WANTED=python3.$$minor || exit 1; \
	  fi; \
	done; [ $$ran = 1 ] || { echo "No Python >= 3.11 found."; exit 1; }

bench: $(DEV)
	@$(BIN)/python -P bench/bench.py

docs: $(DEV)
	@if [ -f docs/generate.py ]; then $(BIN)/python -P docs/generate.py; else echo "No page is generated."; fi

# The pins come with the hashes of every file that the index has for them, and name no index. uv lives in a folder of its own.
lock: $(BIN)/python
	@[ -x .venv-lock/bin/uv ] || { $(BIN)/python -P -m venv .venv-lock && .venv-lock/bin/pip --quiet --disable-pip-version-check install uv; }
	@set -e; compile() { .venv-lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" "$$@"; }; \
	echo "== lock/build.txt";   echo "setuptools>=83" | compile - --output-file lock/build.txt; \
	echo "== lock/runtime.txt"; compile pyproject.toml --output-file lock/runtime.txt; \
	echo "== lock/dev.txt";     compile pyproject.toml --group dev --constraints lock/build.txt --constraints lock/runtime.txt --output-file lock/dev.txt

clean:
	@rm -rf .venv .venv-* .types build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	@find $(ROOMS) tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ---------------------------------------------------------------------------------------------------------

$(BIN)/python:
	@for python in $(WANTED); do \
	  if $$python -c "$(CAN)" 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "spangate needs Python >= 3.11 with venv (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)."; exit 1; \
	fi; \
	echo "== $(VENV) with `$$found --version`" && $$found -P -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# An editable installation (never editable_mode=compat) builds with the pinned setuptools, not with whatever is newest.
$(RUNTIME): $(BIN)/python pyproject.toml __init__.py lock/build.txt lock/runtime.txt
	@echo "== installing what spangate runs on (about a minute, the first time)"
	@$(PIP) install --require-hashes -r lock/build.txt -r lock/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUNTIME) lock/dev.txt
	@echo "== installing what its tests need"
	@$(PIP) install --require-hashes -r lock/dev.txt
	@touch $@

# The package under its import name, for tools that look at files: mypy, import-linter.
.types: __init__.py Makefile
	@mkdir -p .types/spangate
	@for part in __init__.py py.typed $(ROOMS); do ln -sfn ../../$$part .types/spangate/$$part; done
	@touch $@
