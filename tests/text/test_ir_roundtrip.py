"""Print and parse are inverse on every function of every example, before and after the passes."""
from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest

import pytest

from dinfc.ir.graph import Module
from dinfc.ir.parse import parse_module
from dinfc.ir.text import print_module
from dinfc.ir.verify import check_function
from dinfc.passes.base import Context
from dinfc.pipeline import Run, load_target, run_pipeline
from support.compiled_model import scheduled_model

EXAMPLES = ("tiny-test", "production-shape", "v41-flash")
STAGES = ("model", "decompose", "assign_layouts")


@lru_cache(maxsize=9)
def module_after(example: str, stage: str) -> Module:
    compiled = scheduled_model(example)
    if stage == "model":
        return compiled.model.module
    context = Context(load_target("cpu", "avx2"), compiled.limits, compiled.model.max_logit_rows,
                      dict(compiled.model.recipes))
    return run_pipeline(compiled.model.module, context, run=Run(stop_after=stage))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_text_round_trip(example: str, stage: str) -> None:
    module = module_after(example, stage)
    text = print_module(module)
    again = parse_module(text)
    assert list(again.functions) == list(module.functions)
    different = [f"{a}\n{b}" for a, b in zip_longest(text.splitlines(), print_module(again).splitlines()) if a != b]
    assert different[:1] == []


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_what_was_parsed_verifies(example: str, stage: str) -> None:
    module = parse_module(print_module(module_after(example, stage)))
    problems = [p for f in module.functions.values() for p in check_function(f, module)]
    assert [str(p)[:300] for p in problems[:1]] == []


def test_full_size_has_every_layer_kind_once() -> None:
    """Layer kinds are functions: forty layers are calls of about ten of them."""
    module = module_after("v41-flash", "model")
    calls = [op for op in module.functions["forward"].ops if op.kind == "call"]
    assert len(calls) == 40
    assert len({str(op.attrs["callee"]) for op in calls}) <= 14
