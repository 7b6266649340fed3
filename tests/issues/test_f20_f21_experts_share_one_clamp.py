"""F20: the shared expert missed the SwiGLU clamp. F21: the clamp is the gate's from above only, up's on both sides."""
from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor

from dinfc.frontend.deepseek_v41 import build_model
from dinfc.ir.graph import Module
from dinfc.ir.types import Limits
from frontend_support import example_config
from oracle.moe import expert
from support.op_run import run_one

LIMIT = 10.0
EDGES = (-20.0, -11.0, -LIMIT, -1.0, 0.0, 1.0, LIMIT, 11.0, 20.0)


@lru_cache(maxsize=1)
def model() -> Module:
    return build_model(example_config("v41-flash"), Limits(2, 8, 512, 4096, (8,)), "fp4").module


def test_both_kinds_of_expert_of_every_layer_are_the_same_op_with_the_same_limit() -> None:
    layers = [f for name, f in model().functions.items() if name not in ("prepare", "forward", "head")]
    assert layers
    for function in layers:
        clamps = [op for op in function.ops if op.kind == "swiglu_clamp"]
        assert [op.attrs for op in clamps] == [{"limit": LIMIT}] * 2
        assert sorted(len(op.operands) for op in clamps) == [1, 2]  # the shared one has no routing weight


def oracle_hidden(gate: Tensor, up: Tensor, weight: Tensor | None) -> Tensor:
    """hh of spec 3.2 where both products are the given numbers: one input channel that is 1."""
    x = torch.zeros(1, 32, dtype=torch.float64)
    x[0, 0] = 1.0
    w1, w3 = torch.zeros(gate.numel(), 32, dtype=torch.float64), torch.zeros(up.numel(), 32, dtype=torch.float64)
    w1[:, 0], w3[:, 0] = gate, up
    return expert(x, w1, w3, torch.zeros(1, gate.numel(), dtype=torch.float64), weight, LIMIT).hh


@pytest.mark.parametrize("routed", [False, True])
def test_every_pair_around_the_limit_equals_the_oracle(routed: bool) -> None:
    pairs = [(g, u) for g in EDGES for u in EDGES] + [(0.0, 0.0)] * 15  # 96 channels, whole groups of 32
    gate, up = (torch.tensor([p[n] for p in pairs], dtype=torch.float64) for n in (0, 1))
    weight = torch.tensor([0.75], dtype=torch.float64) if routed else None
    operands = [("bf16", torch.cat([gate, up]).unsqueeze(0))] + ([("f32", weight)] if routed else [])
    assert torch.equal(run_one("swiglu_clamp", *operands, limit=LIMIT), oracle_hidden(gate, up, weight))


def hidden(gate: float, up: float) -> float:
    return float(run_one("swiglu_clamp", ("bf16", [[gate, up]]), limit=LIMIT))


def test_the_gate_is_not_clamped_from_below_and_up_is_clamped_on_both_sides() -> None:
    assert hidden(-20.0, 1.0) != hidden(-LIMIT, 1.0)
    assert hidden(20.0, 1.0) == hidden(LIMIT, 1.0)
    assert hidden(1.0, -20.0) == hidden(1.0, -LIMIT)
    assert hidden(1.0, 20.0) == hidden(1.0, LIMIT)
    assert hidden(1.0, 9.0) != hidden(1.0, LIMIT)
