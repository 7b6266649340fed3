"""Scalar expressions survive printing and parsing, and mistakes point at their place."""
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dinfc.ir import scalar as s
from dinfc.ir.scalar_text import ScalarEnv, ScalarSyntaxError, parse_expr, print_expr

ENV = ScalarEnv(
    args=("f32", "bf16", "i32"), vars={"i": "i32", "x.y": "f32", "n": "i64"}, buffers={"b": "u8", "w": "f32"}
)
I = s.var("i")  # noqa: E741

EXAMPLES = [
    s.arg(0, "f32") + s.f32(s.index(1)),
    s.fma(s.f32(s.arg(1, "bf16")), s.const(1.5), s.var("x.y", "f32")),
    s.select(s.compare("lt", I, 3), s.load("w", (I, s.const(0)), "f32"), -math.inf),
    s.land(s.compare("ge", I, 0), s.compare("lt", I, s.arg(2, "i32"))),
    s.bitcast(s.const(-0.0), "i32") ^ s.const(-7),
    s.unary("e2m1_decode", s.load("b", (I,), "u8") & 15),
    s.bf16(s.const(0.1)),
    s.const(0.1, "bf16"),
    s.const(2**40, "i64") + s.var("n", "i64"),
    s.const(True),
    s.const(math.inf), s.const(-math.inf), s.const(math.nan), s.const(1e-45), s.const(3.4e38), s.const(255, "u8"),
]


@pytest.mark.parametrize("expr", EXAMPLES, ids=print_expr)
def test_expression_round_trips(expr: s.Expr) -> None:
    text = print_expr(expr)
    again = parse_expr(text, ENV)
    assert again == expr
    assert print_expr(again) == text


def test_negative_zero_keeps_its_sign() -> None:
    value = parse_expr("-0.0", ENV).attr
    assert isinstance(value, float)
    assert math.copysign(1.0, value) == -1.0


@given(st.floats(allow_nan=False))
def test_every_float_round_trips_exactly(x: float) -> None:
    assert parse_expr(print_expr(s.const(x)), ENV).attr == x


def test_nothing_is_folded_while_parsing() -> None:
    assert parse_expr("add(1, 2)", ENV).op == "add"


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("add($0, 1)", 0, "mixes"),
        ("add($0)", 0, "takes 2 operands"),
        ("frobnicate($0)", 0, "unknown operation"),
        ("mul($0, y)", 8, "unknown name 'y'"),
        ("q[0]", 0, "unknown buffer"),
        ("$7", 0, "no operand $7"),
        ("$", 1, "expected a number"),
        ("add(1, 2", 8, "expected ','"),
        ("1.5 2", 4, "after the expression"),
        ("1.5:i32", 0, "not a constant of i32"),
        ("as_i32($1)", 0, "widths differ"),
        ("", 0, "expected an expression"),
        ("1:bool", 0, "true or false"),
        ("f32(1, 2)", 0, "takes 1 operand"),
        ("cast($0)", 0, "unknown operation"),
    ],
)
def test_mistakes_are_located(text: str, position: int, words: str) -> None:
    with pytest.raises(ScalarSyntaxError) as caught:
        parse_expr(text, ENV)
    assert words in caught.value.message
    assert caught.value.position == position
    assert "^" in str(caught.value)
