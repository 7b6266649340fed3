"""Packing kernels: every load kernel of the tiny model, and matrices whose rows are no multiple of 16."""
from __future__ import annotations

import numpy
import pytest

from dinfc.codegen.schedules.move import MoveSchedule
from dinfc.ir.graph import Function, IRError, Module, Op, Value
from dinfc.ir.tile.program import Program
from dinfc.ir.types import TensorType
from dinfc.pipeline import load_target
from support.compiled_model import scheduled_model
from support.cpu_run import run_program
from support.stored_values import n16k

NUMPY = {"u8": numpy.uint8, "f32": numpy.float32, "bf16": numpy.uint16}


def relayout_region(elem: str, shape: tuple[int, ...], layout: str) -> Op:
    plain = Value("part", TensorType(elem, shape))
    op = Op("relayout", [plain], {"layout": layout})
    op.results = [Value("packed", TensorType(elem, shape, layout=layout), op)]
    region = Op("region", [Value("part", plain.type)], {"anchor": "move", "kernel": "pack"},
                regions=[Function("pack", [plain], [op], op.results)])
    region.results = [Value("packed", op.result.type, region)]
    return region


def program_of(elem: str, shape: tuple[int, ...], layout: str) -> Program:
    return MoveSchedule().build(relayout_region(elem, shape, layout), "pack", load_target("cpu").limits, Module())


def check(program: Program, layout: str, packs_pairs: bool) -> None:
    rng = numpy.random.default_rng(0)
    arrays = {}
    for b in program.params:
        shape = tuple(int(d.attr) for d in b.shape if isinstance(d.attr, int))
        arrays[b.name] = rng.integers(0, 255, shape).astype(NUMPY[b.dtype]) if b.mode == "in" else (
            numpy.full(shape, 0xFF).astype(NUMPY[b.dtype]))
    ins = [b.name for b in program.params if b.mode == "in"]
    outs = [b.name for b in program.params if b.mode == "out"]
    source = arrays[ins[0]]
    if packs_pairs:
        source = numpy.stack((source & 15, source >> 4), -1).reshape(*source.shape[:-1], -1)
    for checked in (False, True):
        for name in outs:
            arrays[name].view(numpy.uint8).fill(0xFF)
        run_program(program, arrays, checked=checked, threads=2)
        numpy.testing.assert_array_equal(arrays[outs[0]], n16k(source, packs_pairs))
        if len(outs) > 1:
            numpy.testing.assert_array_equal(arrays[outs[1]], arrays[ins[1]])


def test_every_load_kernel_of_the_model_packs_its_matrix() -> None:
    tiny = scheduled_model("tiny-test")
    loads = [f for name, f in tiny.module.functions.items() if name.startswith("load.")]
    assert len(loads) > 5
    for function in loads:
        layout = function.results[0].tensor.layout
        check(tiny.context.programs[str(function.ops[0].attrs["kernel"])], layout, layout == "n16k4")


@pytest.mark.parametrize("rows", [1, 4, 15, 17, 33])
def test_rows_past_the_last_one_are_zero(rows: int) -> None:
    check(program_of("bf16", (rows, 8), "n16k"), "n16k", False)
    check(program_of("mxfp4<32>", (rows, 32), "n16k4"), "n16k4", True)


def test_leading_dims_are_packed_matrix_by_matrix() -> None:
    check(program_of("f32", (3, 20, 8), "n16k"), "n16k", False)


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(IRError, match="unknown layout"):
        program_of("bf16", (16, 32), "n8k")
