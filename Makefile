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
# Found without attach/kernel.py: that wants numbers of the layout which may still have to be written.
OBJECT = $$($(BIN)/python -c 'import ingero.native as n; print(n.__path__[0])')/bpf/layout.$$(uname -m).bpf.o
PYTEST := $(RUN) $(BIN)/python -m pytest
WORKERS ?= auto
SOAK_SECONDS ?= 7200
FUZZ_SECONDS ?= 60
KILLS ?= 1000
SHAPES := session multi perf
# Root can run the eBPF tests, install Prometheus and make network namespaces, so it must: a skip is a failure.
ifeq ($(shell id -u),0)
export INGERO_MUST_RUN ?= ebpf monitoring namespaces fleet
endif

.PHONY: help setup setup-long build demo check static unit test test-services test-traced test-long test-ebpf test-shapes test-kernels bench bench-fleet soak fuzz kills bench-truth bench-across truth-replay gpu-bundle test-gpu bench-gpu inspector dist onefile test-onefile install uninstall deb room helm otelcol manifests layout docs lock clean image snapshots tour

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: .venv/ready  ## install Debian packages (as root) and make .venv

setup-long:  ## install the Debian packages that only the long tests need (as root)
	@tools/setup.sh --long

build: .venv/installed  ## build ingero and install it into .venv

demo: build  ## show a made-up job in trouble and its diagnosis; no root, no GPU
	@$(BIN)/ingero demo --no-gpu --no-tui incident

# Both at once: what looks at the source has one thread, the tests have pauses.
check: build  ## format, lint, types, unit and contract tests; a few minutes on two cores
	@mkdir -p build
	@$(MAKE) static >build/static.log 2>&1 & static=$$!; status=0; \
	$(MAKE) unit || status=$$?; \
	wait $$static || status=$$?; cat build/static.log; exit $$status

# A machine that is shared can fail some tests although nothing is wrong: tests/nuisances.toml names them, and only they
# are tried once more. What passed only then is listed in SECOND_TRY, which `make test` shows as the last thing it says.
SECOND_TRY := build/second-try.txt
define tests
	INGERO_SECOND_TRY=$(CURDIR)/$(SECOND_TRY) $(1) $(RUN) $(BIN)/python -m tests.second_try $(2)
endef

# Two lanes at once: tests that trace, and those that only ask servers, which take what the others leave of the
# cores (SCHED_IDLE), so that they are no neighbour to the jobs that are traced. What they say is shown at the end.
# Format, lint and types are looked at there, too: tests that trace wait more than they compute.
SERVICES := recorded assistants browser monitoring fanout fleet install
IDLE := $(shell command -v chrt >/dev/null && echo chrt --idle 0)

test: unit inspector  ## everything: unit and contract tests, then all others and `static`; the eBPF tests need root
	@mkdir -p build
	@rm -f $(SECOND_TRY)
	@$(IDLE) $(MAKE) -k static test-services >build/test-services.log 2>&1 & services=$$!; status=0; \
	$(MAKE) test-traced || status=$$?; \
	wait $$services || status=$$?; cat build/test-services.log; \
	if [ -s $(SECOND_TRY) ]; then echo "== passed only at the second try"; cat $(SECOND_TRY); fi; exit $$status

test-services: build inspector  ## the tests of servers, pages and recordings; no root
	@echo "== everything else: $(SERVICES)"
	@$(call tests,,$(SERVICES:%=tests/%) --timeout 300 -o cache_dir=build/test-services)

# The perf shape comes last: the kernel lets go of its probes slowly, which would hold up the others. All of its
# tests take eight minutes: `make test-long`.
test-traced: build  ## the eBPF tests, and those of calls under every attach shape; needs root
	@echo "== under eBPF"
	@$(call tests,,tests/ebpf)
	@echo "== calls, INGERO_ATTACH=multi"
	@$(call tests,INGERO_ATTACH=multi,tests/ebpf -m shapes)
	@echo "== calls, INGERO_ATTACH=perf"
	@$(call tests,INGERO_ATTACH=perf,tests/ebpf/test_calls.py -m shapes)

# What takes minutes and rarely fails; a release needs it, a change does not. Nothing is forgiven here, and
# nothing is skipped for want of a tool.
test-long: export INGERO_MUST_RUN = ebpf monitoring browser fleet namespaces containers install helm otelcol
test-long: build inspector room helm otelcol  ## the tests marked long, before a release; says when in docs/reliability.md; needs root
	@status=0; INGERO_LONG=1 $(PYTEST) tests -m long --timeout 1800 --junitxml build/test-long.xml || status=$$?; \
	INGERO_ATTACH=perf $(PYTEST) tests/ebpf -m shapes --timeout 1800 || status=$$?; \
	$(MAKE) test-onefile || status=$$?; \
	$(BIN)/python -m benchmarks.long_tests build/test-long.xml; exit $$status

test-ebpf: build  ## the eBPF tests under the newest attach shape; needs root
	@$(call tests,,tests/ebpf)

test-shapes: build  ## the eBPF tests under each attach shape, twenty minutes; needs root
	@failed=; for shape in $(SHAPES); do \
	    echo "== INGERO_ATTACH=$$shape"; \
	    $(call tests,INGERO_ATTACH=$$shape,tests/ebpf) || failed="$$failed $$shape"; \
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

gpu-bundle: build  ## pack what a machine with a GPU needs for the GPU tests and benchmarks
	@$(RUN) tools/gpu_bundle.sh

