"""Planted mistakes: each is named and shown inside the printed IR, with a caret under its statement."""
from __future__ import annotations

from itertools import pairwise

import pytest

from dinfc.ir import build as ir
from dinfc.ir.graph import Builder, Function, IRError, Module, Op, Value
from dinfc.ir.parse import ParseError, parse_module
from dinfc.ir.text import print_module
from dinfc.ir.types import StateType, Symbol, TensorType, symbol
from dinfc.ir.verify import VerifyError, verify_module

T = symbol("T")
SYMBOLS = "symbol T in [1, 64]\nsymbol S in [1, 8]\n"
RING = "ring<mxfp8<32>[64], 14>"


def function(params: str, results: str, *statements: str) -> str:
    """The text of `@f`; the last statement is what is returned."""
    body = "\n".join(f"  {s}" for s in statements[:-1])
    return f"func @f({params}) -> ({results}) {{\n{body}\n  return {statements[-1]}\n}}\n"


def error_of(module: Module) -> VerifyError:
    with pytest.raises(VerifyError) as raised:
        verify_module(module)
    return raised.value


def marked(error: VerifyError) -> list[str]:
    """The statements with a caret line under them, as far as the caret line reaches."""
    lines = str(error).splitlines()
    out = []
    for above, line in pairwise(lines):
        if line.startswith("      | ") and set(line.removeprefix("      | ")) <= {" ", "^"}:
            carets = line.removeprefix("      | ")
            out.append(above.split(" | ", 1)[1][len(carets) - len(carets.lstrip()):len(carets)])
    return out


