"""Design section 11, rungs 2 and 3: every kernel of the tiny model, fast against checked build (bitwise) and against
the reference interpreter on the interpreter's own inputs."""
from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from oracle import random_tensors, tiny_config, tiny_token_map

from dinfc.ir.graph import Function
from dinfc.ir.scalar import Expr, walk
from dinfc.reference import ReferenceModel
from support.compiled_model import kernel_library, scheduled_model
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


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    tiny = scheduled_model("tiny-test")
    config = tiny_config()
    model = ReferenceModel(tiny.deployment.config, tiny.limits, tiny.deployment.cache_main,
                           random_tensors(config, seed=3), tiny_token_map())
    checked = CheckedRegions(tiny.module, model.interpreter.weights,
                             [kernel_library("tiny-test", False), kernel_library("tiny-test", True)],
                             model.slots, model.page_count)
    model.interpreter = checked
    ids = torch.randint(0, tiny.deployment.config.vocab_size, (90,), generator=torch.Generator().manual_seed(1)).tolist()
    first, second = model.new_sequence(), model.new_sequence()
    model.step([(first, ids[:33]), (second, ids[33:40])])
    model.step([(second, ids[40:41]), (first, ids[41:71])])
    model.step([(second, ids[71:72]), (first, ids[72:73])])
    return checked.findings


def worst(findings: Iterable[Finding], kind: str) -> list[Finding]:
    return [f for f in findings if f.kind == kind]


def test_every_kernel_of_a_step_was_compared(findings: list[Finding]) -> None:
    tiny = scheduled_model("tiny-test")
    expected = {str(op.attrs["kernel"]) for name, f in tiny.module.functions.items() if not name.startswith("load.")
                for op in f.ops if op.kind == "region"}
    assert {f.kernel for f in findings} == expected
    assert {f.anchor for f in findings} >= {"row", "matmul", "grouped_matmul", "attend", "score", "select", "scan"}


def test_indices_slots_and_states_are_exact(findings: list[Finding]) -> None:
    assert [f for f in worst(findings, "exact") if f.wrong] == []


def test_codes_of_fused_quantisers_are_within_one_step(findings: list[Finding]) -> None:
    codes = worst(findings, "codes")
    assert len(codes) > 50
    assert [f for f in codes if f.steps > 1] == []
    by_result: dict[tuple[str, str], list[float]] = {}
    for f in codes:
        by_result.setdefault((f.kernel, f.result), []).append(f.wrong)
    # Over all runs of one quantiser: a single step of a few rows is too small a sample for a share of 1e-3.
    assert {k: v for k, v in by_result.items() if sum(v) / len(v) > CODES_WRONG} == {}


def test_floats_are_within_the_rounding_of_their_order(findings: list[Finding]) -> None:
    tiny = scheduled_model("tiny-test")
    bodies = {str(op.attrs["kernel"]): op.regions[0] for f in tiny.module.functions.values() for op in f.ops
              if op.kind == "region"}
    elems = {(k, r.name): r.tensor.elem for k, body in bodies.items() for r in body.results if hasattr(r.type, "elem")
             and hasattr(r.type, "bounds")}
    floats = worst(findings, "float")
    assert len(floats) > 100
    for f in floats:
        fine = elems.get((f.kernel, f.result)) == "f32" and not rounds_inside(bodies[f.kernel])
        assert f.error <= (F32_ERROR if fine else BF16_ERROR), f
