# The front of the build; CMake and its presets (CMakePresets.json) do the work.

PREFIX_PATH   ?=
prefix        ?= /usr/local
DESTDIR       ?=
FUZZ_SECONDS  ?= 60
PYTHON        ?= python3
LLM_C         ?=
PARTS         ?=
export PREFIX_PATH
# What `make test` leaves out. `make asan` runs the longest tests under the sanitizers, too.
REST = build:long build-asan:quick,usual

configure = cmake --preset $(1) $(if $(PREFIX_PATH),-DCMAKE_PREFIX_PATH="$(PREFIX_PATH)") >/dev/null
build     = $(call configure,$(1)) && cmake --build --preset $(1)

.PHONY: all deps check test test-all equal demo asan clang fuzz bench install format clean help
all:
	@command -v cmake >/dev/null && command -v ninja >/dev/null || \
	    { echo "cmake or ninja is missing: run 'make deps' (installs Debian packages)" >&2; exit 1; }
	@$(call build,default)

deps:
	@tools/install_dependencies build

check:
	@tools/install_dependencies build test
	@$(call build,default)
	@tools/run_tests build:quick

test:
	@tools/install_dependencies build test
	@$(call build,default)
	@tools/run_tests build:quick,usual

test-all:
	@tools/install_dependencies build test torch clang
	@$(call build,default)
	@$(call build,asan)
	@if tools/run_fuzz --possible; then $(call build,fuzz) && tools/run_tests $(REST) build-fuzz; \
	else echo "clang's fuzzer is missing: the fuzz targets are left out"; tools/run_tests $(REST); fi

equal:
	@tools/install_dependencies build test
	@$(call configure,default) && cmake --build --preset default --target test_run_meshes test_run_checkpoint_all_meshes \
	    test_run_faults
	@OMP_WAIT_POLICY=passive build/tests/test_run_meshes all
	@OMP_WAIT_POLICY=passive build/tests/test_run_checkpoint_all_meshes all
	@OMP_WAIT_POLICY=passive build/tests/test_run_faults all

demo:
	@tools/install_dependencies build demo
	@$(call build,default)
	@tools/demo

asan:
	@tools/install_dependencies build test clang
	@$(call build,asan)
	@tools/run_tests build-asan

clang:
	@tools/install_dependencies build test clang
	@$(call build,clang)
	@tools/run_tests build-clang

fuzz:
	@tools/install_dependencies build clang
	@$(call build,fuzz)
	@tools/run_fuzz build-fuzz $(FUZZ_SECONDS)

bench: all
	@command -v python3 >/dev/null || { echo "'make bench' needs python3; without it: build/trireme bench step" >&2; exit 1; }
	@bench/run $(PARTS) $(PYTHON:%=--python=%) $(LLM_C:%=--llm_c=%)

install: all
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(prefix)"

format:
	@tools/check_format --fix

clean:
	rm -rf build build-asan build-clang build-fuzz

help:
	@echo "make            build build/trireme and the library"
	@echo "make check      build, run the quick tests: for after each change"
	@echo "make test       the same and the tests that take longer: whether this build can be trusted"
	@echo "make test-all   what make test leaves out: the longest tests, its own compiled by clang and under the"
	@echo "                sanitizers, and each fuzz target for a few seconds"
	@echo "make equal      train on every mesh of up to 8 ranks and print how far each is from one rank"
	@echo "make demo       install what is missing, build, train a small model on real text"
	@echo "make asan       all tests under the address and undefined-behaviour sanitizers, by clang"
	@echo "make clang      all tests, compiled by clang"
	@echo "make fuzz       fuzz every parser for FUZZ_SECONDS ($(FUZZ_SECONDS)) each"
	@echo "make bench      measure training speed into bench/results/, beside PyTorch if PYTHON=python3 has it, and llm.c"
	@echo "                if LLM_C=DIRECTORY names a checkout; PARTS=\"own pytorch llm_c switches\" chooses what"
	@echo "make install    install under prefix ($(prefix)), below DESTDIR if set"
	@echo "make deps       install the Debian packages that a build needs"
	@echo "make format     format the C sources in place"
	@echo "make clean      remove the build directories"
	@echo "PREFIX_PATH=\"/a;/b\" names other prefixes to find the dependencies in"
