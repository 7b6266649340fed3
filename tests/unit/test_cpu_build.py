"""What the CPU emitter's libraries are made of: golden text, both instruction sets, no foreign symbol; and a checked
build that finds what the verifier refuses, and what it cannot see."""
from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest

from dinfc.codegen.emit.cpu import emit_source
from dinfc.codegen.emit.cpu_build import (
    ALLOWED_PREFIXES,
    ALLOWED_SYMBOLS,
    build_library,
    check_symbols,
    undefined_symbols,
)
from dinfc.codegen.emit.cpu_sources import library_sources
from dinfc.ir.functions import function_set
from dinfc.ir.scalar import TRANSCENDENTAL
from dinfc.ir.tile.parse import parse_program
from dinfc.ir.tile.program import Program, TileError
from dinfc.ir.tile.verify import verify_program
from support.compiled_model import CACHE, scheduled_model
from support.cpu_run import KernelFailed, run_program
from support.dot_model import Case, make_case
from support.golden import golden_files, printed

# Every format and layout of product operands, and both kinds of scales.
PRODUCTS = [Case("f32", "f32", "nk"), Case("bf16", "e4m3", "nk"), Case("e2m1", "e2m1", "nk", a_scale="e8m0"),
            Case("f32", "bf16", "kn"), Case("f32", "e2m1", "kn"), Case("bf16", "bf16", "n16k"),
            Case("e4m3", "e4m3", "n16k", a_scale="e8m0", b_scale="e8m0", scale_rows=32, n=64),
            Case("e4m3", "e2m1", "n16k4", a_scale="f32", b_scale="f32"), Case("f32", "e2m1", "n16k4", m=5, n=24)]


def transcendental() -> Program:
    """Calls every transcendental function."""
    names = sorted(TRANSCENDENTAL)
    assert set(names) <= set(function_set())
    stores = "".join(f"    y[t, {i}, j] = {n}(x[t, j])\n" for i, n in enumerate(names))
    return parse_program(f"""kernel @functions anchor row functions dinfc-f32 {{
  param x: f32[T, 16] global in
  param y: f32[T, {len(names)}, 16] global out
  grid t in T
  for j in 16 vector {{
{stores}  }}
}}
""")


