# `make test` on a fresh machine is all that a contributor needs. CI runs more: see .ci/run.
PYTHON ?=
# Tests at a time: more than a small machine has cores, because tests with brokers, servers and fleets mostly wait.
WORKERS ?= 5
# Processes at a time for `slow`, `exhaustive`, `mutants` and `matrix`, which compute all the time.
JOBS ?= 2
ARGS ?=
BIN := .venv/bin
SLOW_FIRST := --durations=10 --timeout=0
SOURCES := shared device aggregator simulator cli tests
LINTED := $(SOURCES) scripts hatch_build.py

MINUTES ?= 60

.PHONY: help test tests test-services services servers docs-test diagrams figures site release check lint types format lock slow exhaustive chaos mutants matrix coverage demo tools clean

help:
	@echo "make test        runs lint, types and tests (also under MicroPython), as CI does first; .ci/run runs all of CI"
	@echo "make test-services   installs PostgreSQL and other servers, and runs the tests that need them"
	@echo "make docs-test   runs what the guides show and compares it;  make site  builds the guides into out/site"
	@echo "make release     builds wheels and sdists, checks them and tries them in a fresh environment; uploads nothing"
	@echo "make check       runs lint and types alone;  make format  lets ruff and Biome fix what they can"
	@echo "make lock        writes requirements-dev.txt: the newest versions of all packages for development"
	@echo "make slow        runs the tests marked slow;  make exhaustive  the proofs by enumeration"
	@echo "make chaos       runs a soak test with faults for MINUTES=$(MINUTES); prints its seed N, which ARGS='--seed N' repeats"
	@echo "make mutants     makes 300 small changes to the core, and lists those that no test notices; ARGS='--count 1000 --seed 2'"
	@echo "make coverage    shows which lines and branches the tests of make test run, by folder, and the files they reach least"
	@echo "make matrix      runs tests with other BLAS kernels, Pythons, versions, users and limits; ARGS='--list' names the rows"
	@echo "make demo        runs a simulated fleet over MQTT, and draws out/demo.png; ARGS='--broker mosquitto' adds a broker"
	@echo "make tools       installs mosquitto and the 32-bit MicroPython if they are missing"
	@echo "variables: WORKERS=$(WORKERS) for tests  JOBS=$(JOBS) for slow, exhaustive, mutants and matrix  ARGS='-k name'  PYTHON=python3.11"

# Types and tests run together: mypy computes while tests wait for brokers, servers and fleets.
test: lint tools
	$(MAKE) --jobs=2 types tests

# The first line compiles the tests once, even if PYTHONDONTWRITEBYTECODE is set; otherwise each worker compiles them.
tests: .venv/.installed tools
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

# These include the guides' tests that need servers.
test-services: .venv/.installed tools services
	$(BIN)/pytest $$(grep -rlw services tests --include='test_*.py') -m "services and not slow" -n $(WORKERS) --dist worksteal $(ARGS)

# Tries the guides' commands and examples, checks their figures, links and paths, and builds the site with --strict.
docs-test: .venv/.installed tools
	$(BIN)/pytest -m "not exhaustive" tests/docs tests/cli/test_api.py tests/cli/test_examples.py tests/test_docs.py -n $(WORKERS) --dist worksteal $(ARGS)

# Draws docs/diagrams/*.svg from the .dot files; needs graphviz.
diagrams:
	for text in docs/diagrams/*.dot; do dot -Tsvg "$$text" -o "$${text%.dot}.svg"; done

# Draws the pictures of docs/results and updates the numbers in the guides, from the measured rows.
figures: .venv/.installed
	$(BIN)/python scripts/figures.py
	$(BIN)/python -c "from pathlib import Path; from undertone_studies.results import redraw; redraw(Path('docs/results'))"

site: .venv/.installed
	$(BIN)/mkdocs build --strict --site-dir out/site

# Builds, checks and tries a release; uploading it is left to a person.
release: .venv/.installed
	@scripts/release.sh

# PySpark is installed here, because it takes half a gigabyte and only the tests marked services need it.
services: .venv/.installed servers
	@$(BIN)/python -c "import pyspark" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ./device --editable '.[spark]'
	@$(BIN)/python scripts/vendor.py >/dev/null

# Installs the servers alone; needs no .venv.
servers:
	@scripts/servers.sh

check: lint types

lint: .venv/.installed
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/shellcheck $$(git ls-files '*.sh') .ci/run
	@scripts/biome.sh ci --colors=off

types: .venv/.installed
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix-only $(LINTED)
	$(BIN)/ruff format $(LINTED)
	@scripts/biome.sh format --write

lock: .venv/.installed
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --universal --python-version 3.11 --upgrade pyproject.toml \
	    --extra dev --no-emit-package undertone-device --no-emit-package undertone-ldp --output-file requirements-dev.txt

# Some slow tests need the servers, too.
slow: .venv/.installed tools services
	$(BIN)/pytest -m slow -v -n $(JOBS) $(SLOW_FIRST) $(ARGS)

exhaustive: .venv/.installed tools
	$(BIN)/pytest -m exhaustive -v -n $(JOBS) $(SLOW_FIRST) $(ARGS)

mutants: .venv/.installed tools
	$(BIN)/python scripts/mutants.py --jobs $(JOBS) $(ARGS)

matrix: .venv/.installed tools
	$(BIN)/python scripts/matrix.py --jobs $(JOBS) $(ARGS)

# The tables are printed even if a test fails.
coverage: .venv/.installed tools
	rm -rf .build/coverage && mkdir -p .build/coverage
	-$(BIN)/coverage run -m pytest -q -n $(WORKERS) --dist worksteal --timeout=0 $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o .build/coverage.json
	@$(BIN)/python scripts/coverage_by_room.py

chaos: .venv/.installed tools
	$(BIN)/python -m undertone_studies.chaos --minutes $(MINUTES) $(ARGS)

demo: .venv/.installed tools
	@mkdir -p out
	$(BIN)/undertone demo --png out/demo.png $(ARGS)

tools:
	@scripts/tools.sh

.venv/.installed: pyproject.toml device/pyproject.toml scripts/venv.sh scripts/micropython.py
	@PYTHON="$(PYTHON)" scripts/venv.sh
	@touch $@

clean:
	rm -rf .venv .tools .build out dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
