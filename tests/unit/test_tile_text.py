"""Tile programs: print and parse are inverse, on every program of every example; mistakes are shown with a caret."""
from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from dinfc.ir.scalar import compare, const, f32, land, var
from dinfc.ir.tile.parse import TileSyntaxError, parse_program
from dinfc.ir.tile.program import (
    Alloc,
    Buffer,
    Comment,
    Copy,
    Dot,
    Fill,
    For,
    If,
    Let,
    Program,
    Reduce,
    Stmt,
    Store,
)
from dinfc.ir.tile.text import KINDS, print_head, print_program
from support.compiled_model import scheduled_model

EVERYTHING = """kernel @all anchor row functions dinfc-f32 {
  order "lanes 16 stride 1"
  origin "%h = rms_norm"
  attr tile = 8
  param x: bf16[T, 64] global in
  param row: i32[T] global in bounds [-1, 512)
  param w: u8[4, 64, 16] global in
  param s: u8[T, 2] global in
  param y: f32[T, 64] global out
  grid t in T, cb in 4
  alloc tile: f32[8, 64] near
  alloc acc: f32[8, 16] accumulator
  fill tile = 0.0
  fill acc = 0.0
  let p: i32 = row[t]
  // a comment
  reduce sq = sum over k in 64 lanes 16 start 0.0 of f32(x[t, k]) times f32(x[t, k])
  reduce top = max over k in 64 lanes 1 start -inf of f32(x[t, k])
  if land(ge(p, 0), lt(p, T)) {
    copy tile = x[p, 0] limits [T, _] rows row
  } else {
    for j in 64 vector {
      tile[0, j] = sq
    }
  }
  dot acc += tile[0, 0] * w[cb, 0, 0] m 8 n 16 k 64 group 32 layout n16k b_codec e4m3 a_scale s[t, 0] rows 3 order "x"
  for i in 8 serial {
    for j in 16 vector {
      y[t, add(mul(cb, 16), j)] = add(acc[i, j], top) where lt(i, sub(T, t))
    }
  }
}
"""


def test_text_is_read_back_as_it_was() -> None:
    program = parse_program(EVERYTHING)
    assert print_program(program) == EVERYTHING
    assert parse_program(print_program(program)) == program


def near(name: str, dtype: str, *shape: int, space: str = "near") -> Buffer:
    return Buffer(name, dtype, tuple(const(n) for n in shape), space)


X = Buffer("x", "bf16", (var("T"), const(64)), "global")
ROW = Buffer("row", "i32", (var("T"),), "global", "in", (const(-1), var("T") * 2))
CODES = Buffer("codes", "u8", (var("pages"), const(64), const(16)), "global", "inout")
TOTAL = near("total", "f32", 8, 16)
TILE, ACC, SCALE = near("tile", "bf16", 8, 64), near("acc", "f32", 8, 16, space="accumulator"), near("sc", "u8", 8, 2)
LIST = Buffer("list", "i32", (const(8),), "shared", bounds=(const(0), var("S")))
T_, J, AT = var("t"), var("j"), (const(0), const(0))

