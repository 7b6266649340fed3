"""A small model that has everything the planner must handle: two layer kinds, rings, pages, scores in chunks, experts.

Not the real model (that is frontend/deepseek_v41.py): widths are tiny and the mathematics is arbitrary.
"""
from __future__ import annotations

from collections.abc import Sequence

from dinfc.ir import build as ir
from dinfc.ir.graph import Builder, Function, Module, Value
from dinfc.ir.scalar import Expr, apply, bf16, compare, const, index, select
from dinfc.ir.types import Dim, Limits, StateType, Symbol, TensorType, symbol
from dinfc.passes.base import Context, Pass
from dinfc.targets.cpu import CpuTarget

T, S, R = symbol("T"), symbol("S"), symbol("R")
LIMITS = Limits(max_seqs=8, max_tokens=64, max_len=256, score_bytes=4096, buckets=(8, 64))
RING = StateType("ring", "mxfp8<32>", 32, 12)
INDEX_PAGES = StateType("pages", "mxfp4<32>", 32, 64, 4096, 0, 1024)
MAIN_PAGES = StateType("pages", "fp4e4m3<16>", 32, 64, 4096, 2048, 1024)
WIDTH, EXPERTS, TILE = 256, 8, 8


def value(name: str, elem: str, *shape: Dim) -> Value:
    return Value(name, TensorType(elem, shape))


def new_function(module: Module, name: str, params: Sequence[Value]) -> tuple[Builder, dict[str, Value]]:
    """A function of the module; its builder and its parameters by name."""
    function = module.functions[name] = Function(name, list(params))
    return Builder(function, module), {p.name: p for p in params}


def new_module() -> Module:
    return Module(symbols={n: Symbol(n, 1, most) for n, most in (("T", 64), ("S", 8), ("R", 8))})


def context(limits: Limits = LIMITS, max_logit_rows: int = 8) -> Context:
    return Context(CpuTarget(), limits, max_logit_rows)


def run(module: Module, passes: Sequence[Pass], ctx: Context | None = None) -> Context:
    """Runs passes one after the other on the module itself."""
    ctx = ctx or context()
    for step in passes:
        module = step.run(module, ctx)
    return ctx


def norm(b: Builder, x: Value, weight: Value, hint: str) -> Value:
    """rms_norm by hand."""
    n = x.tensor.shape[1]
    assert isinstance(n, int)
    total = ir.reduce_sum(b, ir.emap(b, lambda a: a * a, [x]), 1)

    def scaled(a: Expr, s: Expr, w: Expr) -> Expr:
        return bf16(a * apply("rsqrt", s * (1.0 / n) + 1e-20) * w)

    return ir.emap(b, scaled, [x, total, weight], dims=[(0, 1), (0,), (1,)], hint=hint)


METADATA = ("pos", "seq", "slot", "end", "page_slot", "window")


def layer_params() -> list[Value]:
    return [
        value("x", "bf16", T, 64), value("pos", "i32", T), value("seq", "i32", T), value("slot", "i32", T),
        value("end", "i32", T), value("page_slot", "i32", T), value("window", "i32", T, 8),
        value("page_table", "i32", S, 4), value("selected", "i32", T, 8),
        Value("ring", RING), Value("index_pages", INDEX_PAGES), Value("main_pages", MAIN_PAGES),
        value("attn.norm", "bf16", 64), value("attn.wqkv", "wfp8<32x32>", 96, 64),
        value("attn.wo", "wfp8<32x32>", 64, 64), value("attn.sink", "f32", 2), value("attn.wi", "bf16", 2, 64),
        value("ffn.gate", "bf16", EXPERTS, 64), value("ffn.w13", "mxfp4<32>", EXPERTS, 64, 64),
        value("ffn.w2", "mxfp4<32>", EXPERTS, 64, 32),
    ]


