"""F22: scales that were no powers of two lost their mantissas. Here a scale format is part of the type."""
from __future__ import annotations

import itertools

import pytest
import torch

from dinfc.ir import build as ir
from dinfc.ir.codecs import e8m0_encode
from dinfc.ir.graph import Builder, Function, IRError, Value
from dinfc.ir.parse import parse_module
from dinfc.ir.types import CODECS, StateType, TensorType, symbol
from dinfc.ir.verify import VerifyError, verify_module

T = symbol("T")
WANTED = {"G8": ("mxfp8<32>", "wfp8<32x32>"), "G4": ("mxfp8<32>", "mxfp4<32>")}
PLAIN = ("bf16", "f32", "u8", "i32")


@pytest.mark.parametrize("cls", WANTED)
def test_a_product_takes_its_own_scale_formats_and_no_others(cls: str) -> None:
    for a, b in itertools.product([*CODECS, *PLAIN], repeat=2):
        left, right = Value("a", TensorType(a, (T, 64))), Value("w", TensorType(b, (64, 64)))
        builder = Builder(Function("f", [left, right]))
        if (a, b) == WANTED[cls]:
            assert ir.contract(builder, left, right, cls).tensor.elem == "bf16"
            continue
        with pytest.raises(IRError, match=f"class {cls} needs"):
            ir.contract(builder, left, right, cls)


@pytest.mark.parametrize("elem", [*CODECS, *PLAIN])
def test_a_ring_takes_records_of_its_own_format_only(elem: str) -> None:
    ring = Value("ring", StateType("ring", "mxfp8<32>", 64, 14))
    x, at = Value("x", TensorType(elem, (T, 64))), Value("at", TensorType("i32", (T,)))
    builder = Builder(Function("f", [ring, x, at]))
    if elem == "mxfp8<32>":
        ir.state_write(builder, ring, x, at)
        return
    with pytest.raises(IRError, match=r"value %x must be mxfp8<32>"):
        ir.state_write(builder, ring, x, at)


def test_joining_two_formats_is_refused() -> None:
    a, b = Value("a", TensorType("mxfp4<32>", (T, 32))), Value("b", TensorType("fp4e4m3<16>", (T, 32)))
    with pytest.raises(IRError, match=r"must be mxfp4<32>, it is fp4e4m3<16>"):
        ir.concat(Builder(Function("f", [a, b])), [a, b], 1)


def test_the_verifier_points_at_the_op() -> None:
    module = parse_module(
        "symbol T in [1, 8]\nfunc @f(%a: fp4e4m3<16>[T, 64], %w: mxfp4<32>[32, 64]) -> (bf16[T, 32]) {\n"
        '  %y = contract(%a, %w) {cls = "G4"} : bf16[T, 32]\n  return %y\n}\n')
    with pytest.raises(VerifyError) as raised:
        verify_module(module)
    lines = str(raised.value).splitlines()
    at = next(n for n, line in enumerate(lines) if "%y = contract" in line)
    assert "^" in lines[at + 1]
    assert lines[0] == "@f: contract: class G4 needs mxfp8<32> as A, %a is fp4e4m3<16>"


@pytest.mark.parametrize("scale", [3.0, 1.5, 0.7, 2.0**-3 * 1.25])
def test_no_mantissa_is_dropped_on_the_way_to_an_e8m0_byte(scale: float) -> None:
    with pytest.raises(ValueError, match="power of two"):
        e8m0_encode(torch.tensor([1.0, scale], dtype=torch.float64))


def test_powers_of_two_keep_their_exponent() -> None:
    exponents = torch.arange(-126, 128)
    assert e8m0_encode(torch.exp2(exponents.double())).tolist() == (exponents + 127).tolist()
    assert e8m0_encode(torch.tensor([float("nan"), float("inf")], dtype=torch.float64)).tolist() == [255, 255]
