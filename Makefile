# `make help` lists what there is. Everything made goes to .venv and build.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
# The installed ingero is what runs, never the source tree: that has no native module.
unexport PYTHONPATH
RUN := PATH="$(CURDIR)/$(BIN):$$PATH"

SOURCES := pyproject.toml meson.build meson.options LICENSE README.md tools/version.py tools/frontend.sh \
    $(shell find src probes frontend LICENSES -name __pycache__ -prune -o -print 2>/dev/null)
OBJECT = $$($(BIN)/python -c 'from ingero.attach.kernel import object_path; print(object_path("layout"))')
PYTEST := $(RUN) $(BIN)/python -m pytest
WORKERS ?= auto
SOAK_SECONDS ?= 7200
FUZZ_SECONDS ?= 60
KILLS ?= 1000
SHAPES := session multi perf
# Root can run the eBPF tests and install Prometheus, so it must: a skip is a failure.
ifeq ($(shell id -u),0)
export INGERO_MUST_RUN ?= ebpf monitoring
endif

.PHONY: help setup build demo check static unit test test-ebpf test-shapes test-kernels bench bench-fleet soak fuzz kills bench-truth bench-across truth-replay gpu-bundle test-gpu bench-gpu inspector layout docs lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: .venv/ready  ## install Debian packages (as root) and make .venv

build: .venv/installed  ## build ingero and install it into .venv

demo: build  ## show a made-up job in trouble and its diagnosis; no root, no GPU
	@mkdir -p build
	@INGERO_DB=build/ingero.db $(BIN)/ingero demo --no-gpu --no-tui incident

check: static unit  ## format, lint, types, unit and contract tests; under a minute

# Tests on a live kernel share it with whatever else runs: what fails is tried once more, aloud.
define run_twice
	$(1) $(PYTEST) $(2) || { echo "== once more, only what failed"; $(1) $(PYTEST) $(2) --last-failed --last-failed-no-failures none; }
endef

# The perf shape comes last: the kernel lets go of its probes slowly, which would hold up the others.
test: check inspector  ## check, then every other test; the eBPF tests need root
	@echo "== everything else"
	@$(call run_twice,,tests --ignore tests/unit --ignore tests/contracts --ignore tests/kernels)
	@echo "== calls, INGERO_ATTACH=multi"
	@$(call run_twice,INGERO_ATTACH=multi,tests/ebpf -m shapes)
	@echo "== calls, INGERO_ATTACH=perf"
	@$(call run_twice,INGERO_ATTACH=perf,tests/ebpf -m shapes)

test-ebpf: build  ## the eBPF tests under the newest attach shape; needs root
	@$(call run_twice,,tests/ebpf)

test-shapes: build  ## the eBPF tests under each attach shape, twenty minutes; needs root
	@failed=; for shape in $(SHAPES); do \
	    echo "== INGERO_ATTACH=$$shape"; \
	    $(call run_twice,INGERO_ATTACH=$$shape,tests/ebpf) || failed="$$failed $$shape"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# Emulated, so some minutes each; needs qemu-system-x86, qemu-system-arm, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross.
test-kernels: build  ## the probes on other kernels, in virtual machines; KERNELS=--renew fetches newer ones
	@$(BIN)/python -m tools.kernels.run $(KERNELS)

bench-truth: build  ## how often the diagnosis is right, on injected faults; needs root; TRUTH=--help lists options
	@$(BIN)/python -m benchmarks.truth.run $(TRUTH)

bench-across: build  ## how often the late rank is found across nodes; needs root; ACROSS=--help lists options
	@$(BIN)/python -m benchmarks.across.run $(ACROSS)

bench-fleet: build  ## what a collector takes, and that nothing is lost when it is killed; FLEET=--help lists options
	@$(BIN)/python -m benchmarks.fleet.run $(FLEET)

truth-replay: build  ## judge every recording that is kept, say what changed; REPLAY=--accept renews the verdicts
	@$(BIN)/python -m benchmarks.corpus.replay $(REPLAY)

bench: build  ## measure what tracing costs, write docs/overhead.md; needs root; BENCH=--quick is short
	@$(BIN)/python -m benchmarks.run $(BENCH)

soak: build  ## trace for two hours while jobs come and go, write what grew into docs/reliability.md; needs root; SOAK_SECONDS=7200
	@$(BIN)/python -m benchmarks.soak.run --write --seconds $(SOAK_SECONDS)

fuzz: build  ## hostile inputs for every reader of what others wrote; FUZZ_SECONDS=60, FUZZ=--help lists options
	@$(BIN)/python -m benchmarks.fuzz.run --seconds $(FUZZ_SECONDS) $(FUZZ)

kills: build  ## kill the agent at random moments and look at what is left; needs root; KILLS=1000
	@$(BIN)/python -m benchmarks.kills --write --kills $(KILLS)

gpu-bundle: build  ## pack what a machine with a card needs for the GPU tests and benchmarks
	@$(RUN) tools/gpu_bundle.sh

test-gpu: gpu-bundle  ## the tests that need a card; PYTHON names the interpreter that has PyTorch
	@tools/on_gpu.sh test

bench-gpu: gpu-bundle  ## what tracing costs real jobs on a card, and how true what is said of them is
	@for what in overhead truth long; do tools/on_gpu.sh bench --out build/gpu-results $$what; done

# Where there is no npm, or no registry, the tests that need it say so.
inspector:  ## install the MCP Inspector, which some tests ask with; needs npm
	@if command -v npm >/dev/null; then $(MAKE) build/inspector/ready || echo "inspector: not installed"; fi

build/inspector/ready: tests/assistants/inspector/package.json tests/assistants/inspector/package-lock.json
	@echo "installing the MCP Inspector"
	@mkdir -p $(@D)
	@cp $^ $(@D)
	@cd $(@D) && npm install --no-audit --no-fund --ignore-scripts --omit=optional --loglevel=error
	@touch $@

layout: build  ## write model/layout.py from the compiled probes, then build again
	$(BIN)/python tools/layout.py $(OBJECT)
	@$(MAKE) build

docs: build  ## write the pages, dashboard and alerts that are made from the code
	$(BIN)/python -m ingero.serve.cli.reference docs
	$(BIN)/python tools/monitoring.py

lock: .venv/ready  ## write requirements/*.txt from pyproject.toml; needs a package index
	tools/lock.sh

clean:  ## remove everything make made
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

static: build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: build
	$(PYTEST) tests/unit tests/contracts -n $(WORKERS)

.venv/ready: tools/setup.sh requirements/dev.txt
	@tools/setup.sh
	@touch $@

INSTALL = $(RUN) $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --config-settings=build-dir
MADE_IN = build/py$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')

.venv/installed: .venv/ready $(SOURCES)
	@echo "building ingero"
	@$(INSTALL)=$(MADE_IN) . || { \
	    echo "building ingero without the pages of its dashboard: they need npm and its registry" >&2; \
	    $(INSTALL)=$(MADE_IN)-no-pages -Csetup-args=-Ddashboard=disabled .; }
	@$(BIN)/python -m compileall -q $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/ingero
	@touch $@
