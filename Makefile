# `make demo` and `make test` need Python 3.11+ and make; they create .venv and install everything they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The CPU build, pinned: an unpinned torch brings several gigabytes of CUDA packages on Linux.
TORCH  ?= torch==2.13.0
STAMP  := $(VENV)/.installed

export TOKENIZERS_PARALLELISM := false

.PHONY: demo test lint format bench clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fada needs Python 3.11 or newer, found $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[all,dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/fada demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[bench]"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps pyctcdecode pygtrie
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
