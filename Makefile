# Every recipe sets up what it needs, so a fresh machine with Rust, Python, Node and a C compiler is
# enough. `make check` verifies and never writes; `make fix` writes.

PYTHON    ?= python3
BIN       := target/release/tidemill
# An empty FUSE server, the peer in benchmarks of calls without data.
NOTHING   := target/release/examples/nothing
VENV      := .venv
DEMO      := build/demo
# Packages of the programs that the tests run in the mount.
TESTED_WITH := fuse3 acl attr sqlite3 rsync git build-essential iproute2 redis-server memcached openssh-server slurm-wlm munge
# Real inputs: the tests use them if this directory exists; see examples/*/README.md.
DATA      ?= ../shared/data
# Processes that run the tests of Python; 0 runs them in one.
TEST_WORKERS ?= 2

.PHONY: help demo build wheel package suites test test-rust test-python test-web guard soak sim fuzz check fix bench bench-storage bench-filecopy bench-python bench-preload clean

help:
	@echo "make demo    build, set up what is missing, run the classification workflow, say where the report is"
	@echo "make wheel   the Python package, as a wheel in build/wheels; pip install . installs it"
	@echo "make package the same, installed into the environment of the tests"
	@echo "make test    everything that proves it works"
	@echo "make guard   the tests of the Python package, where a look at memory that is not lent any more ends the process"
	@echo "make soak    what takes hours: a million operations of fsx, long loads of many processes, hundreds of crashes"
	@echo "make sim     worlds: pools that grow and shrink under clients, over a bad network; as many as SIM_SEEDS (20000)"
	@echo "make fuzz    damaged frames of the wire protocol, as many as FUZZ_SECONDS (600) allow"
	@echo "make check   formatting, lints, layers, documents; writes nothing"
	@echo "make fix     formats, and mends what the linters can mend"
	@echo "make bench   the numbers of bench/RESULTS.md, as JSON; make bench-storage those of the mount, make bench-filecopy those of pools, make bench-python those of the Python package, make bench-preload those of the preload library"

build: $(BIN)

# cargo itself detects what is out of date. The Python package is built together with the binary, so
# that common dependencies are built once with the same features. Otherwise the wheel build compiles
# them again, which took three minutes.
.PHONY: $(BIN) $(NOTHING)
# Use the PyO3 configuration of the last wheel build, if there is one. With another configuration
# the native module would be compiled again each time.
PYO3_CONFIG = $(abspath $(firstword $(wildcard target/maturin/pyo3-config-*-abi3.txt)))
$(BIN):
	$(if $(PYO3_CONFIG),PYO3_CONFIG_FILE=$(PYO3_CONFIG)) cargo build --release --locked --package app --package preload --package python

$(NOTHING):
	cargo build --release --locked --package fuse-transport --example nothing

examples/.venv/.ready: examples/requirements.txt examples/setup.sh
	PYTHON=$(PYTHON) examples/setup.sh

$(VENV)/.ready: tests/requirements.txt tests/python/requirements.txt
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || examples/packages.sh python3-venv
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt --requirement tests/python/requirements.txt
	touch $@

# Wheels of earlier builds are removed first.
wheel: $(VENV)/.ready $(BIN)
	rm -rf build/wheels
	$(VENV)/bin/maturin build --release --locked --out build/wheels

# Installs the wheel into the environment of the tests.
package: wheel
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheels/tidemill-*.whl

web/node_modules/.ready: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --loglevel=error
	touch $@

demo: $(BIN) examples/.venv/.ready
	examples/.venv/bin/python examples/classification/prepare.py $(DEMO)/data
	$(BIN) run examples/classification/workflow.js --data $(DEMO)/data --tools examples/classification/tools.toml \
	  --set n=20 --set m=80 --out $(DEMO)/out --report $(DEMO)/report
	@echo
	@echo "The 80 classified data sets are in $(DEMO)/out; open $(DEMO)/report/report.html to see how the run went."

test: test-rust test-python test-web

