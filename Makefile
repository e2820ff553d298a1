# `make run` for a user; `make test` for a developer; `make test-all` before a release.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SKYPILOT_VENV := .venv-skypilot
OUT := out

# What the tests run for real: a database server, a workload manager, a browser, a checker of metrics, containers,
# routing daemons, what compiles and looks at programs of the kernel's packet filter, what emulates a machine,
# what checks units, and what the API's examples ask with.
DEBIAN_PACKAGES := postgresql slurmctld slurmd slurm-client munge chromium prometheus runc frr iproute2 clang bpftool \
  qemu-system-x86 busybox-static systemd curl

# A kernel with what this machine's may lack, for the machine that is emulated: unpacked there and never installed.
KERNEL := $(VENV)/kernel
KERNEL_PARTS := boot/vmlinuz-* $(addprefix lib/modules/*/kernel/,net/* drivers/net/veth.ko drivers/net/vxlan/* \
  drivers/virtio/* fs/9p/* fs/netfs/* fs/fscache/*)

.PHONY: run test test-all test-rest lint clean

run: $(VENV)/run.stamp
	@mkdir -p $(OUT)
	@echo "── profiling examples/train_digits.py for a few seconds"
	$(BIN)/trimtab profile --for 30s -o $(OUT)/profile.json -- $(BIN)/python examples/train_digits.py
	@echo "── where should it run?"
	$(BIN)/trimtab recommend $(OUT)/profile.json --spot --explain 1 --html $(OUT)/report.html
	@echo "── what the ledger remembers"
	$(BIN)/trimtab decisions --limit 1
	@echo
	@echo "The report with the cost-against-time chart: $(CURDIR)/$(OUT)/report.html"

PYTEST := TRIMTAB_SKYPILOT_PYTHON=$(CURDIR)/$(SKYPILOT_VENV)/bin/python $(BIN)/python -m pytest --numprocesses 2 --dist loadscope

test: $(VENV)/test.stamp $(SKYPILOT_VENV)/stamp debian-packages
	$(PYTEST) -m 'not second_tier and not benchmark'

# What `make test` leaves out: the emulated kernel, Ray, the long examples, quick benches and linters.
test-rest: $(VENV)/test.stamp $(SKYPILOT_VENV)/stamp debian-packages guest-kernel
	$(PYTEST) -m 'second_tier and not benchmark'

test-all: test test-rest

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -c pyproject.toml -r src benchmarks/src

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml benchmarks/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[learn,serve]' --editable benchmarks
	@touch $@

$(VENV)/test.stamp: pyproject.toml benchmarks/pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[test]' --editable benchmarks
	@touch $@

# SkyPilot pins versions of its own, so its parser gets an environment of its own.
$(SKYPILOT_VENV)/stamp: Makefile
	$(PYTHON) -m venv $(SKYPILOT_VENV)
	$(SKYPILOT_VENV)/bin/pip install --quiet 'skypilot==0.14.1'
	@touch $@

.PHONY: debian-packages
debian-packages:
	@missing=$$(for p in $(DEBIAN_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "not installing $$missing (needs root on Debian): tests that need them are skipped"; exit 0; fi; \
	echo "installing $$missing"; export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing >/dev/null

.PHONY: guest-kernel
guest-kernel: debian-packages
	@if ls $(KERNEL)/boot/vmlinuz-* >/dev/null 2>&1; then exit 0; fi; mkdir -p $(KERNEL); cd $(KERNEL); \
	package=$$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: *\(linux-image-.*\)/\1/p' | head -1); \
	echo "fetching $${package:-a kernel} for a machine to emulate"; \
	if [ -n "$$package" ] && apt-get download -qq $$package >/dev/null 2>&1; then \
	  dpkg-deb --fsys-tarfile *.deb | tar -x --wildcards $(foreach part,$(KERNEL_PARTS),'./$(part)'); \
	else echo "there is none to be had here: tests that boot one are skipped"; fi; \
	rm -f *.deb

clean:
	rm -rf $(VENV) $(SKYPILOT_VENV) $(OUT)
