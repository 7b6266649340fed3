"""The package writer: everything a compiled model needs to run, in one folder (design section 9).

| path | what |
|---|---|
| `plan.json`, `weights.json`, `constants.bin` | the plan, how weights are packed, tables (plan_json.py) |
| `model.yaml`, `config.json` | the deployment as resolved |
| `kernels/*.tir` | tile programs |
| `kernels/src/` | generated C++ with origin comments, `build.sh` |
| `libkernels.so`, `libkernels_checked.so` | kernel libraries, unless they are left for build.sh |
| `runtime/`, `__main__.py`, `pyproject.toml` | the runtime: `python OUT ...`, or `pip install OUT` |
| `catalogue.json` | error texts |

The bytes depend on the input alone: no paths, times, build ids or numbers of jobs.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from dinfc.ir.graph import Module
from dinfc.ir.plan import Plan
from dinfc.ir.tile.text import print_program

from .emit.cpu_build import build_library, build_script, check_symbols
from .emit.cpu_sources import library_sources
from .launcher import LAUNCHER_FILE, emit_launcher, kernel_order
from .plan_json import ExpectedTensor, ModelFacts, constants_bin, plan_json, weights_json

LIBRARY, CHECKED_LIBRARY = "libkernels.so", "libkernels_checked.so"
SOURCES = "kernels/src"
MAIN = '''"""`python FOLDER COMMAND ...`, or `python -m PACKAGE COMMAND ...` once it is installed."""
import sys
from pathlib import Path

if __package__:
    from .runtime.cli import main
else:
    from runtime.cli import main

raise SystemExit(main(Path(__file__).resolve().parent, sys.argv[1:]))
'''
PYPROJECT = '''[build-system]
requires = ["setuptools>=69"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "0.1.0"
description = "{model} compiled for {target} by dinfc"
requires-python = ">=3.11"
dependencies = ["numpy>=1.26", "tokenizers>=0.20"]

[tool.setuptools]
packages = ["{module}", "{module}.runtime"]

[tool.setuptools.package-dir]
"{module}" = "."
"{module}.runtime" = "runtime"

[tool.setuptools.package-data]
"{module}" = ["*.json", "*.yaml", "*.bin", "*.so", "kernels/*.tir", "kernels/src/*", "kernels/src_checked/*"]
'''


@dataclass(frozen=True)
class PackageInput:
    """What goes into a package. `catalogue`: error texts of the runtime; `tensors`: those of a checkpoint."""

    plan: Plan
    module: Module
    model: ModelFacts
    isa: str
    memory_fraction: float
    passes: Sequence[str]
    tensors: Sequence[ExpectedTensor]
    model_yaml: str
    config_json: str
    catalogue: Mapping[str, Mapping[str, str | int]]


@dataclass(frozen=True)
class BuildOptions:
    """How libraries are made. `build` False: sources and build.sh only. `cache`: folder of compiled objects."""

    build: bool = True
    checked: bool = False
    jobs: int = 2
    cache: Path | None = None


@dataclass
class Written:
    """Files of the package whose hashes plan.json records."""

    root: Path
    hashes: dict[str, str] = field(default_factory=dict)

    def file(self, name: str, data: bytes | str, recorded: bool = False) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = data.encode() if isinstance(data, str) else data
        path.write_bytes(raw)
        if recorded:
            self.hashes[name] = hashlib.sha256(raw).hexdigest()


def write_package(root: Path, given: PackageInput, options: BuildOptions) -> None:
    """Writes the package into the empty folder `root`. Raises BuildError (no compiler, a compiler's error)."""
    out = Written(root)
    programs = [given.plan.programs[name] for name in kernel_order(given.plan)]
    for program in programs:
        out.file(f"kernels/{program.name}.tir", print_program(program))
    write_kernels(out, given, options, checked=False)
    if options.checked:
        write_kernels(out, given, options, checked=True)
    out.file("constants.bin", constants_bin(given.module, given.plan), recorded=True)
    out.file("weights.json", weights_json(given.plan, given.tensors), recorded=True)
    out.file("config.json", given.config_json, recorded=True)
    out.file("model.yaml", given.model_yaml)
    out.file("catalogue.json", json.dumps(given.catalogue, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    write_runtime(out, given.model.name)
    out.file("plan.json", plan_json(given.plan, given.module, given.model, given.isa, given.memory_fraction,
                                    given.passes, out.hashes))


def write_kernels(out: Written, given: PackageInput, options: BuildOptions, checked: bool) -> None:
    """Sources and build script of one build, and its library unless that is left to the script."""
    folder, library = (f"{SOURCES}_checked", CHECKED_LIBRARY) if checked else (SOURCES, LIBRARY)
    sources = library_sources([given.plan.programs[name] for name in kernel_order(given.plan)], checked)
    sources[LAUNCHER_FILE] = emit_launcher(given.plan, checked)
    for name, text in sources.items():
        out.file(f"{folder}/{name}", text)
    out.file(f"{folder}/build.sh", build_script(sources, f"../../{library}", given.isa, checked))
    (out.root / folder / "build.sh").chmod(0o755)
    if options.build:
        made = build_library(sources, out.root / library, given.isa, options.jobs, checked, options.cache)
        check_symbols(made)
        out.hashes[library] = hashlib.sha256(made.read_bytes()).hexdigest()


def write_runtime(out: Written, model: str) -> None:
    """The runtime's sources, the entry point, and what pip needs."""
    for entry in sorted(resources.files("dinfc.runtime").iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".py"):
            out.file(f"runtime/{entry.name}", entry.read_bytes())
    name = f"{model}-cpu"
    module = "".join(c if c.isalnum() else "_" for c in name)
    out.file("__init__.py", f'"""{model}, compiled."""\n')
    out.file("__main__.py", MAIN)
    out.file("pyproject.toml", PYPROJECT.format(name=name, model=model, target="cpu", module=module))