@pytest.mark.parametrize("path", golden_files(), ids=lambda p: p.name)
def test_the_text_of_a_golden_kernel_has_not_changed(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == printed(path), "if this is right, run python tests/golden/accept.py"


def test_golden_kernels_are_legal_and_computed_alike_by_both_builds() -> None:
    assert {p.name for p in golden_files()} == {"norm_product.cc", "norm_product.checked.cc"}
    for path in golden_files():
        program = parse_program(path.with_name(path.name.split(".")[0] + ".tir").read_text(encoding="utf-8"))
        verify_program(program)
        rng = numpy.random.default_rng(5)
        x = (rng.standard_normal((4, 64)).astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
        inputs = {"x": x, "row": numpy.array([2, -1, 0, 3], numpy.int32),
                  "w": rng.integers(0, 0x70, (3, 64, 16)).astype(numpy.uint8),
                  "w_s": rng.integers(120, 130, (2, 2)).astype(numpy.uint8)}
        out = [numpy.full((4, 40), 0xFFFF, numpy.uint16) for _ in range(2)]
        for checked in (False, True):
            run_program(program, inputs | {"y": out[checked]}, {"T": 4}, checked)
        assert numpy.array_equal(out[0], out[1])
        assert (out[0][1] == 0).all() and out[0][[0, 2, 3]].any(axis=1).all()


def one_of_each_anchor() -> list[Program]:
    """The longest kernel of every anchor class of the small model."""
    by_anchor: dict[str, Program] = {}
    for program in scheduled_model("tiny-test").context.programs.values():
        best = by_anchor.get(program.anchor)
        if best is None or len(emit_source([program])) > len(emit_source([best])):
            by_anchor[program.anchor] = program
    assert len(by_anchor) >= 8
    return list(by_anchor.values())


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_both_instruction_sets_compile_and_need_no_mathematical_library(isa: str, tmp_path: Path) -> None:
    products = [dataclasses.replace(make_case(c)[0], name=f"product_{i}") for i, c in enumerate(PRODUCTS)]
    sources = library_sources([transcendental(), *one_of_each_anchor(), *products])
    library = build_library(sources, tmp_path / "k.so", isa, cache=CACHE)
    check_symbols(library)
    names = undefined_symbols(library)
    assert all(n in ALLOWED_SYMBOLS or n.startswith(ALLOWED_PREFIXES) for n in names)
    mathematical = ("exp", "log", "log1p", "sqrt", "fma", "pow", "floor", "fmax", "fmin")
    assert not [n for n in names if n.startswith("_ZGV") or n.rstrip("f") in mathematical]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump")
def test_avx512_products_use_wide_registers_and_avx2_ones_do_not(tmp_path: Path) -> None:
    program = make_case(PRODUCTS[6])[0]
    for isa, wide in (("avx2", False), ("avx512", True)):
        library = build_library(library_sources([program]), tmp_path / f"{isa}.so", isa, cache=CACHE)
        text = subprocess.run(["objdump", "-d", str(library)], capture_output=True, text=True, check=True).stdout
        assert ("%zmm" in text) == wide
        assert any("vfmadd" in line and ("%zmm" if wide else "%ymm") in line for line in text.splitlines())


# -- the checked build finds what the verifier refuses

HEAD = """kernel @wrong anchor - functions dinfc-f32 {
  param x: f32[T] global in
  param at: i32[T] global in
  param y: f32[T] global out
  param n: i32[T] global out bounds [0, T)
  grid t in T
"""
FAULTS = {
    "an index past the end": ("y[t] = x[add(t, 1)]", "index of x is out of range: 3 of 3"),
    "a negative index": ("y[sub(t, 1)] = 0.0", "index of y is out of range: -1 of 3"),
    "a loaded index": ("y[t] = x[at[t]]", "index of x is out of range: 7 of 3"),
    "scratch that nobody wrote": (
        "alloc a: f32[4] near\n  a[0] = 1.0\n  y[t] = a[1]", "uninitialised read of a: element 1"),
    "a product of rows that nobody wrote": (
        "alloc a: f32[2, 8] near\n  alloc b: f32[4, 8] near\n  alloc c: f32[2, 4] accumulator\n  fill b = 1.0\n"
        "  fill c = 0.0\n  for k in 8 vector {\n    a[0, k] = 1.0\n  }\n"
        "  dot c += a[0, 0] * b[0, 0] m 2 n 4 k 8 group 8 layout nk", "uninitialised read of a: element 8"),
    "an accumulator that nobody filled": (
        "alloc a: f32[1, 8] near\n  alloc c: f32[1, 4] accumulator\n  alloc b: f32[4, 8] near\n  fill a = 1.0\n"
        "  fill b = 1.0\n  dot c += a[0, 0] * b[0, 0] m 1 n 4 k 8 group 8 layout nk",
        "uninitialised read of c: element 0"),
    "a copy beyond the source": (
        "alloc a: f32[2] near\n  copy a = x[add(t, 1)] limits [_]", "index of x is out of range: 3 of 3"),
}
SILENT = {  # wrong in ways that only the data show: the verifier cannot see them
    "a value out of its bounds": ("n[t] = at[t]", "value out of the bounds of n: 7 of 3"),
    "a division by zero": ("n[t] = idiv(0, sub(at[t], 7))", "division by zero"),
    "a cast that loses bits": ("n[t] = i32(mul(i64(at[t]), 4294967296:i64))", "cast to int32_t loses"),
    "a float too large for an integer": ("n[t] = i32(x[t])", "cast of a float to int32_t overflows"),
}


def run_wrong(statement: str, checked: bool) -> None:
    program = parse_program(f"{HEAD}  {statement}\n}}\n")
    arrays = {"x": numpy.full(3, 1e30, numpy.float32), "at": numpy.full(3, 7, numpy.int32),
              "y": numpy.zeros(3, numpy.float32), "n": numpy.zeros(3, numpy.int32)}
    run_program(program, arrays, {"T": 3}, checked, verify=False)


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_verifier_refuses_the_checked_build_finds(fault: str) -> None:
    statement, message = FAULTS[fault]
    with pytest.raises(TileError):
        verify_program(parse_program(f"{HEAD}  {statement}\n}}\n"))
    with pytest.raises(KernelFailed) as raised:
        run_wrong(statement, checked=True)
    assert message in str(raised.value) and str(raised.value).startswith("wrong: ")


@pytest.mark.parametrize("fault", SILENT)
def test_what_only_the_data_show_the_checked_build_finds(fault: str) -> None:
    statement, message = SILENT[fault]
    verify_program(parse_program(f"{HEAD}  {statement}\n}}\n"))
    with pytest.raises(KernelFailed) as raised:
        run_wrong(statement, checked=True)
    assert message in str(raised.value) and statement in str(raised.value)


def test_after_a_failure_the_next_run_is_clean() -> None:
    with pytest.raises(KernelFailed):
        run_wrong(SILENT["a value out of its bounds"][0], checked=True)
    run_wrong("n[t] = 1", checked=True)
