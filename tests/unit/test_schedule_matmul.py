"""The schedule of `contract`: classes of spec 0.5, order texts, row independence, exactness."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dinfc.codegen.schedules.dot_order import DotOrder, parse_dot_order
from dinfc.codegen.schedules.matmul import MatmulSchedule
from dinfc.ir.graph import IRError, Op
from dinfc.ir.tile.program import Copy, Dot, For, Program, statements
from support.anchors import (
    CPU,
    DEVICE,
    T,
    bits,
    build,
    make_region,
    near_product,
    random_quantised,
    run,
    stored,
    tensor,
)

ORDER = "fold(32; chain fma)"
SLICED = "fold(64; fold(32; chain fma))"
ROWS = (1, 2, 7, 8, 9, 31, 32, 33)
FLOATS = {"f32": torch.float32, "bf16": torch.bfloat16}
# class -> elements of a, b and the result, and the CPU's layout of b
CLASSES = {
    "G8": ("mxfp8<32>", "wfp8<32x32>", "bf16", "n16k"), "G4": ("mxfp8<32>", "mxfp4<32>", "bf16", "n16k4"),
    "GB": ("bf16", "bf16", "bf16", "n16k"), "GB32": ("bf16", "bf16", "f32", "n16k"),
    "GT": ("f32", "f32", "f32", "n16k"), "GT16": ("bf16", "f32", "f32", "n16k"),
}


def contract(cls: str, n: int, k: int, order: str = ORDER, layout: str | None = None) -> Op:
    a_elem, b_elem, out, packed = CLASSES[cls]
    a, b = tensor("a", a_elem, T, k), tensor("b", b_elem, n, k, layout=packed if layout is None else layout)
    return make_region("contract", [a, b], [tensor("y", out, T, n)], {"cls": cls, "order": order})


class Problem:
    """Operands of one class with their fp64 values."""

    def __init__(self, cls: str, rows: int, n: int, k: int, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.cls, self.rows, self.n, self.k = cls, rows, n, k
        a_elem, b_elem, out, _ = CLASSES[cls]
        self.a, self.b = _random(g, a_elem, rows, k), _random(g, b_elem, n, k)
        self.out = FLOATS[out]
        self.a_values, self.b_values = _values(self.a), _values(self.b)

    def buffers(self, region: Op, pick: Tensor | None = None) -> dict[str, Tensor]:
        """Buffers of the region, with the given rows of a; the result is poisoned with NaN."""
        a, b = region.regions[0].params
        out = stored(a, self.a) | stored(b, self.b)
        if pick is not None:
            out |= {name: out[name][pick].contiguous() for name in stored(a, self.a)}
        rows = self.rows if pick is None else len(pick)
        return out | {"y": torch.full((rows, self.n), float("nan"), dtype=self.out)}

    def result(self, program: Program, region: Op, pick: Tensor | None = None, checked: bool = False) -> Tensor:
        buffers = self.buffers(region, pick)
        return run(program, buffers, {"T": buffers["y"].shape[0]}, checked)["y"]


def _random(g: torch.Generator, elem: str, *shape: int):  # type: ignore[no-untyped-def]
    if elem in FLOATS:
        return torch.randn(*shape, generator=g).to(FLOATS[elem])
    return random_quantised(g, elem, *shape)


def _values(data) -> Tensor:  # type: ignore[no-untyped-def]
    return data.double() if isinstance(data, Tensor) else data.values


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(("n", "k"), [(4, 96), (8, 64), (24, 160), (512, 128), (96, 70)])
def test_contract_is_near_the_exact_product_and_the_fast_build_equals_the_checked_one(cls: str, n: int, k: int) -> None:
    if k % 32 and cls in ("G8", "G4"):
        pytest.skip("quantised rows are whole groups")
    region = contract(cls, n, k)
    problem = Problem(cls, 11, n, k)
    program = build(MatmulSchedule(), region)
    fast = problem.result(program, region)
    assert torch.equal(bits(fast), bits(problem.result(program, region, checked=True)))
    reference = problem.a_values @ problem.b_values.T
    magnitude = problem.a_values.abs() @ problem.b_values.abs().T
    assert near_product(fast, reference, magnitude, 32 + k // 32)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_row_alone_has_the_bits_it_has_in_any_batch(cls: str) -> None:
    region = contract(cls, 72, 96)
    problem = Problem(cls, max(ROWS), 72, 96)
    program = build(MatmulSchedule(), region)
    whole = bits(problem.result(program, region))
    for rows in ROWS:
        pick = torch.arange(rows)
        assert torch.equal(bits(problem.result(program, region, pick)), whole[:rows]), rows
        assert torch.equal(bits(problem.result(program, region, pick.flip(0))), whole[:rows].flip(0)), rows


@pytest.mark.parametrize("tile", [1, 3, 8, 16])
@pytest.mark.parametrize("columns", [16, 32, 64])
def test_the_tile_shape_does_not_change_a_bit(tile: int, columns: int) -> None:
    region = contract("G8", 96, 2048, "fold(1024; fold(32; chain fma))")
    problem = Problem("G8", 9, 96, 2048)
    program = build(MatmulSchedule(), region, replace(CPU, tile_rows=tile, tile_cols=columns))
    usual = build(MatmulSchedule(), region)
    assert torch.equal(bits(problem.result(program, region)), bits(problem.result(usual, region)))


def scalar_model(a: Tensor, b: Tensor, order: DotOrder) -> Tensor:
    """The order text, element by element: fp32 fma is an fp64 multiply-add rounded once (exact but for double
    rounding, which the data of the tests does not meet)."""

    def fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x.double() * y.double() + z.double()).float()

    rows, k = a.shape
    total = torch.zeros(rows, b.shape[0])
    for first in range(0, k, order.slice or k):
        acc = torch.zeros_like(total)
        end = min(k, first + (order.slice or k))
        for group in range(first, end, order.group):
            chain = torch.zeros_like(total)
            for i in range(group, min(end, group + order.group)):
                chain = fma(a[:, i, None].expand_as(chain), b[None, :, i].expand_as(chain), chain)
            acc = acc + chain
        total = total + acc if order.slice else acc
    return total


@pytest.mark.parametrize("order", [ORDER, SLICED, "fold(16; chain fma)", "fold(96; fold(16; chain fma))"])
@pytest.mark.parametrize("k", [64, 70, 160, 224])
def test_the_order_text_decides_every_bit(order: str, k: int) -> None:
    region = contract("GT", 24, k, order)
    problem = Problem("GT", 5, 24, k)
    got = problem.result(build(MatmulSchedule(), region), region)
    assert isinstance(problem.a, Tensor) and isinstance(problem.b, Tensor)
    assert torch.equal(bits(got), bits(scalar_model(problem.a, problem.b, parse_dot_order(order))))


def test_the_two_orders_differ_so_the_test_above_can_fail() -> None:
    problem = Problem("GT", 5, 24, 160)
    assert isinstance(problem.a, Tensor) and isinstance(problem.b, Tensor)
    one, two = (scalar_model(problem.a, problem.b, parse_dot_order(o)) for o in (ORDER, SLICED))
    assert not torch.equal(one, two)


def test_a_group_dim_multiplies_each_group_by_its_own_weight() -> None:
    groups, n, k, rows = 3, 40, 64, 10
    g = torch.Generator().manual_seed(1)
    a, b = tensor("a", "mxfp8<32>", T, groups, k), tensor("b", "wfp8<32x32>", groups, n, k, layout="n16k")
    y = tensor("y", "bf16", T, groups, n)
    region = make_region("contract", [a, b], [y], {"cls": "G8", "order": ORDER})
    qa, qb = random_quantised(g, "mxfp8<32>", rows, groups, k), random_quantised(g, "wfp8<32x32>", groups, n, k)
    buffers = stored(a, qa) | stored(b, qb) | {"y": torch.full((rows, groups, n), float("nan")).bfloat16()}
    out = run(build(MatmulSchedule(), region), buffers, {"T": rows})["y"]
    reference = torch.einsum("tgk,gnk->tgn", qa.values, qb.values)
    assert near_product(out, reference, torch.einsum("tgk,gnk->tgn", qa.values.abs(), qb.values.abs()), 34)


def test_row_major_weights_give_the_same_bits_as_packed_ones() -> None:
    problem = Problem("G8", 6, 48, 96)
    packed, plain = contract("G8", 48, 96), contract("G8", 48, 96, layout="")
    results = [bits(problem.result(build(MatmulSchedule(), r), r)) for r in (packed, plain)]
    assert torch.equal(*results)


@pytest.mark.parametrize("cls", ["G8", "G4", "GB", "GT"])
def test_device_limits_give_a_pipelined_program_with_the_same_bits(cls: str) -> None:
    """The staged strategy is what device emitters print; run on the CPU it must agree with the near one."""
    problem = Problem(cls, 13, 40, 256)
    limits = replace(DEVICE, tile_rows=16, tile_cols=32, extra={"stage_operands": 1, "tile_k": 64})
    near, staged = contract(cls, 40, 256, SLICED), contract(cls, 40, 256, SLICED, layout="")
    program = build(MatmulSchedule(), staged, limits)
    loops = [s for s in statements(program.body) if isinstance(s, For) and s.kind == "pipelined"]
    assert len(loops) == 1
    inside = list(statements(loops[0].body))
    copies = {s.src for s in inside if isinstance(s, Copy)}
    assert {"a", "b"} <= copies
    dots = [s for s in inside if isinstance(s, Dot)]
    assert [(d.b_layout, d.k) for d in dots] == [("nk", 64)]
    expected = problem.result(build(MatmulSchedule(), near), near)
    assert torch.equal(bits(problem.result(program, staged)), bits(expected))


def test_an_order_of_another_instruction_is_refused() -> None:
    with pytest.raises(IRError, match="not the order of a matrix product"):
        build(MatmulSchedule(), contract("G8", 32, 64, "fold(32; vdpbf16)"))


def test_chains_that_cut_a_scale_group_are_refused() -> None:
    with pytest.raises(IRError, match="a scale covers 32"):
        build(MatmulSchedule(), contract("G8", 32, 64, "fold(16; chain fma)"))


def test_an_empty_step_runs_no_instance() -> None:
    region = contract("GB", 32, 64)
    assert Problem("GB", 0, 32, 64).result(build(MatmulSchedule(), region), region).shape == (0, 32)
