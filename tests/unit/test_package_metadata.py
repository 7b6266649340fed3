"""What a package says of itself: names of files, sizes, tables; and that `pip install` would take all of it."""
from __future__ import annotations

import json
import math
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from dinfc.codegen.package import BuildOptions
from dinfc.codegen.plan_json import CPU_FEATURES, lines_json
from dinfc.frontend.model_yaml import load_model_yaml
from dinfc.host import ISA_FLAGS
from dinfc.ir.plan import LAUNCHER_ABI, PLAN_FORMAT, STEP_FIELDS, step_lengths
from dinfc.ir.types import Limits
from dinfc.runtime import plan as runtime_plan
from dinfc.runtime.memory import allocate
from dinfc.runtime.package import open_package
from dinfc.runtime.plan import file_hash, load_plan
from dinfc.runtime.random_weights import RandomTensors, random_token_map
from dinfc.runtime.weights import fill
from dinfc.runtime.weights_plan import load_weights_plan
from support.compiled_model import ROOT
from support.package import compile_to, deployment, package

DTYPE_BYTES = {"f32": 4, "i32": 4, "i64": 8, "u8": 1, "u32": 4, "bf16": 2}
LOCAL = ("packed", "__pycache__")  # made when a package is used


def written_files() -> list[str]:
    root = package(checked=True)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and not set(LOCAL) & set(p.parts))


def test_pip_installs_every_file_under_a_name_that_python_can_import() -> None:
    """Every file but pyproject.toml lies in a package folder or matches a pattern of its data; no pattern is idle."""
    root = package(checked=True)
    project = tomllib.loads((root / "pyproject.toml").read_text())
    tool = project["tool"]["setuptools"]
    module, inner = tool["packages"]
    assert module.isidentifier() and inner == f"{module}.runtime"
    assert tool["package-dir"] == {module: ".", inner: "runtime"}
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", project["project"]["name"])
    patterns = tool["package-data"][module]
    files = written_files()
    code = [f for f in files if f.endswith(".py") and Path(f).parent.as_posix() in (".", "runtime")]
    data = [f for f in files if any(fnmatch(f, p) and f.count("/") == p.count("/") for p in patterns)]
    assert sorted([*code, *data, "pyproject.toml"]) == files
    for pattern in patterns:
        assert any(fnmatch(f, pattern) for f in data), pattern
    assert {"__init__.py", "__main__.py", "runtime/__init__.py", "runtime/cli.py"} <= set(code)


def test_the_runtime_is_copied_as_it_is_and_whole() -> None:
    root = package()
    ours = {p.name: p.read_bytes() for p in (ROOT / "runtime").glob("*.py")}
    assert {p.name: p.read_bytes() for p in (root / "runtime").glob("*.py")} == ours


def test_the_hashes_are_those_of_the_files() -> None:
    for checked, libraries in ((False, {"libkernels.so"}), (True, {"libkernels.so", "libkernels_checked.so"})):
        root = package(checked=checked)
        files = load_plan(root).files
        assert set(files) == {"constants.bin", "weights.json", "config.json"} | libraries
        assert {name: file_hash(root / name) for name in files} == files


def test_compiler_and_runtime_agree_on_versions_and_on_the_step() -> None:
    assert (runtime_plan.PLAN_FORMAT, runtime_plan.LAUNCHER_ABI) == (PLAN_FORMAT, LAUNCHER_ABI)
    plan = load_plan(package())
    given = deployment()
    limits = Limits(given.max_seqs, given.max_tokens, given.max_len, given.score_bytes, tuple(given.buckets))
    lengths = step_lengths(limits, plan.max_logit_rows)
    assert tuple(plan.step) == STEP_FIELDS
    at = 0
    for name in STEP_FIELDS:
        assert (plan.step[name].offset, plan.step[name].length) == (at, lengths[name])
        at += lengths[name]


