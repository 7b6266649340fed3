"""States: what a step reads, earlier steps have left there; rings are written last, pages first (design section 4a)."""
from __future__ import annotations

from functools import lru_cache

import pytest

from dinfc.frontend.deepseek_v41 import build_model
from dinfc.ir.graph import Module
from dinfc.ir.parse import parse_module
from dinfc.ir.ring_reads import _Walk, affine, ring_problems
from dinfc.ir.scalar import arg, index
from dinfc.ir.text import print_module
from dinfc.ir.types import Limits
from dinfc.ir.verify import VerifyError, verify_module
from frontend_support import example_config

WINDOW, BACKTRACK, RING = 8, 6, 14  # §12.2: W, block + 1, W + B_max
NEEDED = WINDOW - 1 + BACKTRACK - 1


@lru_cache(maxsize=4)
def model_text(example: str = "tiny-test") -> str:
    return print_module(build_model(example_config(example), Limits(2, 8, 512, 4096, (8,)), "fp4").module)


def changed(*changes: tuple[str, str]) -> Module:
    """The tiny model with parts of its text replaced."""
    text = model_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_module(text)


def with_ring(entries: int) -> Module:
    """The tiny model with window rings of another size."""
    return changed((f"ring<mxfp8<32>[64], {RING}>", f"ring<mxfp8<32>[64], {entries}>"), (f", {RING})", f", {entries})"))


def error_of(module: Module) -> str:
    with pytest.raises(VerifyError) as raised:
        verify_module(module)
    return str(raised.value)


@pytest.mark.parametrize("example", ["tiny-test", "production-shape", "v41-flash"])
def test_every_ring_of_every_example_is_proven(example: str) -> None:
    module = parse_module(model_text(example))
    assert module.info["backtrack"] == example_config(example).backtrack
    assert list(ring_problems(module)) == []


def test_the_proof_covers_every_read_of_every_ring() -> None:
    """Else a model whose reads are not found would pass."""
    module = parse_module(model_text())
    walk = _Walk(module)
    prepare = module.functions["prepare"]
    made = dict(zip((r.name for r in prepare.results), walk.walk(prepare, prepare), strict=True))
    forward = module.functions["forward"]
    walk.known |= {p: made[p.name] for p in forward.params if p.name in made}
    walk.walk(forward, forward)
    read = sorted(r.ring.name for r in walk.reads)
    assert read == sorted(["history", "latent_2", "latent_4", *(f"window_{layer}" for layer in range(9))])
    assert sorted(walk.writes) == read


def test_a_ring_may_be_as_small_as_the_proof_needs_and_no_smaller() -> None:
    verify_module(with_ring(NEEDED))
    message = error_of(with_ring(NEEDED - 1))
    assert f"a row reads {WINDOW - 1} positions back, and a sequence may be set back by {BACKTRACK - 1}" in message
    assert f"{NEEDED} positions are needed, {NEEDED - 1} are kept" in message


def test_the_error_points_at_the_reader_inside_the_ir() -> None:
    lines = error_of(with_ring(NEEDED - 1)).splitlines()
    assert lines[0].startswith("@forward: ring %window_0: ")
    at = next(n for n, line in enumerate(lines) if set(line.removeprefix("      | ")) <= {" ", "^"} and "^" in line)
    assert "sparse_attend" in lines[at - 1]


def test_a_longer_reach_needs_a_larger_ring() -> None:
    """A window index that starts three positions earlier than the ring was made for."""
    module = changed(("sub($0, 7), @1)", "sub($0, 10), @1)"))
    assert "a row reads 10 positions back" in error_of(module)


def test_a_deeper_backtrack_needs_a_larger_ring() -> None:
    assert "may be set back by 9" in error_of(changed((f"info backtrack = {BACKTRACK}", "info backtrack = 10")))


