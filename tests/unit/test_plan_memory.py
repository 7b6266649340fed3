"""Every kernel finds its operands where the plan says, in every bucket; memory is what the limits allow, no more."""
from __future__ import annotations

import dataclasses

import pytest

from dinfc.codegen.binding import storage_shapes
from dinfc.ir import build as ir
from dinfc.ir.graph import IRError, Module
from dinfc.ir.types import TensorType, dim_text
from dinfc.passes.assign_layouts import AssignLayouts
from dinfc.passes.base import Context, Pass
from dinfc.passes.canonicalize import Canonicalize
from dinfc.passes.decompose import Decompose
from dinfc.passes.fuse import Fuse
from dinfc.passes.pin_reductions import PinReductions
from dinfc.passes.plan_launches import PlanLaunches
from dinfc.passes.plan_memory import PlanMemory
from dinfc.passes.storage import pieces
from support.pass_models import LIMITS, T, add_layer, context, new_function, new_module, run, value, whole_model
from support.plan_shadow import Shadow

FRONT: tuple[Pass, ...] = (Canonicalize(), Decompose(), PinReductions(), Fuse())
PASSES: tuple[Pass, ...] = (*FRONT, AssignLayouts(), PlanMemory(), PlanLaunches())


def planned(module: Module, ctx: Context | None = None) -> Context:
    return run(module, PASSES, ctx)


@pytest.mark.parametrize("bucket", [0, 1])
def test_every_kernel_finds_its_operands(bucket: int) -> None:
    module = whole_model(layers=4)
    ctx = planned(module)
    assert ctx.plan is not None
    assert Shadow(module, ctx, bucket).run() == len(ctx.plan.launches)


def test_small_regions_do_not_change_what_kernels_find() -> None:
    module = whole_model(layers=2)
    ctx = run(module, (*FRONT[:3], Fuse(max_ops=2), AssignLayouts(), PlanMemory(), PlanLaunches()))
    assert Shadow(module, ctx, 1).run() == 60


def test_layers_share_one_frame() -> None:
    few, many = planned(whole_model(layers=2)), planned(whole_model(layers=6))
    # Six layers need no more scratch than two: frames share a base, edge values alternate.
    assert many.arena is not None and few.arena is not None
    assert many.arena.bytes[1] - few.arena.bytes[1] <= 64 * 64 * 2


def test_scores_take_the_rows_of_a_chunk_only() -> None:
    ctx = planned(whole_model(layers=2))
    rows = LIMITS.score_bytes // (2 * 256)
    assert ctx.frames["source"].sizes["scores"] == (8 * 256 * 2, rows * 256 * 2)
    assert ctx.frames["source"].sizes["best"] == (8 * 32 * 4, rows * 32 * 4)


def test_a_chunk_is_at_least_one_row_and_at_most_a_step() -> None:
    for budget, rows in ((1, 1), (2 * 256 * 3, 3), (1 << 30, LIMITS.max_tokens)):
        ctx = planned(whole_model(layers=1), context(dataclasses.replace(LIMITS, score_bytes=budget)))
        assert ctx.plan is not None and [loop.rows for loop in ctx.plan.loops] == [rows]


def test_results_that_are_arguments_are_not_copied() -> None:
    module = new_module()
    b, p = new_function(module, "hand_through", [value("x", "f32", T, 4), value("y", "f32", T, 4)])
    b.function.results = [p["y"], ir.view(b, p["x"], (T, 2, 2), "shown"), ir.emap(b, lambda a: a + 1.0, [p["x"]])]
    callee = b.function
    b, p = new_function(module, "prepare", [])
    b.function.results = [ir.emap(b, lambda: 1.0, [], dims=[], shape=(T, 4), hint="one"),
                          ir.emap(b, lambda: 2.0, [], dims=[], shape=(T, 4), hint="two")]
    b, p = new_function(module, "forward", [value("one", "f32", T, 4), value("two", "f32", T, 4)])
    same, shown, more = ir.call(b, callee, [p["one"], p["two"]])
    flat = ir.view(b, shown, (T, 4), "flat")
    b.function.results = [ir.emap(b, lambda u, v, w: u + v * w, [same, flat, more], hint="sum"), same]
    ctx = planned(module)
    assert Shadow(module, ctx, 1).run() == 3
    assert ctx.plan is not None and ctx.arena is not None
    assert ctx.plan.outputs[1].offsets == ctx.arena.metadata["two"][0]


def test_functions_that_call_each_other_are_refused() -> None:
    module = new_module()
    b, p = new_function(module, "forward", [value("x", "f32", T, 4)])
    b.function.results = [p["x"]]
    b.function.results = ir.call(b, b.function, [p["x"]])
    with pytest.raises(IRError, match="in a circle: forward -> forward"):
        PlanMemory().run(module, context())


def test_sizes_are_those_that_kernels_are_given() -> None:
    for type_ in (TensorType("f32", (T, 7)), TensorType("mxfp8<32>", (T, 64)), TensorType("mxfp4<32>", (T, 2, 64)),
                  TensorType("fp4e4m3<16>", (T, 32)), TensorType("wfp8<32x32>", (96, 64)),
                  TensorType("wfp8<32x32>", (96, 64), layout="n16k"), TensorType("bf16", (24, 40), layout="n16k"),
                  TensorType("mxfp4<32>", (8, 64, 32), layout="n16k4"), TensorType("i32", (8 * T + 3,))):
        ours = [(p.dtype, tuple(dim_text(d) for d in p.shape)) for p in pieces(type_)]
        assert ours == [(dtype, tuple(dim_text(d) for d in shape)) for dtype, shape in storage_shapes(type_)]


def test_a_layer_kind_alone_can_be_planned() -> None:
    module = new_module()
    add_layer(module, "source", True)
    ctx = run(module, (*FRONT, PlanMemory()))
    assert ctx.frames["source"].bytes[1] > 0
