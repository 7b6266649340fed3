"""The pipeline: what can be printed, dumped and stopped, what is verified after every pass, what it refuses."""
from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Module
from dinfc.ir.parse import parse_module
from dinfc.ir.text import print_module
from dinfc.passes.base import Context, Level, Pass
from dinfc.passes.pipeline_text import parse_pipeline, print_pipeline
from dinfc.pipeline import STANDARD, Run, load_target, passes_by_name, run_pipeline
from support.compiled_model import ROOT, scheduled_model
from support.pass_models import context

SMALL = """symbol T in [1, 64]
symbol S in [1, 8]
symbol R in [1, 8]
func @layer(%x: f32[T, 64]) -> (f32[T]) {
  %sum = reduce(%x) {axis = 1, op = "sum"} : f32[T]
  %y = map(%sum) {dims = ((0,),), expr := mul($0, 2.0), shape = ("T",)} : f32[T]
  return %y
}
"""


def small() -> Module:
    return parse_module(SMALL)


def test_every_pass_of_the_tiny_model_keeps_the_verifier_content() -> None:
    tiny = scheduled_model("tiny-test")
    shared = Context(load_target("cpu", "avx2"), tiny.limits, tiny.model.max_logit_rows, dict(tiny.model.recipes))
    run = Run(verify=True)
    run_pipeline(tiny.model.module, shared, run=run)
    assert [name for name, _ in run.times] == [p.name for p in STANDARD]
    assert shared.plan is not None and set(shared.plan.entries) == {"prepare", "forward", "head"}


def test_the_input_module_is_left_alone() -> None:
    module = small()
    before = print_module(module)
    run_pipeline(module, context())
    assert print_module(module) == before


def test_print_after_and_stop_after() -> None:
    run = Run(stop_after="pin_reductions", print_after=("decompose", "pin_reductions"))
    module = run_pipeline(small(), context(), run=run)
    assert [name for name, _ in run.printed] == ["decompose", "pin_reductions"]
    assert "order" not in run.printed[0][1] and 'order = "lanes(16; halves)"' in run.printed[1][1]
    assert "region" not in print_module(module)
    assert [name for name, _ in run.times][-1] == "pin_reductions"


def test_dump_ir_writes_numbered_files_that_parse_and_an_index(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    run_pipeline(small(), context(), run=Run(dump_dir=folder))
    names = sorted(p.name for p in folder.glob("*.ir"))
    assert names[0] == "00-input.ir" and names[-1] == f"{len(STANDARD):02}-plan_launches.ir"
    index = (folder / "index.md").read_text()
    for name in names:
        assert f"[{name}]({name})" in index
        parse_module((folder / name).read_text())


def test_an_unknown_pass_name_is_refused() -> None:
    with pytest.raises(DinfcError, match="E-CLI-021"):
        run_pipeline(small(), context(), run=Run(stop_after="fusee"))


def test_a_pass_that_needs_a_lower_module_says_so() -> None:
    with pytest.raises(DinfcError, match="E-IR-020"):
        run_pipeline(small(), context(), parse_pipeline("fuse", passes_by_name()))


@dataclass(frozen=True)
class ChangesAnOrder(Pass):
    """Plants the fault that makes a row depend on how it was computed."""

    name: ClassVar[str] = "changes_an_order"
    requires: ClassVar[Level] = Level.pinned

    def run(self, module: Module, context: Context) -> Module:
        for op in module.functions["layer"].ops:
            if op.kind == "reduce":
                op.attrs["order"] = "serial"
        return module


@dataclass(frozen=True)
class PromisesTooMuch(Pass):
    name: ClassVar[str] = "promises_too_much"
    guarantees: ClassVar[Level] = Level.fused

    def run(self, module: Module, context: Context) -> Module:
        return module


def test_a_pass_that_changes_an_order_is_refused() -> None:
    passes = (*STANDARD[:4], ChangesAnOrder())
    with pytest.raises(DinfcError, match="E-IR-023"):
        run_pipeline(small(), context(), passes, Run(verify=True))


def test_a_pass_that_breaks_its_promise_is_refused() -> None:
    with pytest.raises(DinfcError, match="E-IR-022"):
        run_pipeline(small(), context(), (PromisesTooMuch(),), Run(verify=True))


def test_pipeline_text_round_trip() -> None:
    text = "canonicalize,decompose,fuse{max_ops=4},verify"
    passes = parse_pipeline(text, passes_by_name())
    assert print_pipeline(passes) == text
    assert passes[2] == dataclasses.replace(passes[2])


@pytest.mark.parametrize(("text", "code"), [
    ("fusee", "E-CLI-021"), ("fuse{max_op=4}", "E-CLI-022"), ("fuse{max_ops=four}", "E-CLI-022"),
    ("fuse{max_ops=4", "E-CLI-020"), ("", "E-CLI-020"), ("fuse verify", "E-CLI-020"),
])
def test_a_mistake_in_pipeline_text_is_one_catalogued_error(text: str, code: str) -> None:
    with pytest.raises(DinfcError) as raised:
        parse_pipeline(text, passes_by_name())
    assert raised.value.code == code
    assert raised.value.place is not None and "^" in str(raised.value.place.excerpt)


def test_max_ops_is_an_option_that_changes_the_output() -> None:
    whole = run_pipeline(small(), context(), STANDARD[:5])
    cut = run_pipeline(small(), context(), (*STANDARD[:4], *parse_pipeline("fuse{max_ops=1}", passes_by_name())))
    count = [sum(op.kind == "region" for op in m.functions["layer"].ops) for m in (whole, cut)]
    assert count == [1, 2]


@pytest.mark.parametrize("example", ["tiny-test", "v41-flash"])
def test_a_full_score_matrix_never_exists(example: str) -> None:
    """Scores of a chunk stay within score_bytes, a row of 131072 scores included, and the plan says so."""
    compiled = scheduled_model(example)
    shared = Context(load_target("cpu", "avx2"), compiled.limits, compiled.model.max_logit_rows,
                     dict(compiled.model.recipes))
    run_pipeline(compiled.model.module, shared)
    plan = shared.plan
    assert plan is not None and plan.loops
    scores = {op.result.tensor.shape[1] for f in compiled.module.functions.values() for region in f.ops
              if region.kind == "region" for op in region.regions[0].ops if op.kind == "index_score"}
    widest = max(d for d in scores if isinstance(d, int))
    rows = min(loop.rows for loop in plan.loops)
    assert rows * widest * 2 <= compiled.limits.score_bytes or rows == 1
    assert f"{widest} scores" in " ".join(shared.notes["plan_launches"])
    if example == "v41-flash":
        assert widest == 131072


SCRIPT = """
import hashlib, sys
sys.path.insert(0, "tests")
from support.compiled_model import scheduled_model
from dinfc.ir.text import print_module
m = scheduled_model("tiny-test")
print(hashlib.sha256(print_module(m.module).encode()).hexdigest(), *sorted(m.context.programs))
"""


def test_output_does_not_depend_on_the_hash_seed() -> None:
    out = []
    for seed in ("1", "77"):
        done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
                              capture_output=True, text=True, check=True)
        out.append(done.stdout)
    assert out[0] == out[1]
    own = scheduled_model("tiny-test")
    assert out[0].split()[0] == hashlib.sha256(print_module(own.module).encode()).hexdigest()