# Random Swift scripts run for a minute more, the same ones each time; `make fuzz` makes others.
test-rust:
	cargo test --workspace --locked
	FUZZ_SECONDS=60 FUZZ_SEED=1 cargo test --workspace --lib --locked fuzz_test

test-python: $(BIN) $(NOTHING) package examples/.venv/.ready suites
	examples/packages.sh montage ncbi-blast+ $(TESTED_WITH)
	TIDEMILL=$(abspath $(BIN)) $(VENV)/bin/python -m pytest tests --numprocesses $(TEST_WORKERS) --dist worksteal

guard: $(BIN) package
	TIDEMILL_GUARD=1 TIDEMILL=$(abspath $(BIN)) $(VENV)/bin/python -m pytest tests/python

# Installs pjdfstest and fsx, the test suites for file systems.
suites:
	examples/packages.sh build-essential libacl1-dev
	tests/suites/install.sh

# SOAK_SECONDS is the duration of each load of many processes, SOAK_KILLS (50) how often a part of a
# cluster is killed.
soak: $(BIN) package suites
	examples/packages.sh $(TESTED_WITH)
	TIDEMILL=$(abspath $(BIN)) SOAK_SECONDS=$${SOAK_SECONDS:-600} $(VENV)/bin/python -m pytest tests -m soak
	FUZZ_SECONDS=$${FUZZ_SECONDS:-3600} cargo test --release --package swift --lib --locked fuzz
	KILLS=$${KILLS:-2000} cargo test --release --package transport --test suite --locked -- --skip with_reactor programs::

# Runs the worlds of crates/sim/src/sim_test.rs with SIM_SEEDS seeds; SIM_SEED=N repeats that of one
# seed, and SIM_TRACE=1 says what happens in it.
sim:
	SIM_SEEDS=$${SIM_SEEDS:-$$(test -n "$$SIM_SEED" && echo 1 || echo 20000)} cargo test --release --package sim --lib --locked sim_test -- --nocapture

# Runs the fuzz loops of the tests from other seeds for FUZZ_SECONDS each.
fuzz:
	FUZZ_SECONDS=$${FUZZ_SECONDS:-600} cargo test --release --package wire --test suite --locked fuzz:: -- --nocapture
	FUZZ_SECONDS=$${FUZZ_SECONDS:-600} cargo test --release --package swift --lib --locked fuzz -- --nocapture

test-web: web/node_modules/.ready
	examples/packages.sh chromium
	cargo build --locked --package report --example sample
	cd web && npm test

check: $(VENV)/.ready
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	$(PYTHON) tests/tidy.py
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/python -m mypy --config-file tests/python/mypy.ini python/tidemill python/carrier
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check; else echo "cargo-deny is not installed: licences and advisories not checked"; fi

fix: $(VENV)/.ready
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(BIN) examples/.venv/.ready
	examples/packages.sh montage
	$(PYTHON) bench/run.py --binary $(abspath $(BIN))

bench-storage: $(BIN) $(NOTHING)
	examples/packages.sh build-essential git montage
	$(PYTHON) bench/storage.py --binary $(abspath $(BIN)) --nothing $(abspath $(NOTHING))

bench-filecopy: $(BIN)
	examples/packages.sh redis-server memcached iproute2
	$(PYTHON) bench/filecopy.py --binary $(abspath $(BIN)) --out build/filecopy

# A separate environment, because ray alone is 79 MB.
bench/.venv/.ready: bench/requirements.txt
	$(PYTHON) -m venv bench/.venv
	bench/.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement bench/requirements.txt
	touch $@

bench-python: $(BIN) wheel bench/.venv/.ready
	examples/packages.sh redis-server
	bench/.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/wheels/tidemill-*.whl
	bench/.venv/bin/python bench/from_python.py --binary $(abspath $(BIN))

bench-preload: $(BIN)
	examples/packages.sh build-essential git
	$(PYTHON) bench/preload.py --binary $(abspath $(BIN))

clean:
	rm -rf target build $(VENV) examples/.venv bench/.venv web/node_modules
