"""The verifier of tile programs: every program of every example passes; each kind of fault, planted, does not."""
from __future__ import annotations

import pytest

from dinfc.codegen.emit.device_slice import slice_text
from dinfc.device_slice import device_target, slice_programs
from dinfc.diagnostics import DinfcError
from dinfc.ir.parse import parse_module
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
    ("scratch that nobody wrote", "near_x[j] = x[t, j]", "y[t, j] = x[t, j]", "near_x is read where it is"),
    ("an unknown name", "of near_x[k]", "of mul(near_x[k], scale)", "unknown name 'scale'"),
    ("a store into an input", "z[t] = sum", "x[t, 0] = sum", "is a parameter of mode in"),
    ("a value of another type", "ring[i, 0] = t", "ring[i, 0] = sum", "ring is i32, the stored value f32"),
    ("too few indices", "z[t] = x[b, 0]", "z[t] = x[b]", "2 dims, indexed with 1"),
    ("a name twice", "let q: i32 = mod(t, 8)", "let q: i32 = mod(t, 8)\n  let T: i32 = 3", "declared already"),
    ("a name of the loop around", "let b: i32 = bound[t]", "for t in 2 serial {\n}\nlet b: i32 = 0", "t is declared"),
    ("lanes that cannot be halved", "lanes 16", "lanes 12", "no power of two"),
    ("a store beside its own", "z[t] = w[q,", "z[max(sub(t, 1), 0)] = w[q,", "iterations of t may store to the same"),
    ("a record that two rows share", "ring[i, 0] = t", "ring[min(t, 8), 0] = t", "iterations of t may store"),
    ("a vector loop of unknown length", "for j in 64 vector {", "for j in min(T, 64) vector {", "constant extent"),
    ("a number as a condition", "if ge(b, 0) {", "if b {", "the condition is i32"),
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


LOCAL = """kernel @local anchor row functions dinfc-f32 {
  param x: bf16[T, 64] global in
  param codes: u8[T, 4, 64] global in
  param w: u8[3, 64, 16] global in
  param w_s: u8[2, 2] global in
  param y: f32[T, 40] global out
  grid it in idiv(add(T, 7), 8)
  let live: i32 = min(sub(T, mul(it, 8)), 8)
  alloc a: u8[8, 64] near
  alloc a_s: f32[8, 2] near
  alloc list: i32[8] near
  for p in 8 serial {
    list[p] = min(add(mul(it, 8), p), sub(T, 1))
  }
  for i in 8 serial {
    for k in 32 vector {
      a[i, mul(k, 2)] = codes[list[i], 1, k]
      a[i, add(mul(k, 2), 1)] = codes[list[i], 2, k]
    }
    if lt(i, live) {
      a_s[i, 0] = 1.0
    } else {
      a_s[i, 0] = 2.0
    }
    a_s[i, 1] = f32(x[list[i], 3])
  }
  alloc tile: bf16[8, 16] near
  copy tile = x[mul(it, 8), 48] limits [T, _]
  alloc rows_of: bf16[8, 64] near
  copy rows_of = x[0, 0] limits [_, _] rows list
  alloc acc: f32[8, 40] accumulator
  fill acc = 0.0
  dot acc += a[0, 0] * w[0, 0, 0] m 8 n 40 k 64 group 32 layout n16k a_codec e4m3 b_codec e4m3 \
a_scale a_s[0, 0] b_scale w_s[0, 0] b_scale_rows 32 rows live
  for i in live parallel {
    reduce top = max over j in 16 lanes 4 start -inf of f32(tile[i, j])
    for j in 40 vector {
      y[add(mul(it, 8), i), j] = add(acc[i, j], mul(top, f32(rows_of[i, j])))
    }
  }
}
""".replace("\\\n", "")

