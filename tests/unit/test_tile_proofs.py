"""What the verifier of tile programs can prove, and what it must not: races, initialisation, bounds."""
from __future__ import annotations

import pytest

from dinfc.ir.tile.parse import parse_program
from dinfc.ir.tile.program import Program, TileError
from dinfc.ir.tile.verify import verify_program


def body(text: str, params: str = "") -> Program:
    """A kernel of rows with inputs x f32[T, 64] and n i32[T], and the output y f32[T, 64]."""
    return parse_program(f"""kernel @k anchor row functions dinfc-f32 {{
  param x: f32[T, 64] global in
  param n: i32[T] global in
  param y: f32[T, 64] global out
{params}  grid t in T
{text}
}}
""")


# (what, statements, None where they are legal, else part of the message)
SITUATIONS = [
    # races: names inside the loop are no constants of it
    ("a bound name that moves", "let d: i32 = mod(t, 8)\ny[sub(t, d), 0] = 1.0", "iterations of t may store"),
    ("a bound name that stays", "let d: i32 = mod(t, 8)\nfor j in 8 vector {\ny[t, add(d, j)] = 1.0\n}", None),
    ("two stores that meet", "y[t, 0] = 1.0\ny[sub(sub(T, 1), t), 0] = 2.0", "iterations of t may store"),
    ("two stores in other columns", "y[t, 0] = 1.0\ny[t, 1] = 2.0", None),
    ("neighbours, even and odd", "for j in 32 vector {\ny[t, mul(j, 2)] = 0.0\ny[t, add(mul(j, 2), 1)] = 1.0\n}", None),
    ("neighbours that meet", "for j in 31 vector {\ny[t, mul(j, 2)] = 0.0\ny[t, add(mul(j, 2), 2)] = 1.0\n}",
     "iterations of j may store"),
    ("one row alone", "if eq(t, 0) {\ny[0, 0] = 1.0\n}", None),
    ("one row beside all", "if eq(t, 0) {\ny[0, 0] = 1.0\n}\ny[t, 0] = 2.0", None),
    ("one row beside another's", "if eq(t, 1) {\ny[0, 0] = 1.0\n}\ny[t, 0] = 2.0", "iterations of t may store"),
    ("a scalar summed by lanes", "alloc s: f32[1] near\ns[0] = 0.0\nfor j in 64 vector {\ns[0] = add(s[0], x[t, j])\n}",
     "an iteration of j may read an element of s"),
    ("a scan by lanes", "alloc s: f32[64] near\nfill s = 0.0\nfor j in 63 vector {\ns[add(j, 1)] = s[j]\n}",
     "may read an element of s that another one stores"),
    ("a scan in order", "alloc s: f32[64] near\nfill s = 0.0\nfor j in 63 serial {\ns[add(j, 1)] = s[j]\n}", None),
    ("a fill by every lane", "alloc s: f32[4] near\nfor j in 4 parallel {\nfill s = 0.0\n}",
     "iterations of j may store"),
    ("a fill of the result by every row", "fill y = 0.0", "iterations of t may store"),
    ("every eighth row", "if eq(mod(t, 8), 0) {\ny[idiv(t, 8), 0] = 1.0\n}", None),
    ("eight rows into one", "y[idiv(t, 8), 0] = 1.0", "iterations of t may store"),
    # initialisation
    ("a loop that may not run", "alloc s: f32[4] near\nfor i in n[t] serial {\nfill s = 0.0\n}\ny[t, 0] = s[0]",
     "s is read"),
    ("a loop that runs", "alloc s: f32[4] near\nfor i in 3 serial {\nfill s = 0.0\n}\ny[t, 0] = s[0]", None),
    ("backwards", "alloc s: f32[8] near\nfor i in 8 serial {\ns[sub(7, i)] = 0.0\n}\ny[t, 0] = s[5]", None),
    ("one branch", "alloc s: f32[4] near\nif gt(n[t], 0) {\nfill s = 0.0\n}\ny[t, 0] = s[0]", "s is read"),
    ("a guarded store", "alloc s: f32[1] near\ns[0] = 1.0 where gt(n[t], 0)\ny[t, 0] = s[0]", "s is read"),
    ("opposite guards", "alloc s: f32[1] near\ns[0] = 1.0 where gt(n[t], 0)\ns[0] = 2.0 where lnot(gt(n[t], 0))\n"
     "y[t, 0] = s[0]", None),
    ("guards that do not exclude each other", "alloc s: f32[1] near\ns[0] = 1.0 where gt(n[t], 0)\n"
     "s[0] = 2.0 where lt(n[t], 0)\ny[t, 0] = s[0]", "s is read"),
    ("a guard for each element", "alloc c: i32[8] near\nalloc s: f32[8] near\nfor i in 8 serial {\nc[i] = i\n}\n"
     "for i in 8 serial {\nif eq(c[i], 3) {\ns[i] = 0.0\n}\n}\nfor i in 8 serial {\nif ne(c[i], 3) {\n"
     "y[t, i] = 0.0\n} else {\ny[t, i] = 1.0\n}\nif lnot(eq(c[i], 3)) {\ns[i] = 1.0\n}\n}\ny[t, 9] = s[5]", None),
    ("a guard that changes in between", "alloc c: i32[8] near\nalloc s: f32[8] near\nfill c = 0\nfor i in 8 serial {\n"
     "if eq(c[i], 3) {\ns[i] = 0.0\n}\n}\nfill c = 3\nfor i in 8 serial {\nif lnot(eq(c[i], 3)) {\ns[i] = 1.0\n}\n}\n"
     "y[t, 9] = s[5]", "s is read"),
    ("a result read back", "y[t, 0] = 1.0\ny[t, 1] = y[t, 0]", None),
    ("a result read before", "y[t, 1] = y[t, 0]", "y is read"),
    ("scratch of the last round", "for i in 3 serial {\nalloc s: f32[2] near\ns[0] = 1.0\ny[t, i] = s[1]\n}",
     "s is read"),
    # bounds
    ("a wrapped byte", "y[t, i32(add(200:u8, 100:u8))] = 1.0", "not proven to be below"),
    ("a byte", "y[t, shr(i32(u8(n[t])), 2)] = 1.0", None),
    ("a chosen bound", "y[t, select(lt(n[t], 0), 0, min(n[t], 63))] = 1.0", None),
    ("a bound of the other side", "y[t, select(lt(n[t], 64), max(n[t], 0), n[t])] = 1.0", "not proven to be below"),
    ("a condition in the same expression", "y[t, 0] = select(land(ge(n[t], 0), lt(n[t], T)), x[n[t], 0], 0.0)", None),
    ("or instead of and", "y[t, 0] = select(lor(ge(n[t], 0), lt(n[t], T)), x[n[t], 0], 0.0)", "not proven"),
    ("a cast that may wrap", "y[t, max(min(i32(mul(i64(n[t]), 7:i64)), 63), 0)] = 1.0", None),
    ("bounds of scratch", "alloc c: i32[2] near bounds [0, 64)\nfill c = 63\ny[t, c[1]] = 1.0", None),
    ("bounds of scratch not kept", "alloc c: i32[2] near bounds [0, 64)\nfill c = 64",
     "not proven to lie in the bounds of c"),
    # structure
    ("a name twice", "let s: f32 = x[t, 0]\nlet s: f32 = x[t, 1]", "s is declared already"),
    ("a name that has ended", "for i in 2 serial {\nlet v: i32 = i\n}\nfor i in 2 serial {\nlet v: i32 = i\n}", None),
]


