# `make demo` and `make test` need Python 3.11+ and make; they create .venv and install everything they use.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Pinned. Where pip would bring several gigabytes of CUDA packages (Linux), the small CPU build is taken by
# make TORCH='torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu'
TORCH  ?= torch==2.13.0
STAMP  := $(VENV)/.installed

export TOKENIZERS_PARALLELISM := false

.PHONY: demo serve test test-fresh test-lowest fuzz lint format bench clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fada needs Python 3.11 or newer, found $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[all,dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/fada warm
	$(BIN)/fada demo

serve: $(STAMP)
	$(BIN)/fada serve

# Two processes, each with whole files, in the order of tests/conftest.py.
TWO := -n 2 --dist loadfile --no-loadscope-reorder
test: $(STAMP) lint
	$(BIN)/python -m pytest $(TWO)

# The quick tests with the oldest versions that pyproject.toml allows (torch: the pinned one), in a place of their own.
# torch comes without what it needs, for that would come in its newest version and stay; so would a typer for typer-slim.
LOWEST := .venv-lowest
test-lowest:
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -q --disable-pip-version-check --no-deps $(TORCH)
	$(LOWEST)/bin/python -m pip install -q --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct "$(firstword $(TORCH))" \
	  "typer-slim>=0.19,<0.22" -e ".[all,dev]"
	$(LOWEST)/bin/python -m pytest $(TWO) -m "not slow and not browser" $(TESTS)

# The README's first screen where nothing but the plain wheel is installed, in a place of its own.
FRESH := .venv-fresh
test-fresh:
	rm -rf $(FRESH)
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip wheel -q --disable-pip-version-check --no-deps . -w $(FRESH)/wheel
	$(FRESH)/bin/python -m pip install -q --disable-pip-version-check $(FRESH)/wheel/fada-*.whl
	du -sh $(FRESH)
	$(FRESH)/bin/python -I tests/support/first_screen.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Twenty actors, workers and drivers of a cluster are killed; then new damaged files for every reader, HOURS long, each round with new cases.
HOURS ?= 1
fuzz: $(STAMP)
	FADA_KILLS=20 $(BIN)/python -m pytest tests/jobs/test_cluster.py
	end=$$(($$(date +%s) + $(HOURS) * 3600)); first=$$(date +%s); while [ $$(date +%s) -lt $$end ]; do \
	  FADA_FUZZ_FIRST=$$first FADA_FUZZ_CASES=2000 $(BIN)/python -m pytest tests/fuzz -n 2 || exit 1; \
	  first=$$((first + 2000)); done

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# One table of ratios of CPU time, measured in turns; make bench LINES=lines.parquet takes real lines instead of made-up ones.
bench: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[bench]"
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps pyctcdecode pygtrie
	$(BIN)/python -m benchmarks.table $(if $(LINES),--lines $(LINES))

clean:
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache
