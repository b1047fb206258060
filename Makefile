# The same targets by hand and in CI. `make help` lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := spark,coordination,archive,msgpack,metrics,demo,bench,test,check,docs
# Compiled once: Spark's workers import Quire in each of their processes and may not write bytecode.
CODE := coordination engine journal ltds pyspark_quire quire remote spark_graphs writebuffer

# A warning is an error. What has not changed since the last build is not built again, unless that
# had warnings: pages that it has read would not tell theirs again.
SITE := $(BIN)/sphinx-build --quiet --fail-on-warning --conf-dir docs . build/site || \
	{ rm -rf build/site; exit 1; }

SEED ?=
# The same commit gives the same result, and another one draws other forms and cases. Only the long
# runs of one kind (crash, recovery, fuzz, faults) draw a seed of their own.
COMMIT_SEED = $(or $(SEED),$(shell $(PYTHON) -m scripts.commit_seed))
ROUNDS ?= 500
ARGS ?=

# Spark's workers must run in the interpreter that has Quire installed, and Spark must not look up
# a host name that may not resolve.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python
export SPARK_LOCAL_IP ?= 127.0.0.1
export SPARK_LOCAL_HOSTNAME ?= localhost

.PHONY: help setup java demo test test-long test-newest test-spark-versions test-portable durations check format docs reference check-archive check-metrics crash simulate-archive recovery fuzz faults bench bench-commit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with the pinned versions and Quire itself (once)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Quire needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet -c constraints.txt pip setuptools wheel
	$(BIN)/python -m pip install -qq --no-build-isolation -c constraints.txt -e '.[$(EXTRAS)]'
	$(BIN)/python -m compileall -q $(CODE)
	@touch $@

java:
	@$(PYTHON) scripts/check_java.py

demo: $(STAMP) java ## Replay a year of flights through queues and Spark, with a crash (ARGS="--rows 5000")
	$(BIN)/python -m demo $(ARGS)

test: $(if $(ARGS),check,$(STAMP)) ## Run the checks and all tests but the long ones (ARGS="-k name" SEED=commit's)
	$(BIN)/python $(if $(ARGS),-m pytest -m "not long" $(ARGS),-m scripts.test_all) --seed $(COMMIT_SEED)

test-long: $(STAMP) ## Run what `make test` leaves out: an hour (ARGS="--list" ARGS="--part demo")
	$(BIN)/python -m scripts.test_all --long --seed $(COMMIT_SEED) $(ARGS)

test-newest: $(STAMP) ## Run a slice of the tests in the newest Python of this machine (ARGS="--python /path")
	$(BIN)/python scripts/test_newest.py --seed $(COMMIT_SEED) $(ARGS)

test-spark-versions: $(STAMP) java ## Try Spark's connector with each release of PySpark (ARGS="--write" writes the table)
	$(BIN)/python scripts/test_spark_versions.py $(ARGS)

test-portable: $(STAMP) ## Run all tests but the long ones with the forms of calls that macOS has (ARGS="-k name")
	QUIRE_PORTABLE=1 $(BIN)/python -m pytest -m "not long" --seed $(COMMIT_SEED) $(ARGS)

durations: $(STAMP) ## Write the table of durations, tests/durations.tsv, from the last `make test`
	$(BIN)/python scripts/write_durations.py

check: $(STAMP) ## Check format, lint, types, layers, documents and the reference
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/write_formats.py --check
	$(BIN)/python scripts/check_docs.py
	$(SITE)

format: $(STAMP) ## Format the code and sort its imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Write the generated parts of the documents anew
	$(BIN)/python scripts/write_formats.py
	$(BIN)/python scripts/check_docs.py --write

reference: $(STAMP) ## Build the pages and the reference of the interface: build/site/docs/index.html
	$(SITE)

crash: $(STAMP) ## Run the crash tests for long (ROUNDS=500 SEED=random)
	$(BIN)/python -m pytest -m crash --forms all --cases all --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

check-archive: $(STAMP) ## Check archives over two servers of S3, which it installs in build/ (needs go for one)
	test -x build/moto/bin/moto_server || { $(BIN)/python -m venv build/moto && build/moto/bin/pip install -q -r tests/archive/s3_server.txt; }
	test -x build/bin/versitygw || ! command -v go || \
		GOBIN=$(CURDIR)/build/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	MOTO_SERVER=build/moto/bin/moto_server VERSITYGW=build/bin/versitygw \
		$(BIN)/python -m pytest -q -rs tests/archive/bucket_suite.py

check-metrics: $(STAMP) ## Check metrics and alert rules with Debian's Prometheus (installed where it may be)
	command -v promtool >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq install -y --no-install-recommends prometheus </dev/null >/dev/null; } || \
		echo "Prometheus is not installed, and cannot be from here (apt-get, as root): its tests are skipped"
	$(BIN)/python -m pytest -q -rs tests/metrics/prometheus_suite.py tests/metrics/test_collector.py

simulate-archive: $(STAMP) ## Run schedules of an archived store, its shippers and bases (COUNT=50000 SEED=1)
	$(BIN)/python -m tests.archive.archive_turns --count $(or $(COUNT),50000) --first $(or $(SEED),1)

recovery: $(STAMP) ## Play a client's recovery with kill -9 at every step (SEED=random)
	$(BIN)/python -m pytest tests/crash/test_client_recovery.py -s $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(STAMP) ## Run the fuzzers and the model tests for long (ROUNDS=500 SEED=random)
	$(BIN)/python -m pytest -m fuzz --forms all --cases all --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

faults: $(STAMP) ## Put faults into the engine; its tests must catch each (ARGS="--only 3,17")
	$(BIN)/python -m scripts.seeded_faults $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: $(STAMP) ## Run the benchmarks; figures go to bench/results/ (ARGS="--help" shows the choices)
	$(BIN)/python -m bench $(ARGS)

bench-commit: $(STAMP) ## The benchmarks of the commit engine: tables and plots (ARGS="--quick")
	$(BIN)/python -m bench commit-engine $(ARGS)

clean: ## Remove the environment, caches and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache .benchmarks spark-warehouse metastore_db derby.log demo/out demo/report.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
