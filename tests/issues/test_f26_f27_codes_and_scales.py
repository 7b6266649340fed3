"""F26: E2M1 ties rounded away from zero. F27: the exponent of an E8M0 scale came from a wrong offset or threshold."""
from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dinfc.ir import build as ir
from dinfc.ir.graph import Builder, Function, Module, Value
from dinfc.ir.interpret import Interpreter
from dinfc.ir.scalar import Expr, apply, f32
from dinfc.ir.types import TensorType
from support.op_run import quantised, run_one

GRID = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TIES = {0.25: 0.0, 0.75: 1.0, 1.25: 1.0, 1.75: 2.0, 2.5: 2.0, 3.5: 4.0, 5.0: 4.0}


def expected(x: float) -> float:
    """Nearest grid value by exhaustive search, ties to the even mantissa (even place in the grid), saturating."""
    size = min(abs(x), 6.0)
    best = min(range(8), key=lambda n: (abs(GRID[n] - size), n % 2))
    return math.copysign(GRID[best], x)


def neighbours() -> list[float]:
    out = [0.0, -0.0, 6.0, 7.0, 1e30]
    for tie in TIES:
        for value in (tie, math.nextafter(tie, 0.0), math.nextafter(tie, 9.0), tie - 2**-20, tie + 2**-20):
            out += [value, -value]
    return out


def mapped(fn: str, values: Tensor) -> Tensor:
    """The scalar function `fn` over f32 numbers, decoded again: what a fused quantiser computes."""
    x = Value("x", TensorType("f32", (len(values),)))
    function = Function("f", [x])

    def body(v: Expr) -> Expr:
        return f32(apply(fn.replace("encode", "decode"), apply(fn, v)))

    function.results = [ir.emap(Builder(function), body, [x])]
    (out,) = Interpreter(Module({"f": function})).run("f", [values], {})
    assert isinstance(out, Tensor)
    return out


def test_e2m1_ties_go_to_the_even_mantissa_and_neighbours_to_their_side() -> None:
    values = torch.tensor(neighbours(), dtype=torch.float64)
    wanted = [expected(float(v)) for v in values]
    got = mapped("e2m1_encode", values)
    assert got.tolist() == wanted
    assert [math.copysign(1, g) for g in got.tolist()] == [math.copysign(1, w) for w in wanted]
    for tie, rounded in TIES.items():
        assert expected(tie) == rounded


def test_e2m1_ties_in_every_codec_that_has_e2m1_codes() -> None:
    for codec, group in (("mxfp4<32>", 32), ("fp4e4m3<16>", 16)):
        row = [6.0, *TIES, *(-t for t in TIES)]
        q = quantised(codec, row + [0.0] * (group - len(row)))
        assert run_one("dequantize", q, elem="f32")[:len(row)].tolist() == [
            6.0, *TIES.values(), *(-v for v in TIES.values())]  # the scale of a group with maximum 6 is 1


def power_of_two_at_least(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def maxima() -> list[float]:
    """bf16 numbers around the thresholds: 2^n, 1.5 * 2^n, 1.75 * 2^n and their bf16 neighbours."""
    out = []
    for n in (-120, -30, -14, -13, -9, -2, 0, 1, 2, 3, 8, 9, 50, 119):
        for factor in (1.0, 1.5, 1.75):
            for step in (-(2.0**-8), 0.0, 2.0**-7):  # one bf16 ulp below and above
                value = math.ldexp(factor, n) * (1.0 + step)
                out.append(float(torch.tensor(value, dtype=torch.float64).bfloat16()))
    return out


@pytest.mark.parametrize(("codec", "largest", "floor"), [("mxfp8<32>", 448.0, 1e-4), ("mxfp4<32>", 6.0, 6 * 2.0**-126)])
def test_the_exponent_of_a_scale_is_the_smallest_that_holds_the_maximum(codec: str, largest: float,
                                                                       floor: float) -> None:
    found = maxima()
    x = torch.zeros(len(found), 32, dtype=torch.float64)
    x[:, 5] = torch.tensor(found, dtype=torch.float64) * torch.tensor([1.0, -1.0]).repeat(len(found))[:len(found)]
    scales = quantised(codec, x).scales
    for value, byte in zip(found, scales[:, 0].tolist(), strict=True):
        quotient = float(torch.tensor(max(value, floor) / largest, dtype=torch.float64).float())
        scale = power_of_two_at_least(quotient)
        assert byte == round(math.log2(scale)) + 127, value
        assert scale * largest >= value * (1 - 2**-24)  # nothing saturates
        assert value <= floor or scale * largest < 2 * value * (1 + 2**-23)  # nor is a bit given away


def test_values_on_both_sides_of_a_threshold_have_neighbouring_bytes() -> None:
    for codec, largest in (("mxfp8<32>", 448.0), ("mxfp4<32>", 6.0)):
        at = [largest, float(torch.tensor(largest * (1 + 2.0**-7)).bfloat16())]
        bytes_ = [quantised(codec, [v] + [0.0] * 31).scales.tolist()[0] for v in at]
        assert bytes_ == [127, 128]