# Every kind of statement, every field of it at least once with and once without a value. Names: t of the grid; the
# buffers above are declared; `v` is an f32 and `p` an i32 scalar.
STATEMENTS: list[Stmt] = [
    Alloc(near("one", "f32", 1)), Alloc(Buffer("none", "i64", (), "scale")),
    Alloc(Buffer("few", "i32", (const(8),), "near", bounds=(const(-1), var("T") + var("rows")))),
    Let("q", ROW[T_] + 1), Let("h", f32(X[T_, 3])), Let("big", const(7, "i64")), Let("yes", compare("lt", T_, 9)),
    Store("tile", (const(0), T_), X[T_, 1]), Store("tile", (const(0), T_), X[T_, 1], compare("ge", ROW[T_], 0)),
    Store("codes", (var("p"), T_ % 64, const(3)), const(255, "u8")),
    *[For("j", const(64), kind, (Store("tile", (const(1), J), X[T_, J]),)) for kind in KINDS],
    For("i", ROW[T_], "serial", ()), For("j", var("T") // 8, "parallel", (For("k", const(2), "vector", ()),)),
    If(compare("eq", ROW[T_], -1), (Comment("nothing"),)), If(compare("ne", T_, 0), (), (Fill("acc", const(1.5)),)),
    If(land(compare("ge", T_, 0), compare("lt", T_, 3)), (Fill("acc", const(0.0)),), (Comment(""), Comment("  two"))),
    Fill("acc", const(float("-inf"))), Fill("sc", const(0, "u8")), Fill("tile", const(-0.0, "bf16")),
    Copy("tile", "x", (T_, const(0)), (var("T"), None)), Copy("tile", "x", AT, (None, const(64)), "list"),
    Copy("sc", "codes", (var("p"), T_, const(2)), (None, None, const(16))),
    Reduce("s", "sum", "k", const(64), f32(X[T_, var("k")]), const(0.0), 16),
    Reduce("s", "sum", "i", var("T"), f32(X[var("i"), 0]), var("v", "f32"), 1, f32(X[var("i"), 1])),
    Reduce("m", "max", "k", ROW[T_], ROW[var("k")], const(-1), 4),
    Reduce("s", "min", "k", const(8), LIST[var("k")], const(9), 8),
    Dot("acc", "tile", AT, "codes", (var("p"), const(0), const(0)), 8, 16, 64, 32, "n16k", b_codec="e4m3"),
    Dot("total", "x", (T_, const(0)), "tile", AT, 8, 16, 64, 64),
    Dot("acc", "codes", (const(0), *AT), "codes", (T_, const(0), const(1)), 4, 8, 32, 16, "n16k4", "e2m1", "e2m1",
        "sc", AT, "sc", (const(1), const(0)), 32, 'an "order"; with; signs', var("p")),
    Dot("acc", "tile", AT, "tile", AT, 8, 16, 64, 32, "kn", b_scale="sc", b_scale_at=(T_, const(0)),
        rows=var("T") - T_ * 8),
    Comment("dot acc += nothing, for t in T {"), Comment(""),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: print_head(s).strip() or "//")
def test_every_kind_of_statement(statement: Stmt) -> None:
    buffers = tuple(Alloc(b) for b in (TILE, ACC, SCALE, TOTAL, LIST))
    body = (*buffers, Let("p", ROW[T_]), Let("v", const(0.1)), statement, Comment("after it"))
    grid = (("t", var("T")), ("u", const(3)))
    program = Program("k.1", "row", (X, ROW, CODES), grid, body, ('a "b"',), ("%h = f(%x)",), "native-2",
                      {"tile": 8, "less": -1})
    text = print_program(program)
    assert parse_program(text) == program
    assert parse_program(text.replace("\n", "\n\n")) == program


def test_every_kind_of_statement_is_in_the_list() -> None:
    assert {type(s) for s in STATEMENTS} == set(get_args(Stmt))
    for kind in get_args(Stmt):
        mine = [s for s in STATEMENTS if isinstance(s, kind)]
        for f in fields(kind):
            values = {repr(getattr(s, f.name)) for s in mine}
            assert len(values) > 1, f"{kind.__name__}.{f.name} has one value only"


def test_a_program_without_grid_and_anchor() -> None:
    program = Program("k", "", (Buffer("y", "f32", (), "global", "out"),), (), (Store("y", (), const(1.0)),))
    assert parse_program(print_program(program)) == program


@pytest.mark.parametrize("example", ["tiny-test", "production-shape", "v41-flash"])
def test_every_program_of_an_example(example: str) -> None:
    programs = scheduled_model(example).context.programs
    assert len(programs) > 60
    for program in programs.values():
        text = print_program(program)
        again = parse_program(text)
        assert again == program, program.name
        assert print_program(again) == text


@pytest.mark.parametrize(("old", "new", "message"), [
    ("let p: i32 = row[t]", "let p: f32 = row[t]", "p is f32, the value i32"),
    ("let p: i32 = row[t]", "let p: i32 = column[t]", "unknown buffer 'column'"),
    ("param y: f32[T, 64] global out", "param y: f32[T, 64] globe out", "no memory class"),
    ("for i in 8 serial {", "for i in 8 sideways {", "no kind of loop"),
    ("fill acc = 0.0", "fill acc = 0.0 now", "unexpected text"),
    ("tile[0, j] = sq", "tile[0, j] = square", "unknown name 'square'"),
    ("m 8 n 16", "m eight n 16", "expected an integer"),
    ("alloc tile: f32[8, 64] near", "alloc tile: f33[8, 64] near", "no dtype"),
    ("kernel @all anchor row functions dinfc-f32 {", "kernel @all anchor row functions dinfc-f32", "opening brace"),
    ("fill acc = 0.0", "filled acc = 0.0", "expected a statement"),
    ("limits [T, _]", "limits [T _]", "expected ','"),
    ("add(acc[i, j], top)", "add(acc[i, j], 1)", "mixes f32 and i32"),
    ("sum over k", "product over k", "no reduction"),
    ("layout n16k b_codec", "shape n16k b_codec", "expected 'layout'"),
    ("a_scale s[t, 0]", "a_scale s[t, 0", "expected"),
    ("param s: u8[T, 2] global in", "param s: u8[T, 2] global", "expected mode"),
    ('order "lanes 16 stride 1"', "order lanes", "text in quotes"),
    ("  grid t in T, cb in 4", "  grid t in T cb in 4", "expected ','"),
])
def test_a_mistake_is_shown_with_its_line_and_a_caret(old: str, new: str, message: str) -> None:
    assert old in EVERYTHING
    with pytest.raises(TileSyntaxError) as raised:
        parse_program(EVERYTHING.replace(old, new, 1))
    text = str(raised.value)
    line = next(i for i, x in enumerate(EVERYTHING.replace(old, new, 1).splitlines(), 1) if new.strip() in x)
    assert message in text and text.startswith(f"line {line}: ") and text.splitlines()[-1].strip() == "^"


def test_text_behind_the_program() -> None:
    with pytest.raises(TileSyntaxError, match="unexpected text behind the program"):
        parse_program(EVERYTHING + "}\n")


def test_whatever_is_cut_out_is_read_or_shown_as_a_mistake() -> None:
    """No text makes the parser fail otherwise; what it accepts is printed and read back."""
    lines = EVERYTHING.splitlines()
    for at in range(len(EVERYTHING)):
        for text in (EVERYTHING[:at], EVERYTHING[:at] + EVERYTHING[at + 5 :]):
            try:
                program = parse_program(text)
            except TileSyntaxError as error:
                assert str(error).splitlines()[-1].strip() == "^"
                assert error.line <= len(lines)
            else:
                assert parse_program(print_program(program)) == program


def test_a_missing_brace() -> None:
    with pytest.raises(TileSyntaxError, match="closing brace is missing"):
        parse_program(EVERYTHING.rstrip().removesuffix("}"))