LOCAL_FAULTS = [
    ("half of the columns unwritten", "a[i, add(mul(k, 2), 1)] = codes", "a[i, mul(k, 2)] = codes", "a is read where"),
    ("rows unwritten", "for i in 8 serial {", "for i in 7 serial {", "a is read where"),
    ("a scale that one branch leaves out", "a_s[i, 0] = 2.0", "a_s[i, 1] = 2.0", "a_s is read where"),
    ("an accumulator that nobody filled", "fill acc = 0.0", "// nothing", "acc is read where"),
    ("a list that nobody wrote", "list[p] = min", "list[0] = min", "list is read where"),
    ("scratch of another block", "alloc list: i32[8] near", "alloc lost: i32[8] near", "expected a statement"),
    ("too many rows of a product", "rows live", "rows T", "not proven to have so many rows"),
    ("a tile that is too wide", "copy tile = x[mul(it, 8), 48]", "copy tile = x[mul(it, 8), 49]", "to hold the tile"),
    ("a tile without limit", "limits [T, _]", "limits [_, _]", "to hold the tile"),
    ("a limit past the end", "limits [T, _]", "limits [add(T, 1), _]", "limit 0 is not proven to lie inside x"),
    ("weights that end too early", "w[0, 0, 0] m 8", "w[1, 0, 0] m 8", "to hold the tile"),
    ("codes that are no bytes", "b_codec e4m3 ", "", "w is u8, it cannot hold values"),
    ("k that is no multiple of its group", "group 32", "group 48", "no multiple of the group"),
    ("an accumulator of another shape", "f32[8, 40] accumulator", "f32[8, 48] accumulator", "no f32 accumulator of"),
    ("scales of another size", "w_s: u8[2, 2]", "w_s: u8[1, 2]", "to hold the tile"),
    ("tiles that overlap", "y[add(mul(it, 8), i), j]", "y[add(mul(it, 7), i), j]", "iterations of it may store"),
    ("rows that overlap", "y[add(mul(it, 8), i), j]", "y[add(mul(it, 8), mul(0, i)), j]", "iterations of i may store"),
    ("a list with fewer rows", "bf16[8, 64] near", "bf16[9, 64] near", "list "),
    ("a list of floats", "rows list", "rows a_s", "no list of the rows"),
    ("a reduction over two kinds", "start -inf", "start 0", "top starts as i32 and takes f32"),
    ("a dim that is no constant", "alloc tile: bf16[8, 16] near", "alloc tile: bf16[T, 16] near", "no positive const"),
    ("a kind of loop", "for p in 8 serial {", "for p in 8 parallel {", ""),
]


def test_a_program_with_scratch_copies_and_products_is_accepted() -> None:
    verify_program(parse_program(LOCAL), {"near": 512 + 64 + 32 + 256 + 1024, "accumulator": 1280})


@pytest.mark.parametrize(("old", "new", "message"), [f[1:] for f in LOCAL_FAULTS], ids=[f[0] for f in LOCAL_FAULTS])
def test_a_fault_in_scratch_copies_or_products_is_refused(old: str, new: str, message: str) -> None:
    assert LOCAL.count(old) == 1
    program = LOCAL.replace(old, new)
    if not message:
        verify_program(parse_program(program))
        return
    with pytest.raises((TileError, ValueError), match=message) as raised:
        verify_program(parse_program(program))
    assert any(line.strip().strip("| ").startswith("^") for line in str(raised.value).splitlines())


@pytest.mark.parametrize("device", ["sm90", "sm100", "ascend950"])
def test_programs_of_devices_are_accepted(device: str) -> None:
    module = parse_module(slice_text(512, 128, 64, 128, 150))
    programs = slice_programs(module, device_target(device))
    assert {p.anchor for p in programs.values()} == {"row", "matmul", "attend"}
    for program in programs.values():
        verify_program(program)


def test_capacity_is_that_of_the_target() -> None:
    with pytest.raises(TileError, match="256 bytes, there are 255"):
        verify_program(parse_program(LEGAL), {"near": 255})


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
