"""Sample cases of maps, reductions, moves, codecs and structure ops (see op_cases.py)."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from dinfc.ir import build as ir
from dinfc.ir.graph import Builder, Constant, Function, Module, Value
from dinfc.ir.scalar import apply, bf16, binary, compare, index, select
from dinfc.ir.types import StateType, TensorType

from .op_cases import SYMBOLS, OpCase, T, case, cases, value

RING = StateType("ring", "mxfp8<32>", 64, 5)
PLAIN_RING = StateType("ring", "f32", 8, 3)
PAGES = StateType("pages", "fp4e4m3<16>", 64, 8, 4096, 0, 256)


@cases("map")
def maps() -> Sequence[OpCase]:
    x, w, n = value("x", "bf16", T, 8), value("w", "f32", 8), value("n", "i32", T)
    return [
        case("map", "scaled", [x, w], lambda b, p: ir.emap(b, lambda a, c: bf16(apply("exp", a) * c), [p["x"], p["w"]]),
             counted=True),
        case("map", "row_scalar", [x, n], lambda b, p: ir.emap(
            b, lambda a, k: select(compare("gt", k, 1), a, -1.0), [p["x"], p["n"]], dims=[(0, 1), (0,)])),
        case("map", "transpose", [x], lambda b, p: ir.emap(b, lambda a: a + 0.5, [p["x"]], dims=[(1, 0)]),
             row_parallel=False),
        case("map", "columns", [n], lambda b, p: ir.emap(
            b, lambda k: select(compare("le", index(1), k), binary("min", k - index(1), 3), -1), [p["n"]], dims=[(0,)],
            shape=(T, 5), bounds=(-1, 4))),
    ]


@cases("reduce")
def reductions() -> Sequence[OpCase]:
    x, init, n = value("x", "f32", T, 5, 4), value("init", "f32", T, 4), value("n", "i32", T, 6)
    return [
        case("reduce", "sum", [x], lambda b, p: ir.reduce_sum(b, p["x"], 1), counted=True),
        case("reduce", "sum_from", [x, init], lambda b, p: ir.reduce_sum(b, p["x"], 1, p["init"]), counted=True),
        case("reduce", "max", [x], lambda b, p: ir.reduce_max(b, p["x"], -1)),
        case("reduce", "min_integers", [n], lambda b, p: ir.reduce_min(b, p["n"], 1)),
        case("reduce", "sum_integers", [n], lambda b, p: ir.reduce_sum(b, p["n"], 1)),
    ]


@cases("gather_rows")
def gathers() -> Sequence[OpCase]:
    ids, table = value("ids", "i32", T), value("table", "bf16", 7, 8)
    far = torch.tensor([0, 6, 7, -1, 2**31 - 1, 3])
    encoded = torch.tensor([[0, 2], [1 << 30, (1 << 30) + 19], [-(1 << 31), -(1 << 31) + 31], [-1, 3],
                            [(1 << 30) + 20, -(1 << 31) + 32], [2**31 - 1, (1 << 30) - 1]])
    pair, current = value("pair", "i32", T, 2), value("current", "mxfp8<32>", 3, 64)
    pages = StateType("pages", "mxfp8<32>", 64, 8, 8192, 0, 512)
    return [
        case("gather_rows", "one", [ids, table], lambda b, p: ir.gather_rows(b, p["ids"], p["table"]), {"ids": far}),
        case("gather_rows", "filled", [ids, value("t", "i32", 7)],
             lambda b, p: ir.gather_rows(b, p["ids"], p["t"], fill=-1), {"ids": far}),
        case("gather_rows", "state", [pair, Value("ring", PLAIN_RING)],
             lambda b, p: ir.gather_rows(b, p["pair"], p["ring"])),
        case("gather_rows", "encoded", [pair, current, Value("ring", RING), Value("pages", pages)],
             lambda b, p: ir.gather_rows(b, p["pair"], [p["current"], p["ring"], p["pages"]]), {"pair": encoded}),
    ]


@cases("take")
def takes() -> Sequence[OpCase]:
    row, col, table = value("row", "i32", T), value("col", "i32", T), value("table", "i32", 2, 3)
    given = {"row": torch.tensor([0, 1, 2, -1, 1, 0]), "col": torch.tensor([0, 2, 0, 0, 2**31 - 1, -5])}
    return [case("take", "table", [table, row, col],
                 lambda b, p: ir.take(b, p["table"], [p["row"], p["col"]], fill=-1), given)]


@cases("state_write")
def writes() -> Sequence[OpCase]:
    slots, width = value("slots", "i32", T), value("x", "mxfp8<32>", T, 64)
    given = {"slots": torch.tensor([3, -1, 0, 19, -1, 7])}

    def write(b: Builder, p: dict[str, Value]) -> list[Value]:
        return [ir.state_write(b, p["state"], p["x"], p["slots"], "after")]

    return [
        case("state_write", "ring", [Value("state", RING), width, slots], write, given, row_parallel=False),
        case("state_write", "plain", [Value("state", PLAIN_RING), value("x", "f32", T, 8), slots], write,
             {"slots": torch.tensor([3, -1, 0, 11, -1, 7])}, row_parallel=False),
        case("state_write", "pages", [Value("state", PAGES), value("x", "fp4e4m3<16>", T, 64), slots], write, given,
             row_parallel=False),
    ]


@cases("quantize")
def quantizers() -> Sequence[OpCase]:
    x, h = value("x", "bf16", T, 64), value("h", "f32", T, 2, 32)
    return [
        *(case("quantize", codec, [x], lambda b, p, c=codec: ir.quantize(b, p["x"], c), counted=True)  # type: ignore[misc]
          for codec in ("mxfp8<32>", "mxfp4<32>", "fp4e4m3<16>")),
        case("quantize", "from_f32", [h], lambda b, p: ir.quantize(b, p["h"], "mxfp8<32>"), counted=True),
    ]


@cases("dequantize")
def dequantizers() -> Sequence[OpCase]:
    q, weight = value("q", "mxfp4<32>", T, 64), value("weight", "wfp8<32x32>", 40, 64)
    return [
        case("dequantize", "rows", [q], lambda b, p: ir.dequantize(b, p["q"]), counted=True),
        case("dequantize", "weight", [weight], lambda b, p: ir.dequantize(b, p["weight"], "f32"), row_parallel=False),
    ]


@cases("view")
def views() -> Sequence[OpCase]:
    x, q, w = value("x", "f32", T, 6), value("q", "mxfp8<32>", T, 128), value("w", "wfp8<32x32>", 64, 96)
    return [
        case("view", "split", [x], lambda b, p: ir.view(b, p["x"], (T, 2, 3))),
        case("view", "groups", [q], lambda b, p: ir.view(b, p["q"], (T, 2, 64))),
        case("view", "blocks", [w], lambda b, p: ir.view(b, p["w"], (2, 32, 96)), row_parallel=False),
    ]


@cases("slice")
def slices() -> Sequence[OpCase]:
    x, q, w = value("x", "f32", T, 7), value("q", "mxfp4<32>", T, 96), value("w", "wfp8<32x32>", 64, 64)
    return [
        case("slice", "strided", [x], lambda b, p: ir.slice_(b, p["x"], 1, 1, 7, 2)),
        case("slice", "groups", [q], lambda b, p: ir.slice_(b, p["q"], -1, 32, 96)),
        case("slice", "blocks", [w], lambda b, p: ir.slice_(b, p["w"], 0, 32, 64), row_parallel=False),
        case("slice", "rows", [x], lambda b, p: ir.slice_(b, p["x"], 0, T - 1, T), row_parallel=False),
    ]


@cases("concat")
def concats() -> Sequence[OpCase]:
    x, y, z = value("x", "f32", T, 2), value("y", "f32", T, 3), value("z", "i32", T, 2)
    q, r = value("q", "mxfp8<32>", T, 32), value("r", "mxfp8<32>", T, 64)
    return [
        case("concat", "plain", [x, y], lambda b, p: ir.concat(b, [p["x"], p["y"]], 1), counted=True),
        case("concat", "same_twice", [z], lambda b, p: ir.concat(b, [p["z"], p["z"]], -1)),
        case("concat", "codecs", [q, r], lambda b, p: ir.concat(b, [p["q"], p["r"]], -1), counted=True),
    ]


@cases("repeat")
def repeats() -> Sequence[OpCase]:
    x, y = value("x", "f32", T, 4), value("y", "f32", T)

    def body(b: Builder, p: list[Value]) -> list[Value]:
        total = ir.reduce_sum(b, p[0], 1)
        return [ir.emap(b, lambda a, s: a / (s + 8.0), [p[0], total], dims=[(0, 1), (0,)]), total]

    return [case("repeat", "two_carried", [x, y], lambda b, p: ir.repeat(b, 3, [p["x"], p["y"]], body))]


@cases("region")
def regions() -> Sequence[OpCase]:
    def build(b: Builder, p: dict[str, Value]) -> list[Value]:
        inner = Function("body", [Value("x", p["x"].type)])
        inner.results = [ir.emap(Builder(inner), lambda a: a * a, inner.params)]
        return b.op("region", [p["x"]], regions=[inner], result_types=[r.type for r in inner.results], anchor="row",
                    kernel="square")

    return [case("region", "row", [value("x", "f32", T, 4)], build)]


@cases("call")
def calls() -> Sequence[OpCase]:
    x = value("x", "f32", T, 4)
    callee = Function("double", [value("v", "f32", T, 4)])
    callee.results = [ir.emap(Builder(callee), lambda a: a * 2.0, callee.params, hint="twice")]
    made = case("call", "double", [x], lambda b, p: ir.call(b, callee, [p["x"]]))
    made.module.functions["double"] = callee
    return [made]


@cases("constant")
def constants() -> Sequence[OpCase]:
    type_ = TensorType("f32", (2, 3))
    function = Function("f", [])
    module = Module({"f": function}, {s.name: s for s in SYMBOLS}, {
        "table": Constant("table", type_, lambda: [0.1, 1.0, 2.0, 3.0, 4.0, 5.0])})
    function.results = [ir.constant(Builder(function, module), "table")]
    return [OpCase("table", "constant", module, {}, row_parallel=False)]


@cases("relayout")
def relayouts() -> Sequence[OpCase]:
    w = value("w", "wfp8<32x32>", 64, 64)
    return [case("relayout", "weight", [w], lambda b, p: ir.relayout(b, p["w"], "n16k", "packed"), row_parallel=False,
                 counted=True)]
