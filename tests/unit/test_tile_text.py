"""Tile programs: print and parse are inverse, on every program of every example; mistakes are shown with a caret."""
from __future__ import annotations

import pytest

from dinfc.ir.tile.parse import TileSyntaxError, parse_program
from dinfc.ir.tile.text import print_program
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


def test_every_statement_kind() -> None:
    program = parse_program(EVERYTHING)
    assert print_program(program) == EVERYTHING
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
])
def test_a_mistake_is_shown_with_its_line_and_a_caret(old: str, new: str, message: str) -> None:
    assert old in EVERYTHING
    with pytest.raises(TileSyntaxError) as raised:
        parse_program(EVERYTHING.replace(old, new, 1))
    text = str(raised.value)
    line = next(i for i, x in enumerate(EVERYTHING.replace(old, new, 1).splitlines(), 1) if new.strip() in x)
    assert message in text and text.startswith(f"line {line}: ") and text.splitlines()[-1].strip() == "^"


def test_a_missing_brace() -> None:
    with pytest.raises(TileSyntaxError, match="closing brace is missing"):
        parse_program(EVERYTHING.rstrip().removesuffix("}"))
