"""Tile products on the CPU give the bits of the stated order, for every codec, layout and number of rows."""
from __future__ import annotations

import numpy
import pytest

from support.cpu_run import run_program
from support.dot_model import Case, make_case

CASES = [
    *[Case(a, b, "nk") for a in ("f32", "bf16", "e4m3", "e2m1") for b in ("f32", "bf16", "e4m3", "e2m1")],
    *[Case("f32", b, "kn") for b in ("f32", "bf16", "e4m3", "e2m1")],
    *[Case("bf16", b, "n16k") for b in ("f32", "bf16", "e4m3")],
    Case("e4m3", "e2m1", "n16k4"),
    # scales: both, one of the two, bytes and floats, blocks of columns
    Case("e4m3", "e4m3", "n16k", a_scale="e8m0", b_scale="e8m0", scale_rows=32, n=64),
    Case("f32", "e4m3", "n16k", a_scale="f32", b_scale="f32", scale_rows=16, n=64),
    Case("e4m3", "e2m1", "n16k4", a_scale="e8m0", b_scale="e8m0"),
    Case("e4m3", "e2m1", "n16k4", a_scale="f32"),
    Case("e4m3", "e4m3", "n16k", b_scale="e8m0"),
    Case("e2m1", "e2m1", "nk", a_scale="e8m0", b_scale="e8m0", k=128),
    # column counts that are no multiple of 16, groups that are no multiple of 8
    Case("f32", "e4m3", "n16k", n=20), Case("f32", "e2m1", "n16k4", n=24, b_scale="e8m0"),
    Case("f32", "f32", "kn", n=5), Case("f32", "f32", "nk", n=13), Case("f32", "e2m1", "kn", n=10),
    Case("f32", "f32", "nk", k=36, group=12), Case("f32", "bf16", "nk", k=10, group=10),
    Case("f32", "f32", "n16k", k=7, group=7), Case("f32", "f32", "kn", k=1, group=1, n=1, m=1),
    # long K goes in stretches; leading dims
    Case("e4m3", "e4m3", "n16k", k=2080, n=16, m=2, a_scale="e8m0", b_scale="e8m0"),
    Case("bf16", "f32", "n16k", k=1056, n=16, m=1),
    Case("e4m3", "e2m1", "n16k4", lead=True, a_scale="e8m0", b_scale="e8m0"),
    # every way of cutting rows into register blocks
    *[Case("f32", "e4m3", "n16k", m=m, n=16, k=32) for m in range(1, 14)],
    *[Case("f32", "e2m1", "n16k4", m=m, n=32, k=32) for m in (1, 2, 6, 12, 16)],
    *[Case("f32", "f32", "nk", m=8, n=16, k=32, rows=r) for r in range(9)],
    *[Case("f32", "e4m3", "n16k", m=8, n=48, k=64, rows=r, a_scale="f32", b_scale="f32") for r in (0, 1, 2, 5, 8)],
]


def bits(x: numpy.ndarray) -> numpy.ndarray:
    return x.view(numpy.uint32)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("checked", [False, True], ids=["fast", "checked"])
def test_product_has_the_bits_of_its_order(case: Case, checked: bool) -> None:
    program, arrays, expected = make_case(case)
    run_program(program, arrays, {"T": case.rows if case.rows is not None else case.m}, checked)
    assert numpy.array_equal(bits(arrays["out"]), bits(expected))


@pytest.mark.parametrize("b", ["e4m3", "e2m1"])
def test_a_row_has_the_same_bits_alone_and_in_a_tile(b: str) -> None:
    layout = "n16k4" if b == "e2m1" else "n16k"
    program, arrays, _ = make_case(Case("f32", b, layout, m=8, n=32, a_scale="f32", b_scale="f32"))
    run_program(program, arrays)
    for row in range(8):
        alone, single, _ = make_case(Case("f32", b, layout, m=1, n=32, a_scale="f32", b_scale="f32"))
        single |= {"b": arrays["b"], "sb": arrays["sb"], "a": arrays["a"][row : row + 1].copy(),
                   "sa": arrays["sa"][row : row + 1].copy()}
        run_program(alone, single)
        assert numpy.array_equal(bits(single["out"][0]), bits(arrays["out"][row]))
