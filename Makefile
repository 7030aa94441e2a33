# Everything here needs make and a Python from 3.11 on, and makes the rest in .venv itself.
#
# What a target starts ends with it, also when make is killed: see tools/lifeline.py.

PYTHON ?= python3
BIN := .venv/bin

export MAKE_PID := $(shell echo $$PPID)

.DEFAULT_GOAL := help
.PHONY: help demo quick test nightly check bench docs simulate search compare mutants servers trees interop soak pythons apart venv dist format clean

help:  ## Show this list
	@echo "make TARGET [PYTHON=python3.12]"
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-12s%s\n", $$1, $$2}'

demo:  ## Run a Spark job on real flights against an S3 server of its own; needs nothing but Python
	@$(PYTHON) -m tools.venv demo
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m examples.flights

quick: venv  ## Run the tests that a change breaks first (under 2 minutes)
	@$(BIN)/python -m ruff check --quiet . && $(BIN)/python -m mypy && $(BIN)/python -m tools.suites unit contract

test: venv  ## Run the tests that hold the rules, and a minute of schedules (six minutes)
	@$(BIN)/python -m tools.suites test

nightly: venv  ## Run every suite, whole: of what CI tries a sample, all (some hours)
	@$(BIN)/python -m tools.suites nightly

check: venv  ## Lint, formatting, types and the house rules
	@$(BIN)/python -m tools.suites check

bench:  ## Measure beside other libraries, twenty minutes: QUICK=1 takes two minutes; ONLY=streaming picks
	@$(PYTHON) -m tools.venv bench
	@$(PYTHON) -m tools.venv peers
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)')

docs:  ## Build the documentation site into site/, with every link checked
	@$(PYTHON) -m tools.venv docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tools.lifeline $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html; for its search: python3 -m http.server --directory site"

simulate: venv  ## Run seeded schedules of the production code: RUNS=3000, or one: SEED=7
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS))

search: venv  ## Search the production code over all interleavings of few changes of turn: TURNS=2
	@$(BIN)/python -m tests.model --turns $(or $(TURNS),2)

compare: venv  ## Try every committer against every property; a schedule for each no: ONLY=magic WRITE=1
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tests.properties $(if $(ONLY),--only '$(ONLY)') $(if $(WRITE),--write)

mutants: venv  ## Change the library a little, some hundred times; see that each is noticed: ONLY=word
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tests.mutants $(if $(ONLY),--only '$(ONLY)')

servers: venv  ## Run every real-server test on versitygw, Ceph and MinIO: ONLY=minio; INSTALL=1 lets apt get Ceph
	@$(if $(INSTALL),MAGIC_COMMITTER_TEST_INSTALL=1) $(BIN)/python -m tools.lifeline $(BIN)/python -m tests.real_servers $(ONLY)

trees: venv  ## Run jobs of renames on real SFTP, HDFS and GCS servers: ONLY=sftp; INSTALL=1 lets apt get OpenSSH
	@$(if $(INSTALL),MAGIC_COMMITTER_TEST_INSTALL=1) $(BIN)/python -m tools.lifeline $(BIN)/python -m tests.real_trees $(ONLY)

interop: venv  ## Run real Hadoop beside the library: needs Java 17, Maven and Go
	@$(BIN)/python -m tools.suites interop

soak: venv  ## Mixed jobs on versitygw, with drivers, workers and the server killed: MINUTES=60 SEED=1 TRANSPORT=both
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tests.chaos soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(TRANSPORT),--transport $(TRANSPORT))

pythons: venv  ## Run unit, contract, promise and process tests on Python 3.11 to 3.14, and on the lowest dependencies: ONLY=3.14
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tools.pythons $(ONLY)

apart: venv  ## Run what needs its own environment: four Sparks, recipes' libraries (6 GB), Airflow: ONLY=recipes
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tools.apart $(ONLY)

venv:  ## Make .venv with all that tests and checks need
	@$(PYTHON) -m tools.venv test

dist: venv  ## Build wheel and sdist, check them, and run each in an empty environment
	@$(BIN)/python -m tools.lifeline $(BIN)/python -m tools.dist

format: venv  ## Format the sources, and mend what the linter can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

clean:  ## Remove .venv and what the tools left
	@rm -rf .venv .venv-bench .mutants .mypy_cache .ruff_cache .pytest_cache dist site