WANTED = "add(sub($0, 7), @1)"
KEPT = f"select(ge($0, sub($1, {RING})), add(mul($2, {RING})"
STORED = f"add(mul($2, {RING}), mod($0, {RING})), -1)"
OTHER_VALUE = "the position or slot that is read is not the one that is written"
PLANTED = {
    "entry_of_another_ring_size": (f"mod({WANTED}, {RING})", f"mod({WANTED}, 15)",
                                   "a place is not slot * entries + position % entries"),
    "ring_of_another_size": (f"ring<mxfp8<32>[64], {RING}>", "ring<mxfp8<32>[64], 15>",
                             "it has 15 entries, the place is computed for 14"),
    "negative_positions_are_read": (f"select(lt({WANTED}, 0), -1,", f"select(lt({WANTED}, -5), -1,",
                                    "without a check that the position is not negative"),
    "current_rows_are_read_from_the_ring": (f"select(ge({WANTED}, $1),", f"select(ge({WANTED}, $0),",
                                            "without a check that the position is before this step"),
    "the_first_row_is_read_from_the_ring": (f"select(ge({WANTED}, $1),", f"select(gt({WANTED}, $1),",
                                            "without a check that the position is before this step"),
    "all_rows_are_written": (KEPT, KEPT.replace(f"sub($1, {RING})", "0"), "all rows of a step are stored"),
    "more_rows_are_written_than_fit": (KEPT, KEPT.replace(f"sub($1, {RING})", "sub($1, 15)"),
                                       "15 rows of a step would be stored in its 14 entries"),
    "another_position_is_written": (STORED, STORED.replace("mod($0", "mod($1"), OTHER_VALUE),
    "another_slot_is_written": (STORED, STORED.replace("mul($2", "mul($1"), OTHER_VALUE),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_in_the_places_is_refused(name: str) -> None:
    old, new, message = PLANTED[name]
    text = error_of(changed((old, new)))
    assert "ring %window_" in text
    assert message in text


FUNCTION = """symbol T in [1, 8]
func @f(%x: f32[T, 4], %slots: i32[T], %old: i32[T], %state: STATE) -> (f32[T, 4], STATE) {
BODY  return %y, %next
}
"""
READ = "  %y = gather_rows(%old, %OF) : f32[T, 4]\n"
WRITE = "  %next = state_write(%state, %x, %slots) : STATE\n"


def of_state(state: str, body: str) -> Module:
    return parse_module(FUNCTION.replace("BODY", body).replace("STATE", state))


def test_a_ring_is_read_before_it_is_written_and_never_after() -> None:
    ring = "ring<f32[4], 12>"
    verify_module(of_state(ring, READ.replace("OF", "state") + WRITE))
    text = error_of(of_state(ring, WRITE + READ.replace("OF", "next")))
    assert "ring %state is read after it was written in this step" in text
    assert "%y = gather_rows" in text


def test_pages_are_written_before_they_are_read_and_never_after() -> None:
    pages = "pages<f32[4], 8, 4096, 0, 0>"
    verify_module(of_state(pages, WRITE + READ.replace("OF", "next")))
    text = error_of(of_state(pages, READ.replace("OF", "state") + WRITE))
    assert "pages %state are written after they were read in this step" in text
    assert "%next = state_write" in text


def test_the_order_counts_across_calls() -> None:
    ring = "ring<f32[4], 12>"
    text = f"""symbol T in [1, 8]
func @store(%x: f32[T, 4], %slots: i32[T], %ring: {ring}) -> ({ring}) {{
  %next = state_write(%ring, %x, %slots) : {ring}
  return %next
}}

func @look(%old: i32[T], %ring: {ring}) -> (f32[T, 4]) {{
  %y = gather_rows(%old, %ring) : f32[T, 4]
  return %y
}}

func @f(%x: f32[T, 4], %slots: i32[T], %old: i32[T], %ring: {ring}) -> (f32[T, 4], {ring}) {{
  %next = call(%x, %slots, %ring) {{callee = "store"}} : {ring}
  %y = call(%old, %next) {{callee = "look"}} : f32[T, 4]
  return %y, %next
}}
"""
    assert "@f: ring %ring is read after it was written in this step" in error_of(parse_module(text))


def test_affine_forms() -> None:
    p, q = arg(0, "i32"), arg(1, "i32")
    assert affine((p - 7) + index(1) * 2) == ({p: 1, index(1): 2}, -7)
    assert affine((p - 3) - (p - 5)) == ({}, 2)
    assert affine(p * 3 - (q + 1) * 2) == ({p: 3, q: -2}, -2)
    assert affine(p % 5) == ({p % 5: 1}, 0)
