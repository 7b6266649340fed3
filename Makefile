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