# name -> (text, what the message says, what the caret points at)
PLANTED = {
    "scale_format_of_a_product": (  # fault F22
        function("%a: mxfp8<32>[T, 64], %w: fp4e4m3<16>[32, 64]", "bf16[T, 32]",
                 '%y = contract(%a, %w) {cls = "G4"} : bf16[T, 32]', "%y"),
        "contract: class G4 needs mxfp4<32> as B, %w is fp4e4m3<16>", "%y = contract"),
    "scale_format_of_a_state": (
        function(f"%ring: {RING}, %x: mxfp4<32>[T, 64], %at: i32[T]", RING,
                 f"%next = state_write(%ring, %x, %at) : {RING}", "%next"),
        "value %x must be mxfp8<32>, it is mxfp4<32>", "%next = state_write"),
    "written_type": (
        function("%x: f32[T, 8]", "f32[T, 4]", '%s = reduce(%x) {axis = 1, op = "sum"} : f32[T, 4]', "%s"),
        "%s is written as f32[T, 4], reduce gives f32[T]", "%s = reduce"),
    "bounds_too_narrow": (
        function("%s: bf16[T, 32], %e: i32[T]", "i32[T, 8] in [0, 32)",
                 '%i = topk(%s, %e) {by = "index", k = 8} : i32[T, 8] in [0, 32)', "%i"),
        "%i is written as i32[T, 8] in [0, 32), topk gives i32[T, 8] in [-1, 32)", "%i = topk"),
    "bounds_without_a_value": (
        function("%x: i32[T] in [5, 5)", "i32[T] in [5, 5)", "%x"),
        "bounds [5, 5) hold no value", "func @f"),
    "bounds_of_floats": (
        function("%x: f32[T] in [0, 1)", "f32[T] in [0, 1)", "%x"), "has bounds, which belong to integers", "func @f"),
    "index_outside_of_its_source": (
        function("%i: i32[T] in [8, 16), %table: bf16[8, 4]", "bf16[T, 4]", "%y = gather_rows(%i, %table) : bf16[T, 4]",
                 "%y"),
        "index %i in [8, 16) never lies in the 8 rows of %table", "%y = gather_rows"),
    "index_below_its_source": (
        function("%i: i32[T] in [-4, 0), %table: f32[8]", "f32[T]", "%y = take(%table, %i) : f32[T]", "%y"),
        "index %i in [-4, 0) never lies", "%y = take"),
    "symbol": (
        function("%x: f32[Q, 8]", "f32[Q]", '%s = reduce(%x) {axis = 1, op = "sum"} : f32[Q]', "%s"),
        "symbol Q is not declared", "func @f"),
    "sum_over_rows": (  # fault F12
        function("%x: f32[T, 8]", "f32[8]", '%s = reduce(%x) {axis = 0, op = "max"} : f32[8]', "%s"),
        "floats are reduced over T, which depends on the step", "%s = reduce"),
    "order_missing": (
        function("%x: f32[T, 8]", "f32[T], f32[T]", '%a = reduce(%x) {axis = 1, op = "sum", order = "chain"} : f32[T]',
                 '%b = reduce(%x) {axis = 1, op = "sum"} : f32[T]', "%a, %b"),
        "reduce has no reduction order, and reduce (%a) has one", "%b = reduce"),
    "unknown_op": (
        function("%x: f32[T]", "f32[T]", "%y = frobnicate(%x) : f32[T]", "%y"), "unknown op 'frobnicate'",
        "%y = frobnicate"),
    "unknown_attribute": (
        function("%x: f32[T, 8]", "f32[T]", '%y = reduce(%x) {axis = 1, colour = 3, op = "sum"} : f32[T]', "%y"),
        "unknown attribute 'colour'", "%y = reduce"),
    "composite_operands": (
        function("%x: bf16[T, 8]", "bf16[T, 8]", "%y = rms_norm(%x) {eps = 1e-20} : bf16[T, 8]", "%y"),
        "rms_norm: takes 2 operands, got 1", "%y = rms_norm"),
    "callee": (
        function("%x: f32[T]", "f32[T]", '%y = call(%x) {callee = "g"} : f32[T]', "%y"), "there is no function @g",
        "%y = call"),
    "constant": (
        function("", "f32[4]", '%y = constant() {name = "table"} : f32[4]', "%y"), "there is no constant @table",
        "%y = constant"),
    "state_used_after_its_write": (
        function(f"%ring: {RING}, %x: mxfp8<32>[T, 64], %at: i32[T], %i: i32[T]", f"mxfp8<32>[T, 64], {RING}",
                 f"%next = state_write(%ring, %x, %at) : {RING}",
                 "%old = gather_rows(%i, %ring) : mxfp8<32>[T, 64]", "%old, %next"),
        "state %ring is used after it was written", "%old = gather_rows"),
    "state_written_and_lost": (
        function(f"%ring: {RING}, %x: mxfp8<32>[T, 64], %at: i32[T]", "i32[T]",
                 f"%next = state_write(%ring, %x, %at) : {RING}", "%at"),
        "the last version of state %ring is not returned from @f", "%next = state_write"),
    "old_version_returned": (
        function(f"%ring: {RING}, %x: mxfp8<32>[T, 64], %at: i32[T]", RING,
                 f"%next = state_write(%ring, %x, %at) : {RING}", "%ring"),
        "@f returns state %ring, which was written: return its last version", "%next = state_write"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_shown_inside_the_ir(name: str) -> None:
    text, message, at = PLANTED[name]
    error = error_of(parse_module(SYMBOLS + text))
    assert message in str(error)
    assert at in " ".join(marked(error))
    assert f"@f: {error.problems[0].message}" in str(error)


def test_every_mistake_is_told_at_once_each_at_its_place() -> None:
    text = function("%x: f32[T, 8]", "f32[T], f32[8]", '%a = reduce(%x) {axis = 1, op = "mean"} : f32[T]',
                    '%b = reduce(%x) {axis = 0, op = "sum"} : f32[8]', "%a, %b")
    error = error_of(parse_module(SYMBOLS + text))
    assert len(error.problems) == 2
    assert marked(error) == ["%a = reduce", "%b = reduce"]


def test_line_numbers_are_those_of_the_printed_module() -> None:
    text, _, _ = PLANTED["sum_over_rows"]
    module = parse_module(SYMBOLS + text)
    at = next(n for n, line in enumerate(print_module(module).splitlines(), 1) if "%s = reduce" in line)
    assert f"{at:5} |   %s = reduce" in str(error_of(module))


UNDEFINED = {
    "value": ("%y = reduce(%nothing) {axis = 1, op = \"sum\"} : f32[T]", "%y", "%nothing is not defined here"),
    "returned": ("%y = reduce(%x) {axis = 1, op = \"sum\"} : f32[T]", "%z", "%z is not defined here"),
    "defined_twice": ("%x = reduce(%x) {axis = 1, op = \"sum\"} : f32[T]", "%x", "%x is defined twice"),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_text_with_an_undefined_value_is_refused_with_a_caret_at_it(name: str) -> None:
    statement, returned, message = UNDEFINED[name]
    with pytest.raises(ParseError) as raised:
        parse_module(SYMBOLS + function("%x: f32[T, 8]", "f32[T]", statement, returned))
    head, source, caret = str(raised.value).splitlines()
    assert message in head
    assert source[len(caret) - 1] == "%"


def built(*ops: Op, params: tuple[Value, ...], results: tuple[Value, ...]) -> Module:
    return Module({"f": Function("f", list(params), list(ops), list(results))}, {"T": Symbol("T", 1, 64)})


def test_a_value_used_before_it_is_made() -> None:
    x = Value("x", TensorType("f32", (T, 8)))
    function_ = Function("f", [x])
    b = Builder(function_)
    first = ir.reduce_sum(b, x, 1, hint="first")
    second = ir.emap(b, lambda a: a + 1.0, [first], hint="second")
    function_.ops.reverse()
    function_.results = [second]
    error = error_of(Module({"f": function_}, {"T": Symbol("T", 1, 64)}))
    assert "%first is not made before its use here" in str(error)
    assert marked(error)[0] == "%second = map"


def test_a_region_reads_nothing_from_outside() -> None:
    x = Value("x", TensorType("f32", (T, 8)))
    body = Function("body", [])
    body.results = [ir.reduce_sum(Builder(body), x, 1)]
    op = Op("region", [], {"anchor": "row", "kernel": "k"}, [], [body])
    op.results = [Value("y", body.results[0].type, op)]
    error = error_of(built(op, params=(x,), results=(op.result,)))
    assert "%x is not made before its use here" in str(error)


def test_a_name_used_twice_and_a_wrong_producer() -> None:
    x = Value("x", TensorType("f32", (T, 8)))
    function_ = Function("f", [x])
    y = ir.reduce_sum(Builder(function_), x, 1, hint="y")
    function_.results = [y]
    y.name, y.producer = "x", None
    messages = [p.message for p in error_of(Module({"f": function_}, {"T": Symbol("T", 1, 64)})).problems]
    assert messages == ["%x does not name this op as its producer", "the name %x is used twice"]


def test_a_function_that_calls_itself_is_refused() -> None:
    text = function(f"%ring: {RING}", RING, f'%y = call(%ring) {{callee = "f"}} : {RING}', "%y")
    assert "@f calls itself" in str(error_of(parse_module(SYMBOLS + text)))


def test_a_state_passed_twice_to_a_writer_is_refused() -> None:
    ring = Value("ring", StateType("ring", "f32", 8, 3))
    other = Value("other", ring.type)
    x, at = Value("x", TensorType("f32", (T, 8))), Value("at", TensorType("i32", (T,)))
    callee = Function("g", [ring, other, x, at])
    callee.results = [ir.state_write(Builder(callee), ring, x, at, "next"), other]
    caller = Function("f", [Value(p.name, p.type) for p in (ring, x, at)])
    state, value, slots = caller.params
    caller.results = ir.call(Builder(caller), callee, [state, state, value, slots])[:1]
    error = error_of(Module({"g": callee, "f": caller}, {"T": Symbol("T", 1, 64)}))
    assert "state %ring is passed twice to an op that writes it" in str(error)


def test_a_sound_module_has_no_mistakes() -> None:
    text = function("%x: f32[T, 8], %i: i32[T] in [0, 8), %table: bf16[8, 4]", "f32[T], bf16[T, 4]",
                    '%a = reduce(%x) {axis = 1, op = "sum"} : f32[T]', "%y = gather_rows(%i, %table) : bf16[T, 4]",
                    "%a, %y")
    verify_module(parse_module(SYMBOLS + text))


def test_the_builder_refuses_at_once_and_names_the_op() -> None:
    x, w = Value("x", TensorType("bf16", (T, 64))), Value("w", TensorType("mxfp4<32>", (32, 64)))
    with pytest.raises(IRError, match=r"contract: class GB needs bf16 as B, %w is mxfp4<32>"):
        ir.contract(Builder(Function("f", [x, w])), x, w, "GB")