@pytest.mark.parametrize(("text", "message"), [s[1:] for s in SITUATIONS], ids=[s[0] for s in SITUATIONS])
def test_what_is_accepted_and_what_is_not(text: str, message: str | None) -> None:
    program = body(text)
    if message is None:
        verify_program(program)
        return
    with pytest.raises(TileError, match=message):
        verify_program(program)


RECORDS = "  param ring: u8[mul(slots, 4), 8] global inout\n  param slot: i32[T] global in\n"


@pytest.mark.parametrize(("index", "legal"), [
    ("s, j", True), ("idiv(s, 2), j", False), ("idiv(s, 2), add(mul(mod(s, 2), 4), mod(j, 4))", False),
    ("idiv(s, 2), mod(s, 2)", False), ("mod(t, 4), j", False), ("s, idiv(j, 2)", False), ("min(s, 3), j", False)])
def test_records_of_a_step_lie_in_slots_that_are_different_by_contract(index: str, legal: bool) -> None:
    text = f"""let s: i32 = slot[t]
if land(ge(s, 0), lt(s, mul(slots, 4))) {{
  for j in 8 vector {{
    ring[{index}] = 1:u8
  }}
}}"""
    if legal:
        verify_program(body(text, RECORDS))
        return
    with pytest.raises(TileError, match="may store to the same element of ring"):
        verify_program(body(text, RECORDS))


@pytest.mark.parametrize(("index", "legal"), [
    ("idiv(s, 2), add(mul(mod(s, 2), 4), j)", True), ("idiv(s, 2), add(mul(mod(s, 2), 3), j)", False),
    ("idiv(s, 4), add(mul(mod(s, 2), 4), j)", False), ("idiv(s, 2), add(mul(mod(t, 2), 4), j)", False)])
def test_two_records_share_a_page(index: str, legal: bool) -> None:
    text = f"""let s: i32 = slot[t]
if land(ge(s, 0), lt(s, mul(slots, 4))) {{
  for j in 4 vector {{
    ring[{index}] = 1:u8
  }}
}}"""
    if legal:
        verify_program(body(text, RECORDS))
        return
    with pytest.raises(TileError, match="may store to the same element of ring"):
        verify_program(body(text, RECORDS))


def test_a_row_may_read_the_record_that_it_wrote_and_no_other() -> None:
    text = """let s: i32 = slot[t]
if land(ge(s, 0), lt(s, mul(slots, 4))) {
  ring[s, 0] = 1:u8
  y[t, 0] = f32(ring[s, 1])
}"""
    verify_program(body(text, RECORDS))
    verify_program(body(text.replace("ring[s, 1]", "ring[s, 0]"), RECORDS))
    with pytest.raises(TileError, match="may read an element of ring that another one stores"):
        verify_program(body(text.replace("ring[s, 1]", "ring[max(sub(s, 1), 0), 0]"), RECORDS))


def test_an_error_of_a_parameter_or_of_the_grid_has_no_statement() -> None:
    with pytest.raises(TileError, match="program scalars only") as raised:
        verify_program(body("y[t, 0] = 0.0", "  param z: f32[add(n[0], 1)] global in\n"))
    assert "in kernel @k" in str(raised.value)


def test_capacity_counts_what_lives_together() -> None:
    text = "for i in 2 serial {\nalloc a: f32[64] near\nfill a = 0.0\n}\nalloc b: f32[65] near\nfill b = 0.0"
    verify_program(body(text), {"near": 260})
    with pytest.raises(TileError, match="b brings near memory to 260 bytes, there are 259"):
        verify_program(body(text), {"near": 259})
    with pytest.raises(TileError, match="b brings near memory to 516 bytes"):
        verify_program(body("alloc a: f32[64] near\n" + text.replace("alloc a: f32[64] near\nfill a", "fill a")),
                       {"near": 500})


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
