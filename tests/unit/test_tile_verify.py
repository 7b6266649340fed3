"""The verifier of tile programs: every program of every example passes; each kind of fault, planted, does not."""
from __future__ import annotations

import pytest

from dinfc.diagnostics import DinfcError
from dinfc.ir.tile.parse import parse_program
from dinfc.ir.tile.program import TileError
from dinfc.ir.tile.verify import verify_program
from dinfc.passes.base import Context
from dinfc.passes.schedule import check
from dinfc.targets.cpu import CpuTarget
from support.compiled_model import scheduled_model

LEGAL = """kernel @k anchor row functions dinfc-f32 {
  param x: f32[T, 64] global in
  param index: i32[T] global in
  param bound: i32[T] global in bounds [-1, T)
  param w: f32[8, 64] global in
  param ring: i32[mul(slots, 9), 1] global inout
  param y: f32[T, 64] global out
  param z: f32[T] global out
  grid t in T
  alloc near_x: f32[64] near
  for j in 64 vector {
    near_x[j] = x[t, j]
  }
  reduce sum = sum over k in 64 lanes 16 start 0.0 of near_x[k]
  z[t] = sum
  let i: i32 = index[t]
  let b: i32 = bound[t]
  for o in 2 serial {
    for n in 32 vector {
      y[t, add(mul(o, 32), n)] = select(land(ge(i, 0), lt(i, T)), x[i, add(mul(o, 32), n)], 0.0)
    }
  }
  if ge(b, 0) {
    z[t] = x[b, 0]
  }
  if land(ge(i, 0), lt(i, mul(slots, 9))) {
    ring[i, 0] = t
  }
  let q: i32 = mod(t, 8)
  z[t] = w[q, min(max(i, 0), 63)]
}
"""

FAULTS = [
    ("an index past the end", "for j in 64 vector {", "for j in 65 vector {", "not proven to be below its extent"),
    ("a wrong step", "add(mul(o, 32), n)] = select", "add(mul(o, 33), n)] = select", "not proven to be below"),
    ("a missing guard", "select(land(ge(i, 0), lt(i, T)), x[i,", "select(lt(i, T), x[i,", "not proven to be >= 0"),
    ("a sign alone (F07)", "select(land(ge(i, 0), lt(i, T)), x[i,", "select(ge(i, 0), x[i,", "not proven to be below"),
    ("a guard of another buffer", "if ge(b, 0) {", "if ge(i, 0) {", "not proven to be >= 0"),
    ("a state outside of its slots", "lt(i, mul(slots, 9))", "lt(i, mul(slots, 10))", "not proven to be below"),
    ("a remainder too large", "mod(t, 8)", "mod(t, 9)", "not proven to be below"),
    ("a clamp that is one too wide", "min(max(i, 0), 63)", "min(max(i, 0), 64)", "not proven to be below"),
    ("a race between rows", "z[t] = sum", "z[0] = sum", "iterations of t may store to the same element of z"),
    ("a race of vector lanes", "near_x[j] = x[t, j]", "near_x[idiv(j, 2)] = x[t, j]", "iterations of j"),
    ("two rows of a pair", "y[t, add(mul(o, 32), n)] = select", "y[t, mul(o, 32)] = select", "iterations of n"),
    ("a race through a loaded index", "z[t] = x[b, 0]", "z[b] = x[b, 0]", "may store to the same element of z"),
    ("scratch that nobody wrote", "near_x[j] = x[t, j]", "y[t, j] = x[t, j]", "near_x is read before anything"),
    ("an unknown name", "of near_x[k]", "of mul(near_x[k], scale)", "unknown name 'scale'"),
    ("a store into an input", "z[t] = sum", "x[t, 0] = sum", "is a parameter of mode in"),
    ("a value of another type", "ring[i, 0] = t", "ring[i, 0] = sum", "ring is i32, the stored value f32"),
    ("too few indices", "z[t] = x[b, 0]", "z[t] = x[b]", "2 dims, indexed with 1"),
    ("a name twice", "let q: i32 = mod(t, 8)", "let q: i32 = mod(t, 8)\n  let T: i32 = 3", "declared already"),
    ("lanes that cannot be halved", "lanes 16", "lanes 12", "no power of two"),
]


def test_the_legal_program_is_accepted() -> None:
    verify_program(parse_program(LEGAL), {"near": 256})


@pytest.mark.parametrize(("old", "new", "message"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_refused_at_its_statement(old: str, new: str, message: str) -> None:
    assert LEGAL.count(old) == 1
    text = LEGAL.replace(old, new)
    with pytest.raises((TileError, ValueError), match=message) as raised:
        verify_program(parse_program(text))
    shown = str(raised.value).splitlines()
    assert any(line.strip().strip("| ").startswith("^") for line in shown), shown


def test_capacity_is_that_of_the_target() -> None:
    with pytest.raises(TileError, match="256 bytes, there are 255"):
        verify_program(parse_program(LEGAL), {"near": 255})


def test_a_condition_is_forgotten_when_its_buffer_changes() -> None:
    text = """kernel @k anchor row functions dinfc-f32 {
  param x: f32[16] global in
  param y: f32[1] global out
  param n: i32[1] global in
  grid one in 1
  alloc at: i32[1] near
  at[0] = n[0]
  if land(ge(at[0], 0), lt(at[0], 16)) {
    CHANGE
    y[0] = x[at[0]]
  }
}
"""
    verify_program(parse_program(text.replace("CHANGE", "y[0] = 0.0")))
    with pytest.raises(TileError, match="not proven"):
        verify_program(parse_program(text.replace("CHANGE", "at[0] = add(at[0], 1)")))


def test_a_loop_body_may_have_changed_what_was_known_before_it() -> None:
    text = """kernel @k anchor row functions dinfc-f32 {
  param x: f32[16] global in
  param y: f32[8] global out
  grid one in 1
  alloc at: i32[1] near
  at[0] = 0
  if lt(at[0], 8) {
    for i in 8 serial {
      y[i] = x[max(at[0], 0)]
      at[0] = STEP
    }
  }
}
"""
    verify_program(parse_program(text.replace("STEP", "i")))
    with pytest.raises(TileError, match="not proven"):
        verify_program(parse_program(text.replace("STEP", "add(at[0], 1)")))


def test_a_chunk_lies_inside_the_step() -> None:
    text = """kernel @k anchor row functions dinfc-f32 {
  param x: f32[T] global in
  param y: f32[rows] global out
  grid i in rows
  let t: i32 = add(row0, i)
  y[i] = x[AT]
}
"""
    verify_program(parse_program(text.replace("AT", "t")))
    with pytest.raises(TileError, match="not proven"):
        verify_program(parse_program(text.replace("AT", "add(t, 1)")))


@pytest.mark.parametrize("example", ["tiny-test", "production-shape", "v41-flash"])
def test_every_program_of_an_example_is_accepted(example: str) -> None:
    target = CpuTarget()
    for program in scheduled_model(example).context.programs.values():
        verify_program(program, target.limits.capacity)


def test_the_compiler_refuses_a_schedule_with_a_fault() -> None:
    program = parse_program(LEGAL.replace("z[t] = sum", "z[0] = sum"))
    compiled = scheduled_model("tiny-test")
    context = Context(CpuTarget(), compiled.limits, 8)
    with pytest.raises(DinfcError, match="E-TILE-001") as raised:
        check(program, context)
    assert "iterations of t" in raised.value.message