test-gpu: gpu-bundle  ## the tests that need a GPU; PYTHON names the interpreter that has PyTorch
	@tools/on_gpu.sh test

bench-gpu: gpu-bundle  ## what tracing costs real jobs on a GPU, and how true what is said of them is
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

dist: build  ## make dist: sdist, a wheel for this machine and one for arm64 (needs gcc-aarch64-linux-gnu)
	@$(RUN) tools/dist.sh

onefile: build  ## make dist/ingero: one executable with interpreter and all, for this machine
	@mkdir -p dist build/onefile-wheel && rm -f build/onefile-wheel/*
	@$(RUN) tools/wheel.sh build/onefile-wheel
	@$(RUN) $(BIN)/python -m tools.onefile build/onefile-wheel/*.whl

test-onefile: onefile  ## the tests of the command line, on the one file; needs root
	@INGERO_COMMAND="$(CURDIR)/dist/ingero" $(PYTEST) tests/unit/serve/cli/test_main.py tests/ebpf/test_command_line.py tests/assistants/test_stdio.py

PREFIX ?= /usr/local
install: build  ## install below PREFIX=/usr/local: program, systemd unit, tmpfiles, completion, man pages; DESTDIR=
	@mkdir -p build/install-wheel && rm -f build/install-wheel/*
	@$(RUN) tools/wheel.sh build/install-wheel
	@$(BIN)/python -m tools.install install build/install-wheel/*.whl "$(PREFIX)" "$(DESTDIR)"

uninstall: build  ## remove what `make install` installed
	@$(BIN)/python -m tools.install uninstall "$(PREFIX)" "$(DESTDIR)"

deb: build  ## make a Debian package, for a Debian whose Python is of the version that .venv has
	@mkdir -p build/deb-wheel && rm -f build/deb-wheel/*
	@$(RUN) tools/wheel.sh build/deb-wheel
	@$(BIN)/python -m tools.deb build/deb-wheel/*.whl

room: .venv/ready setup-long  ## make empty Debian roots and the packages to install in them, for the long tests; needs root
	@$(MAKE) build/debian-root.tar build/debian-systemd.tar build/wheelhouse/ready || { \
	    echo "room: not made: it takes root, mmdebstrap (make setup-long), a Debian archive and a package index" >&2; \
	    exit 1; }

build/debian-root.tar:
	@mkdir -p $(@D)
	@mmdebstrap --quiet --variant=minbase --include=python3,pipx,sudo bookworm $@

build/debian-systemd.tar:
	@mkdir -p $(@D)
	@mmdebstrap --quiet --variant=minbase --include=python3,pipx,systemd-sysv bookworm $@

build/wheelhouse/ready: requirements/run.txt
	@$(BIN)/python -m pip download --quiet --dest $(@D) --only-binary=:all: --python-version 3.11 --no-deps --require-hashes -r $<
	@$(BIN)/python -m pip download --quiet --dest $(@D) --only-binary=:all: pip setuptools wheel
	@touch $@

helm:  ## build the helm program, which the long tests hold against its library; needs go, some minutes
	@$(MAKE) build/tools/helm || { \
	    echo "helm: not made: it takes Go (https://go.dev/dl) and the network" >&2; exit 1; }

HELM_VERSION := v3.19.0
build/tools/helm:
	@mkdir -p $(@D)
	GOBIN="$(CURDIR)/$(@D)" go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)

otelcol:  ## build an OpenTelemetry Collector, which a long test puts before ours; needs go, some minutes
	@$(MAKE) build/tools/otelcol || echo "otelcol: not made"

# The version of its parts is in the list, too.
OTELCOL_VERSION := v0.162.0
build/tools/otelcol: tests/fleet/otelcol.yaml
	@mkdir -p $(@D)
	GOBIN="$(CURDIR)/$(@D)" go install go.opentelemetry.io/collector/cmd/builder@$(OTELCOL_VERSION)
	$(@D)/builder --config $<
	cp $(@D)/otelcol-source/otelcol $@
	rm -rf $(@D)/builder $(@D)/otelcol-source

image:  ## build the container image, with docker or podman; IMAGE_BASE names another Debian 12
	@tool=$$(command -v docker || command -v podman) || { echo "no docker and no podman" >&2; exit 1; }; \
	$$tool build $(if $(IMAGE_BASE),--build-arg BASE=$(IMAGE_BASE)) -f deploy/image/Dockerfile -t ingero:$$(python3 tools/version.py) .

manifests: build  ## write deploy/kubernetes/ingero.yaml from the Helm chart
	@$(BIN)/python -m tools.manifests

snapshots: build  ## write anew how the live view and the answers look on a terminal; look at the difference
	@INGERO_RENEW_SNAPSHOTS=1 $(PYTEST) -q tests/unit/serve/test_snapshots.py

layout: build  ## write model/layout.py from the compiled probes, then build again
	$(BIN)/python tools/layout.py $(OBJECT)
	@$(MAKE) build

# Of a real run, so that they never lie.
tour: build  ## make the pictures of the README from `demo --live`; needs root and Chromium
	$(RUN) $(BIN)/python -m tools.tour docs/images

docs: build  ## write the pages, dashboard and alerts that are made from the code
	$(BIN)/python -m ingero.serve.cli.reference docs
	$(BIN)/python -m ingero.serve.cli.glossary frontend/src/words.js
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
	$(PYTEST) tests/unit tests/contracts -n $(WORKERS) --dist loadfile

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
