"""Design section 11, rungs 2 and 3: every kernel of the tiny and of the production-shape model, fast against checked
build (bitwise) and against the reference interpreter on the interpreter's own inputs."""
from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

from dinfc.ir.graph import Function
from dinfc.ir.scalar import Expr, walk
from dinfc.reference import ReferenceModel
from oracle import random_tensors
from support.compiled_model import ROOT, kernel_library, scheduled_model
from support.kernel_diff import CheckedRegions, Finding

# The reference is its value after the last rounding, so results may lie one bf16 step apart: 2^-7 of an element's own
# size, which is 2^-8 of the sum of that and the row's largest (what `Finding.error` is relative to).
BF16_ERROR = 2.0**-8
F32_ERROR = 2.0**-20
CODES_WRONG = 1e-3


def rounds_inside(body: Function) -> bool:
    """Whether some value inside a kernel is rounded to bf16 or to codes: a flip there moves fp32 results made of it."""
    for op in body.ops:
        expr = op.attrs.get("expr")
        if op.kind == "quantize" or (isinstance(expr, Expr) and any(
                n.op == "cast" and n.dtype == "bf16" for n in walk(expr))):
            return True
    return False


@dataclass(frozen=True)
class Compared:
    """An example and what was found when its kernels ran."""

    example: str
    findings: list[Finding]

    def of_kind(self, kind: str) -> list[Finding]:
        return [f for f in self.findings if f.kind == kind]


@pytest.fixture(scope="module", params=["tiny-test", "production-shape"])
def compared(request: pytest.FixtureRequest) -> Compared:
    example = str(request.param)
    compiled = scheduled_model(example)
    config = json.loads((ROOT / "examples" / example / "config.json").read_text())
    vocab = compiled.deployment.config.vocab_size
    model = ReferenceModel(compiled.deployment.config, compiled.limits, compiled.deployment.cache_main,
                           random_tensors(config, seed=3), [i // 2 for i in range(vocab)])
    checked = CheckedRegions(compiled.module, model.interpreter.weights,
                             [kernel_library(example, False), kernel_library(example, True)],
                             model.slots, model.page_count)
    model.interpreter = checked
    ids = torch.randint(0, vocab, (90,), generator=torch.Generator().manual_seed(1)).tolist()
    first, second = model.new_sequence(), model.new_sequence()
    model.step([(first, ids[:33]), (second, ids[33:40])])
    model.step([(second, ids[40:41]), (first, ids[41:71])])
    model.step([(second, ids[71:72]), (first, ids[72:73])])
    return Compared(example, checked.findings)


def test_every_kernel_of_a_step_was_compared(compared: Compared) -> None:
    model = scheduled_model(compared.example)
    expected = {str(op.attrs["kernel"]) for name, f in model.module.functions.items() if not name.startswith("load.")
                for op in f.ops if op.kind == "region"}
    assert {f.kernel for f in compared.findings} == expected
    anchors = {"row", "matmul", "grouped_matmul", "attend", "score", "select", "scan"}
    assert {f.anchor for f in compared.findings} == anchors


def test_indices_slots_and_states_are_exact(compared: Compared) -> None:
    assert [f for f in compared.of_kind("exact") if f.wrong] == []


def test_codes_of_fused_quantisers_are_within_one_step(compared: Compared) -> None:
    codes = compared.of_kind("codes")
    assert len(codes) > 50
    assert [f for f in codes if f.steps > 1] == []
    by_result: dict[tuple[str, str], list[float]] = {}
    for f in codes:
        by_result.setdefault((f.kernel, f.result), []).append(f.wrong)
    # Over all runs of one quantiser: a single step of a few rows is too small a sample for a share of 1e-3.
    assert {k: v for k, v in by_result.items() if sum(v) / len(v) > CODES_WRONG} == {}


def test_floats_are_within_the_rounding_of_their_order(compared: Compared) -> None:
    model = scheduled_model(compared.example)
    bodies = {str(op.attrs["kernel"]): op.regions[0] for f in model.module.functions.values() for op in f.ops
              if op.kind == "region"}
    elems = {(k, r.name): r.tensor.elem for k, body in bodies.items() for r in body.results if hasattr(r.type, "elem")
             and hasattr(r.type, "bounds")}
    floats = compared.of_kind("float")
    assert len(floats) > 100
    for f in floats:
        fine = elems.get((f.kernel, f.result)) == "f32" and not rounds_inside(bodies[f.kernel])
        assert f.error <= (F32_ERROR if fine else BF16_ERROR), f
