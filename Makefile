# `make test` on a fresh machine is all that a contributor needs. CI runs more: see .ci/run.
PYTHON ?=
# More than a small machine has cores, because tests with brokers, servers and fleets mostly wait.
WORKERS ?= 5
# For what computes all the time.
JOBS ?= 2
ARGS ?=
BIN := .venv/bin
SLOW_FIRST := --durations=10 --timeout=0
SOURCES := shared device aggregator simulator cli tests
LINTED := $(SOURCES) scripts hatch_build.py

MINUTES ?= 60

.PHONY: help test tests test-services services servers docs-test diagrams figures site release check lint types format lock slow exhaustive chaos mutants matrix coverage demo tools clean

help:
	@echo "make test        what CI runs first: lint, types, tests (also under MicroPython); .ci/run is all that CI runs"
	@echo "make test-services   the tests that need PostgreSQL and other servers, which it installs"
	@echo "make docs-test   what the guides show is run and compared;  make site  builds them into out/site"
	@echo "make release     wheel and sdist, checked and tried in a fresh environment; uploads nothing"
	@echo "make check       lint and types alone;  make format  lets ruff fix what it can"
	@echo "make lock        writes requirements-dev.txt: the newest versions of all packages for development"
	@echo "make slow        the tests marked slow;  make exhaustive  the proofs by enumeration"
	@echo "make chaos       a soak under faults, MINUTES=$(MINUTES) of it; it prints its seed, ARGS='--seed N' runs it again"
	@echo "make mutants     small changes to the core: which of 300 no test notices; ARGS='--count 1000 --seed 2'"
	@echo "make coverage    which lines and branches the tests of make test run, by room, and the files that they reach least"
	@echo "make matrix      what can come out otherwise under other kernels, Pythons, versions, users and limits; ARGS='--list'"
	@echo "make demo        a simulated fleet over MQTT, with a picture in out/; ARGS='--broker mosquitto' puts a broker between"
	@echo "make tools       mosquitto and the 32-bit MicroPython, into .tools/ if they are not installed"
	@echo "variables: WORKERS=$(WORKERS) for tests  JOBS=$(JOBS) for slow, exhaustive and mutants  ARGS='-k name'  PYTHON=python3.11"

# mypy computes while tests wait for brokers, servers and fleets.
test: lint tools
	$(MAKE) --jobs=2 types tests

# The first line compiles the tests, once, whatever the environment says; each worker would do it by itself.
tests: .venv/.installed tools
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

# With those of the guides: `make test` runs the rest of `make docs-test`.
test-services: .venv/.installed tools services
	$(BIN)/pytest $$(grep -rlw services tests --include='test_*.py') -m "services and not slow" -n $(WORKERS) --dist worksteal $(ARGS)

# The commands and examples of the guides, their figures, links and paths; then the site, built --strict.
docs-test: .venv/.installed tools
	$(BIN)/pytest -m "not exhaustive" tests/docs tests/cli/test_api.py tests/cli/test_examples.py tests/test_docs.py -n $(WORKERS) --dist worksteal $(ARGS)

# The drawings of docs/, from their text; graphviz makes them.
diagrams:
	for text in docs/diagrams/*.dot; do dot -Tsvg "$$text" -o "$${text%.dot}.svg"; done

# The pictures of docs/results and the figures in the guides, from the rows that were measured.
figures: .venv/.installed
	$(BIN)/python scripts/figures.py
	$(BIN)/python -c "from pathlib import Path; from undertone_studies.results import redraw; redraw(Path('docs/results'))"

site: .venv/.installed
	$(BIN)/mkdocs build --strict --site-dir out/site

# Builds, checks and tries a release; uploading it is left to a person.
release: .venv/.installed
	@scripts/release.sh

# PySpark is half a gigabyte that only these tests need.
services: .venv/.installed servers
	@$(BIN)/python -c "import pyspark" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ./device --editable '.[spark]'
	@$(BIN)/python scripts/vendor.py >/dev/null

# The servers alone, which need no .venv.
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

# Some of them need the servers, too.
slow: .venv/.installed tools services
	$(BIN)/pytest -m slow -v -n $(JOBS) $(SLOW_FIRST) $(ARGS)

exhaustive: .venv/.installed tools
	$(BIN)/pytest -m exhaustive -v -n $(JOBS) $(SLOW_FIRST) $(ARGS)

mutants: .venv/.installed tools
	$(BIN)/python scripts/mutants.py --jobs $(JOBS) $(ARGS)

matrix: .venv/.installed tools
	$(BIN)/python scripts/matrix.py --jobs $(JOBS) $(ARGS)

# A failed test does not hide what the others reached.
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
