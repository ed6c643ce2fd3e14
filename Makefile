# Two commands do everything: `make run` (a conversation) and `make test` (all tests).
# Both make their own virtual environment in .venv; nothing else need be installed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check --quiet install
# $(call install,PYTHON,WHAT), for all that is only developers': what takes pip a minute takes uv
# seconds. pip where uv cannot: uv does not read pip's configuration.
install = { $(BIN)/uv pip install --quiet --python $(1) $(2) 2>/dev/null || \
	$(BIN)/python -m pip --disable-pip-version-check --quiet --python $(1) install $(2); }
ROOT ?= .remit
# Four for each of two cores: tests wait a lot, for disks, servers and each other.
WORKERS ?= 8

# Set, it would make every process of every test compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test coverage soak test-clients test-programs test-mcp clients development test-live lint bench bench-gateways bench-agents packages lock audit docs release clean

run: $(VENV)/.run  ## a conversation through the whole stack
	@$(BIN)/remit model pull --if-needed --root $(ROOT)
	@$(BIN)/remit chat --root $(ROOT)

test: $(VENV)/.dev $(VENV)/.oracles  ## every test
	@$(BIN)/remit model pull smollm2-135m || echo "Tests that need the local model will be skipped."
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

coverage: $(VENV)/.dev $(VENV)/.oracles  ## every test, and the lines that none reaches
	@rm -f .coverage*
	@status=0; \
	$(BIN)/python -m pytest -p tests.support.measuring -n $(WORKERS) --dist worksteal || status=$$?; \
	$(BIN)/python -m slipcover --merge .coverage.*.json --out .coverage.json --skip-covered || status=$$(( status ? status : 1 )); \
	exit $$status

# docs/contributing.md lists what a soak runs. The simulation and the traffic come after the tests.
SIMULATED_RUNS := 10000
TRAFFIC_MINUTES := 90

soak: $(VENV)/.dev $(VENV)/.oracles  ## every case of the large matrices, of which `make test` runs a sample
	@REMIT_SOAK=1 $(BIN)/python -m pytest -m soak -n $(WORKERS) --dist worksteal --timeout 7200
	@$(BIN)/python -m tests.simulation --runs $(SIMULATED_RUNS)
	@$(BIN)/python -m benchmarks.resident $(TRAFFIC_MINUTES)

# Other people's clients, each against a strict provider and through Remit (tests/clients).
CLIENTS := current openai2 crewai agents aider mcp node suites

test-clients: test-programs test-mcp  ## other people's clients, directly and through Remit

test-programs: clients
	@$(BIN)/python -m tests.clients

test-mcp: clients
	@$(BIN)/python -m tests.mcp

development: $(VENV)/.dev $(VENV)/.oracles $(VENV)/.release $(VENV)/.docs  ## the environments of all that is not a client

clients: $(VENV)/.dev $(CLIENTS:%=$(VENV)/clients/.%)  ## the clients' environments

test-live: $(VENV)/.dev  ## the acceptance conversation against the real Anthropic API
	@if [ -n "$$ANTHROPIC_API_KEY" ]; then $(BIN)/python -m pytest -m live tests/live; \
	else echo "NOT RUN: ANTHROPIC_API_KEY is not set, so nothing was asked of the real API."; fi

lint: $(VENV)/.dev  ## static checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/doors.py .
	$(BIN)/python -m tools.english

bench: $(VENV)/.dev  ## benchmarks; figures go to benchmarks/RESULTS.md by hand
	$(BIN)/python -m benchmarks

bench-gateways: $(VENV)/.dev  ## Remit beside other gateways, which are installed on first use
	$(BIN)/python -m benchmarks.gateways

bench-agents: $(VENV)/.dev  ## Remit beside other agent runtimes, which are installed on first use
	$(BIN)/python -m benchmarks.agents

packages: $(VENV)/.dev  ## recompute the hashes of the shipped packages, and what follows from them
	$(BIN)/python -m tests.packages.refresh

# One file for each environment: every version and hash, for every system and Python. Versions
# stay as they are while they satisfy pyproject.toml; UPGRADE=--upgrade takes the newest.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate $(UPGRADE) pyproject.toml
lock: $(BIN)/uv  ## rewrite requirements/ from pyproject.toml
	$(LOCK) -o requirements/run.txt
	$(LOCK) -c requirements/run.txt --extra dev -o requirements/dev.txt
	$(LOCK) -c requirements/run.txt $(if $(UPGRADE),,-c requirements/local.txt) --extra local \
	| sed -n '/^xllamacpp/,/[^\\]$$/p' > requirements/local.new && mv requirements/local.new requirements/local.txt
	$(LOCK) -c requirements/dev.txt --extra oidc --extra postgres --extra otel -o requirements/server.txt
	$(LOCK:pyproject.toml=) -c requirements/dev.txt --group build -o requirements/build.txt
	$(LOCK:pyproject.toml=) -c requirements/dev.txt --group build --group release -o requirements/release.txt
	$(LOCK:pyproject.toml=) -c requirements/dev.txt --group docs -o requirements/docs.txt

audit: $(VENV)/.release  ## known vulnerabilities of what is locked
	@$(VENV)/release/bin/python -m tools.release audit

