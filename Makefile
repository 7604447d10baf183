# Front door. `make run`: the main job; `make test`: everything that must hold. Both install what they need (Debian 12).
# Knows targets and packages; how things are compiled is in CMakeLists.txt and CMakePresets.json.
SHELL := /bin/bash
.DEFAULT_GOAL := build

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
RANKS ?= 4
GRADIENTS ?=
FUZZ_SECONDS ?= 60

PACKAGES := g++ cmake ninja-build pkg-config ccache python3 iproute2 libhwy-dev libxxhash-dev libgtest-dev \
  libbenchmark-dev libcli11-dev nlohmann-json3-dev
ARM_PACKAGES := g++-aarch64-linux-gnu qemu-user googletest
BENCH_PACKAGES := iperf3 openmpi-bin libopenmpi-dev
CLANG_PACKAGES := clang libclang-rt-14-dev
LINT_PACKAGES := clang-format clang-tidy $(CLANG_PACKAGES)

# $(call build,preset,targets): configuring again is quick and picks up new files' CMakeLists.
define build
@cmake --preset $(1) >build/$(1).configure.log 2>&1 || { cat build/$(1).configure.log; exit 1; }
cmake --build --preset $(1) --parallel $(JOBS) $(if $(2),--target $(2))
endef
CTEST = ctest -j $(JOBS) --preset

.PHONY: build deps run test test-all test-arm bench asan tsan fuzz format lint install install-default clean
.PHONY: deps-arm deps-bench deps-clang deps-lint

build: deps | build-folder
	$(call build,release)
	@ln -sfn release/libnccl-net-cgx.so build/libnccl-net-cgx.so
	@ln -sfn release/cgx build/cgx

.PHONY: build-folder
build-folder:
	@mkdir -p build

deps:
	@.ci/install $(PACKAGES)
deps-arm: deps
	@.ci/install $(ARM_PACKAGES)
deps-bench: deps
	@.ci/install $(BENCH_PACKAGES)
deps-clang: deps
	@.ci/install $(CLANG_PACKAGES)
deps-lint: deps
	@.ci/install $(LINT_PACKAGES)

# Four ranks on this host, real gradients, one table.
run: build
	@.ci/main-job $(RANKS) $(GRADIENTS)

test: build
	$(CTEST) release -LE slow
	$(MAKE) --no-print-directory asan tsan

test-all: build
	$(CTEST) release
	$(MAKE) --no-print-directory asan tsan
	$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600

# The contract suites under AddressSanitizer and UndefinedBehaviorSanitizer, and under ThreadSanitizer.
asan tsan: deps | build-folder
	$(call build,$@,contract_tests)
	$(CTEST) $@ -L contract -LE slow

# The NEON codec, on any host.
test-arm: deps-arm | build-folder
	$(call build,arm,arm_tests)
	$(CTEST) arm -L arm

bench: build deps-bench
	$(call build,release,benchmarks)
	.ci/bench

# FUZZ_SECONDS in all, shared evenly by the fuzzers.
fuzz: deps-clang | build-folder
	$(call build,fuzz,fuzzers)
	.ci/fuzz build/fuzz $(FUZZ_SECONDS)

format: deps-lint
	git ls-files '*.h' '*.cc' | xargs clang-format -i

lint: deps-lint | build-folder
	.ci/format-check
	$(call build,lint,header_checks)
	git ls-files 'src/*.cc' 'plugin/*.cc' 'tools/*.cc' | xargs -P $(JOBS) -n 4 clang-tidy --quiet -p build/lint
	$(call build,release,settings_table)
	python3 test/lint/check.py --table build/release/test/lint/settings_table

install: build
	DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX) --strip

# Makes us the network of every NCCL job on this host that names no other plugin: exact traffic only, unless a job names us.
install-default: install
	ln -sfn libnccl-net-cgx.so $(DESTDIR)$(PREFIX)/lib/libnccl-net.so

clean:
	rm -rf build