def add_layer(module: Module, name: str, source: bool) -> Function:
    """A layer kind: attention over ring and pages, then experts. A `source` writes pages and selects; the other kind
    reuses the selection. Results: x, selected, ring, index pages, main pages."""
    b, p = new_function(module, name, layer_params())
    h = norm(b, p["x"], p["attn.norm"], "h")
    qkv = ir.contract(b, ir.quantize(b, h, "mxfp8<32>", "hq"), p["attn.wqkv"], "G8", "qkv")
    q = ir.view(b, ir.slice_(b, qkv, 1, 0, 64, hint="q_rows"), (T, 2, 32), "q")
    kv = ir.slice_(b, qkv, 1, 64, 96, hint="kv")
    current = ir.quantize(b, kv, "mxfp8<32>", "current")
    index_pages, main_pages, selected = p["index_pages"], p["main_pages"], p["selected"]
    if source:
        index_pages = ir.state_write(b, index_pages, ir.quantize(b, kv, "mxfp4<32>"), p["page_slot"], "index_new")
        main_pages = ir.state_write(b, main_pages, ir.quantize(b, kv, "fp4e4m3<16>"), p["page_slot"], "main_new")
        selected = add_selection(b, p, ir.quantize(b, q, "mxfp4<32>", "qi"), h, index_pages)
    encoded = ir.emap(b, lambda s: select(compare("ge", s, 0), s - (1 << 31), -1), [selected], hint="encoded")
    keys = ir.concat(b, [p["window"], encoded], 1, "keys")
    o = ir.sparse_attend(b, q, keys, current, p["ring"], p["attn.sink"], 0.25, main_pages, hint="o")
    ring = ir.state_write(b, p["ring"], current, p["slot"], "ring_new")
    oq = ir.quantize(b, ir.view(b, o, (T, 64), "o_rows"), "mxfp8<32>", "oq")
    y = ir.contract(b, oq, p["attn.wo"], "G8", "y")
    x1 = ir.emap(b, lambda a, c: bf16(a + c), [p["x"], y], hint="x1")
    out = add_experts(b, p, x1)
    b.function.results = [out, selected, ring, index_pages, main_pages]
    return b.function


