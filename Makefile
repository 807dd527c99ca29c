# Two commands matter: `make train` and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
RUN ?= runs/calculator

export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE ?= 1

.PHONY: train test lint check benchmark clean

train: $(STAMP)  ## Train the default agent: demonstrations, then reinforcement learning.
	$(BIN)/hexad train recipes/calculator.yaml --run $(RUN)

test: $(STAMP)  ## Run the tests; what is skipped is named.
	$(BIN)/pytest -n $(WORKERS) -rs $(PYTEST_ARGS)

lint: $(STAMP)  ## Style, types, import contracts, sizes.
	$(BIN)/ruff check src tests examples benchmarks tools
	$(BIN)/ruff format --check src tests examples benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_size.py
	$(BIN)/python tools/make_method_pages.py --check

check: lint test

benchmark: $(STAMP)  ## Ratios against peers, see benchmarks/README.md.
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,benchmark]'
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/step.py

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt 'torch==2.13.0'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