def test_tables_lie_in_constants_bin_one_after_the_other() -> None:
    plan = load_plan(package())
    end = 0
    for constant in plan.constants:
        assert constant.offset % 64 == 0 and constant.offset >= end
        assert constant.bytes == math.prod(constant.shape) * DTYPE_BYTES[constant.dtype]
        end = constant.offset + constant.bytes
    assert end == (package() / "constants.bin").stat().st_size
    raw = np.fromfile(package() / "constants.bin", np.uint8)
    rope = next(c for c in plan.constants if c.name == "rope_window")
    first = raw[rope.offset :][: rope.bytes].view(np.float32).reshape(rope.shape)[0]
    assert set(first.tolist()) == {0.0, 1.0}, "cosines and sines of position 0"


def test_weights_json_reads_every_tensor_of_the_backbone_once() -> None:
    weights = load_weights_plan(package())
    names = [t.name for t in weights.tensors]
    assert len(set(names)) == len(names)
    assert sum(b.bytes for b in weights.buffers) == load_plan(package()).weight_bytes
    used = [s for step in weights.load for s in step.sources if s != "engram.token_map"]
    assert set(used) <= set(names) and len(set(used)) == len(used)
    backbone = {t.name for t in weights.tensors if t.role == "backbone"}
    assert set(used) <= backbone
    rest = {name.split(".", 2)[-1] for name in backbone - set(used)}
    assert rest == {"ffn.gate.bias_vl"}, "the router's bias for image tokens, which a text package never uses"
    targets = {(number, offset) for step in weights.load for number, offset in step.targets}
    assert {number for number, _ in targets} == set(range(len(weights.buffers)))
    assert len(targets) == sum(len(step.targets) for step in weights.load)


def test_load_steps_write_every_byte_of_the_packed_weights() -> None:
    """From memory of zeros and from memory of ones the same bytes: none is left as it was."""
    opened = open_package(package())
    source = RandomTensors({t.name: t for t in opened.weights.tensors}, 3)

    def packed(before: int, threads: int) -> list[bytes]:
        buffers = {i: allocate(b.bytes) for i, b in enumerate(opened.weights.buffers)}
        for buffer in buffers.values():
            buffer.fill(before)
        fill(opened.weights, source, opened.library(), buffers, random_token_map(opened.plan.model), threads)
        return [buffers[i].tobytes() for i in range(len(buffers))]

    zeros, ones = packed(0, 1), packed(255, 2)
    for buffer, a, b in zip(opened.weights.buffers, zeros, ones, strict=True):
        assert a == b, buffer.name


def test_the_packaged_deployment_compiles_to_the_same_plan(tmp_path: Path) -> None:
    """model.yaml and config.json of a package are all that it takes to make it again."""
    given = load_model_yaml(package() / "model.yaml", ("cpu",))
    assert given.cpu_isa == "avx2", "the instruction set is resolved, so another host changes nothing"
    again = compile_to(tmp_path / "again", given, BuildOptions(build=False))
    ours, theirs = (json.loads((root / "plan.json").read_text()) for root in (package(), again))
    del ours["files"], theirs["files"]
    assert ours == theirs
    for name in ("model.yaml", "config.json", "weights.json", "kernels/src/launcher.cc"):
        assert (package() / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.parametrize("isa", sorted(CPU_FEATURES))
def test_a_package_asks_for_no_less_than_the_compiler_uses(isa: str) -> None:
    assert ISA_FLAGS[isa] <= set(CPU_FEATURES[isa])


def test_plan_files_are_json_with_one_line_an_item() -> None:
    document = {"a": [[1, 2], [3]], "b": [1, 2], "c": {"x": 1}, "d": [], "e": "ü", "f": [{"y": None}]}
    text = lines_json(document)
    assert json.loads(text) == document
    assert text.splitlines()[1:5] == ['"a": [', " [1, 2],", " [3]", "],"]
    assert "ü" in text