def add_selection(b: Builder, p: dict[str, Value], qi: Value, h: Value, pages: Value) -> Value:
    """Scores, block maxima and two selections: every member of a chunk loop."""
    w = ir.contract(b, h, p["attn.wi"], "GB", "wi")
    scores = ir.index_score(b, qi, w, pages, p["page_table"], p["seq"], p["end"], WIDTH, hint="scores")
    blocks = ir.view(b, scores, (T, WIDTH // 8, 8), "blocks")
    wide = ir.emap(b, lambda a: a + 0.0, [blocks], hint="wide")
    best = ir.reduce_max(b, wide, 2, "best")
    count = ir.emap(b, lambda e: (e + 7) // 8, [p["end"]], hint="count")
    candidates = ir.topk(b, best, count, 8, hint="candidates")
    chosen = ir.topk(b, scores, p["end"], 8, hint="chosen")
    return ir.emap(b, lambda a, c: select(compare("ge", a, 0), a, c), [chosen, candidates], hint="selection")


def add_experts(b: Builder, p: dict[str, Value], x: Value) -> Value:
    gate = ir.contract(b, x, p["ffn.gate"], "GB32", "gate")
    all_experts = ir.emap(b, lambda: const(EXPERTS), [], dims=[], shape=(T,), hint="all_experts")
    ids = ir.topk(b, gate, all_experts, 2, by="rank", hint="ids")
    slot_row, pair, tile_expert = ir.segment(b, ids, EXPERTS, TILE)
    xq = ir.quantize(b, x, "mxfp8<32>", "xq")
    rows = ir.emap(b, lambda n: select(compare("ge", n, 0), n // 2, -1), [pair], hint="rows")
    ab = ir.grouped_contract(b, xq, p["ffn.w13"], rows, tile_expert, TILE, hint="ab")
    first, second = ir.slice_(b, ab, 1, 0, 32, hint="first"), ir.slice_(b, ab, 1, 32, 64, hint="second")
    hidden = ir.quantize(b, ir.emap(b, lambda u, v: u * v, [first, second], hint="hidden"), "mxfp8<32>", "hidden_q")
    own = ir.emap(b, lambda n: select(compare("ge", n, 0), index(0), -1), [pair], hint="own")
    y = ir.grouped_contract(b, hidden, p["ffn.w2"], own, tile_expert, TILE, hint="expert_out")
    parts = ir.emap(b, lambda v: v * 1.0, [ir.gather_rows(b, slot_row, y, hint="parts")], hint="wide_parts")
    return ir.emap(b, lambda a, c: bf16(a + c), [x, ir.reduce_sum(b, parts, 1, hint="total")], hint="out")


def add_prepare(module: Module) -> Function:
    """Step metadata: sequence and position of a row, slots, ends, window entries."""
    b, p = new_function(module, "prepare", [
        value("cu_rows", "i32", S + 1), value("start", "i32", S), value("state_slot", "i32", S),
        value("page_table", "i32", S, 4)])

    def begun(first: Expr) -> Expr:
        return select(compare("le", first, index(0)), const(1), 0)

    hit = ir.emap(b, begun, [p["cu_rows"]], dims=[(1,)], shape=(T, S + 1), hint="hit")
    seq = ir.emap(b, lambda n: n - 1, [ir.reduce_sum(b, hit, 1)], hint="seq")
    first, start = ir.take(b, p["cu_rows"], seq), ir.take(b, p["start"], seq)
    pos = ir.emap(b, lambda f, s: index(0) - f + s, [first, start], hint="pos")
    slot = ir.emap(b, lambda a, n: a * 12 + n % 12, [ir.take(b, p["state_slot"], seq), pos], hint="slot")
    end = ir.emap(b, lambda n: n + 1, [pos], hint="end")
    page = ir.take(b, p["page_table"], [seq, ir.emap(b, lambda n: n // 64, [pos])])
    page_slot = ir.emap(b, lambda a, n: a * 64 + n % 64, [page, pos], hint="page_slot")

    def entry(n: Expr) -> Expr:
        return select(compare("ge", n - 7 + index(1), 0), index(0) - 7 + index(1), -1)

    window = ir.emap(b, entry, [pos], dims=[(0,)], shape=(T, 8), hint="window")
    b.function.results = [pos, seq, slot, end, page_slot, window]
    return b.function


def whole_model(layers: int = 4) -> Module:
    """`prepare`, the layer kinds `source` and `reuser`, and `forward` with `layers` layers of both in turn."""
    module = new_module()
    prepare = add_prepare(module)
    kinds = [add_layer(module, "source", True), add_layer(module, "reuser", False)]
    weights = [v for v in kinds[0].params if "." in v.name]
    params = [value("ids", "i32", T), value("logit_rows", "i32", R), value("page_table", "i32", S, 4)]
    params += [Value(r.name, r.type) for r in prepare.results]
    params += [value("embed.weight", "bf16", 100, 64), value("head.weight", "bf16", 100, 64)]
    params += [Value("index_pages", INDEX_PAGES), Value("main_pages", MAIN_PAGES)]
    for number in range(layers):
        params.append(Value(f"ring{number}", RING))
        params += [Value(f"layers.{number}.{w.name}", w.type) for w in weights]
    b, p = new_function(module, "forward", params)
    x = ir.gather_rows(b, p["ids"], p["embed.weight"], hint="x")
    selected = ir.emap(b, lambda: const(-1), [], dims=[], shape=(T, 8), hint="nothing")
    index_pages, main_pages, rings = p["index_pages"], p["main_pages"], []
    for number in range(layers):
        b.loc = f"layers.{number}"
        args = [x, *(p[n] for n in METADATA), p["page_table"], selected, p[f"ring{number}"], index_pages, main_pages]
        args += [p[f"layers.{number}.{w.name}"] for w in weights]
        x, selected, ring, index_pages, main_pages = ir.call(b, kinds[number % 2], args)
        rings.append(ring)
    b.loc = ""
    logits = ir.contract(b, ir.gather_rows(b, p["logit_rows"], x, hint="last"), p["head.weight"], "GB32", "logits")
    b.function.results = [logits, *rings, index_pages, main_pages]
    return module
