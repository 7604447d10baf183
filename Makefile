# Front door. `make run`: the main job; `make test`: everything that must hold. Both install what they need.
SHELL := /bin/bash
.PHONY: build deps test
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
PACKAGES := g++ cmake ninja-build pkg-config libhwy-dev libgtest-dev libbenchmark-dev libxxhash-dev libcli11-dev nlohmann-json3-dev python3
deps:
	@dpkg -s $(PACKAGES) >/dev/null 2>&1 || { $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(PACKAGES); }
build: deps
	cmake --preset release >/dev/null
	cmake --build --preset release
test: build
	ctest --preset release