VERSION ?= latest
docs: $(VENV)/.dev $(VENV)/.docs  ## the documentation as a site in site/VERSION, every link checked
	@$(BIN)/python -m tools.site.document $(VENV)/openapi.json
	@$(VENV)/docs/bin/python -m tools.site --openapi $(VENV)/openapi.json --version $(VERSION)

release: $(VENV)/.release $(VENV)/.dev  ## wheel, source archive, bootstrap, SBOM, sums and provenance into dist/; KEY=FILE signs
	@rm -rf dist
	@$(VENV)/release/bin/python -m tools.release build --python $(abspath $(BIN)/python) $(if $(KEY),--key $(KEY))
	@$(VENV)/release/bin/python -m tools.release verify

clean:  ## remove what make made; never a root
	rm -rf $(VENV) .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BIN)/uv: | $(BIN)/python
	@sed -n '/^uv==/,/[^\\]$$/p' requirements/release.txt > $(VENV)/uv.txt
	@$(BIN)/python $(PIP) --require-hashes -r $(VENV)/uv.txt || echo "uv could not be installed; pip takes longer."

# The local model's runtime is optional weight: where it cannot be installed the rest works.
# Hash mode cannot take the project itself, so that comes in a step of its own.
HASHED := --require-hashes -r requirements/build.txt
ITSELF := --no-deps --no-build-isolation -e .
EXTRAS := -e extras/remit-index -e extras/remit-interop

$(VENV)/.run: pyproject.toml requirements/build.txt requirements/run.txt requirements/local.txt | $(BIN)/python
	$(BIN)/python $(PIP) $(HASHED) -r requirements/run.txt
	$(BIN)/python $(PIP) $(ITSELF)
	@$(BIN)/python $(PIP) --require-hashes -r requirements/local.txt || echo "The local model's runtime could not be installed; set ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL instead."
	@touch $@

$(VENV)/.dev: pyproject.toml extras/remit-index/pyproject.toml extras/remit-interop/pyproject.toml requirements/build.txt requirements/dev.txt requirements/local.txt | $(BIN)/uv
	@$(call install,$(BIN)/python,$(HASHED) -r requirements/dev.txt)
	@$(call install,$(BIN)/python,$(ITSELF) $(EXTRAS))
	@$(call install,$(BIN)/python,--require-hashes -r requirements/local.txt) || echo "The local model's runtime could not be installed; tests that need it will be skipped."
	@touch $@ $(VENV)/.run

# What makes and examines releases, apart from what is released.
$(VENV)/.release: requirements/release.txt | $(BIN)/uv
	@$(PYTHON) -m venv $(VENV)/release
	@$(call install,$(VENV)/release/bin/python,--require-hashes -r $<)
	@touch $@

# What makes the documentation's site.
$(VENV)/.docs: requirements/docs.txt | $(BIN)/uv
	@$(PYTHON) -m venv $(VENV)/docs
	@$(call install,$(VENV)/docs/bin/python,--require-hashes -r $<)
	@touch $@

# Other people's verifiers, which only tests use, in an environment of their own. One says that it
# wants a newer Python than ours, which pip alone overlooks.
$(VENV)/.oracles: tests/oracles/requirements.txt $(wildcard tests/oracles/*.txt) | $(VENV)/.dev
	@$(PYTHON) -m venv $(VENV)/oracles
	@{ $(call install,$(VENV)/oracles/bin/python,-r tests/oracles/pymerkle.txt -r tests/oracles/sigstore.txt -r tests/oracles/learning.txt -r tests/oracles/receipts.txt) && \
	$(VENV)/oracles/bin/python $(PIP) --ignore-requires-python -r $<; } || echo "Other people's verifiers could not be installed; tests that need them will be skipped."
	@touch $@

# Other people's clients, which only tests use: environments of their own, since their needs
# contradict each other, and Node's where there is npm; that of frameworks for agents has Remit in it
# too, and that of suites the SDKs' own tests. What cannot be installed is skipped.
$(VENV)/clients/.node: tests/clients/node/package.json tests/clients/node/package-lock.json | $(VENV)/.dev
	@mkdir -p $(VENV)/clients/node && cp $^ $(VENV)/clients/node
	@{ command -v npm >/dev/null && npm install --prefix $(VENV)/clients/node --no-audit --no-fund --silent; } || { \
	rm -rf $(VENV)/clients/node/node_modules; echo "Node's clients could not be installed; their tests will be skipped."; }
	@touch $@

$(VENV)/clients/.%: tests/clients/requirements/%.txt | $(VENV)/.dev
	@$(PYTHON) -m venv --without-pip $(VENV)/clients/$*
	@$(call install,$(VENV)/clients/$*/bin/python,--no-deps -r $<) || { \
	rm -rf $(VENV)/clients/$*; echo "The clients of $< could not be installed; their tests will be skipped."; }
	@$(if $(filter agents,$*),[ ! -d $(VENV)/clients/$* ] || $(call install,$(VENV)/clients/$*/bin/python,--no-deps -e . -e extras/remit-interop))
	@$(if $(filter suites,$*),[ ! -d $(VENV)/clients/$* ] || $(BIN)/python -m tests.clients.suites.sources $(VENV)/clients/$*/sources || { \
	rm -rf $(VENV)/clients/$*; echo "The SDKs' own suites could not be fetched; they will be skipped."; })
	@touch $@
