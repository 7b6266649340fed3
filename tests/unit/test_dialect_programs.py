"""Tile programs as devices run them: still tile IR, so that the CPU can run them against the reference interpreter."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dinfc.codegen.emit.device_target import DeviceTarget
from dinfc.codegen.schedules.device_spread import spread
from dinfc.codegen.schedules.row import RowSchedule
from dinfc.device_slice import device_target, slice_programs
from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Op
from dinfc.ir.parse import parse_module
from dinfc.ir.tile.program import Dot, For, If, Program, statements
from gpu.slice_case import Shapes, SliceCase
from support.anchors import bits
from support.cpu_run import run_program

DEVICES = ("sm90", "sm100", "ascend950")
SMALL = Shapes(hidden=512, rank=128, heads=64, channels=128, listed=150)


def programs(device: str, shapes: Shapes = SMALL) -> dict[str, Program]:
    """Programs by anchor class."""
    return {p.anchor: p for p in slice_programs(parse_module(shapes.text()), device_target(device)).values()}


def run(program: Program, case: SliceCase, checked: bool = False) -> dict[str, Tensor]:
    buffers = case.buffers()
    mine = {p.name: buffers[p.name] for p in program.params}
    run_program(program, mine, case.scalars(), checked, 2)
    return mine


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("anchor", ["row", "matmul", "attend"])
def test_device_programs_are_near_the_reference_interpreter(device: str, anchor: str) -> None:
    case = SliceCase(SMALL, 5)
    program = programs(device)[anchor]
    out = run(program, case)
    getattr(case, f"check_{anchor}")(out)
    for name, value in run(program, case, checked=True).items():
        assert torch.equal(bits(out[name]), bits(value)), f"{name}: fast and checked build differ"


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_product_uses_every_scale_where_it_belongs(device: str) -> None:
    """Fault F23: integers times a distinct power of two for each row and K block have one exact result."""
    case = SliceCase(SMALL, 7, exact=True)
    case.check_matmul(run(programs(device)["matmul"], case))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("anchor", ["row", "matmul", "attend"])
def test_a_row_of_a_device_program_does_not_depend_on_its_batch(device: str, anchor: str) -> None:
    case = SliceCase(SMALL, 4)
    program = programs(device)[anchor]
    names = [p.name for p in program.params if p.mode == "out"]
    whole = run(program, case)
    for rows in ([2], [3, 1, 0]):
        part = run(program, case.pick(rows))
        for name in names:
            assert torch.equal(bits(part[name]), bits(whole[name][rows])), (name, rows)


def test_spreading_a_row_over_threads_keeps_its_bits() -> None:
    case = SliceCase(SMALL, 3)
    target = device_target("sm90")
    region = regions(target, "row")
    serial = RowSchedule().build(region, "serial", target.limits, parse_module(""))
    assert any(isinstance(s, For) and s.kind == "parallel" for s in spread(serial).body)
    one, other = run(serial, case), run(programs("sm90")["row"], case)
    assert torch.equal(one["hq"], other["hq"]) and torch.equal(one["hq_s"], other["hq_s"])


def regions(target: DeviceTarget, anchor: str, shapes: Shapes = SMALL) -> Op:
    """The slice's region of that class."""
    from dinfc.passes.base import Context
    from dinfc.pipeline import limits_of_module, passes_by_name

    module = parse_module(shapes.text())
    limits, rows = limits_of_module(module, (), 1 << 26, 4096)
    passes = passes_by_name()
    for name in ("decompose", "canonicalize", "pin_reductions", "fuse", "assign_layouts"):
        module = passes[name]().run(module, Context(target, limits, rows))
    return next(op for f in module.functions.values() for op in f.ops if op.attrs.get("anchor") == anchor)


def test_orders_name_the_unit_of_each_device() -> None:
    texts = {d: {a: p.orders for a, p in programs(d).items()} for d in DEVICES}
    assert texts["sm90"]["matmul"] == ("chain(wgmma bf16 k16)",)
    assert "block_scale" in texts["sm100"]["matmul"][0] and "cube" in texts["ascend950"]["matmul"][0]
    assert all(texts[d]["row"] == ("lanes(256; halves)",) for d in DEVICES)
    assert len({texts[d]["attend"] for d in DEVICES}) == 3


@pytest.mark.parametrize("device", DEVICES)
def test_every_product_carries_the_order_of_its_unit(device: str) -> None:
    unit = device_target(device).kernels["matmul"].unit
    for program in programs(device).values():
        assert all(s.order == unit.order for s in statements(program.body) if isinstance(s, Dot))


def test_the_cube_only_multiplies_by_rows_and_never_under_a_branch() -> None:
    program = programs("ascend950")["attend"]
    assert {s.b_layout for s in statements(program.body) if isinstance(s, Dot)} == {"nk"}
    branches = [s for s in statements(program.body) if isinstance(s, If)]
    assert not any(isinstance(inner, Dot) for s in branches for inner in statements(s.then))


@pytest.mark.parametrize("device", DEVICES)
def test_keys_that_do_not_fit_are_a_target_error(device: str) -> None:
    with pytest.raises(DinfcError) as caught:
        programs(device, replace(SMALL, channels=2048))
    assert caught.value.code == "E-TARGET-011" and caught.value.entry.exit_code == 3
    assert "the target has" in str(caught.value)


def test_another_order_is_refused() -> None:
    target = device_target("sm90")
    region = regions(target, "matmul")
    region.regions[0].ops[0].attrs["order"] = "fold(32; chain fma)"
    with pytest.raises(Exception, match="wgmma"):
        target.kernels["matmul"].build(region, "k", target.limits, parse_module(""))


def test_a_target_without_a_slice_is_refused() -> None:
    with pytest.raises(DinfcError) as caught:
        device_target("cpu")
    assert caught.value.code == "E-TARGET-010"
    with pytest.raises(DinfcError) as unknown:
        device_target("sm80")
    assert unknown.value.code == "E-TARGET-001"
