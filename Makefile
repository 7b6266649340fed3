# `make demo` and `make test` are complete on a machine that has only Python 3.11 or 3.12, g++ and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: venv demo test test-long test-gpu lint types clean

venv: $(VENV)/.done

# The stamp depends on what is to be installed, so a second call does nothing.
$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[device,test,lint]'
	touch $@

# The main job: a synthetic checkpoint, the compiler, and generation from a real text.
demo: venv
	rm -rf build/tiny-checkpoint build/tiny-cpu
	$(BIN)/dinfc synth examples/tiny/config.json -o build/tiny-checkpoint --seed 1 --tokenizer examples/tiny/tokenizer.json
	$(BIN)/dinfc compile examples/tiny.yaml --target cpu -o build/tiny-cpu
	$(BIN)/python build/tiny-cpu generate --weights build/tiny-checkpoint --prompt-file examples/tiny/prompt.txt --max-tokens 48

# Two workers: each takes a core, and the tests that start threads take two for a moment.
test: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long and not gpu"

test-long: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "long"

test-gpu: venv
	$(BIN)/python -m pytest -m "gpu"

lint: venv
	$(BIN)/ruff check .

types: venv
	.ci/types $(BIN)/python

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis
