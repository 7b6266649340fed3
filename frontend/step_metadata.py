"""Builds `prepare`: step metadata derived on the device from the step input (design section 4a, spec 2.11, 2.12)."""
from __future__ import annotations

from collections.abc import Mapping

from dinfc.frontend.model_config import PAGE_TOKENS, ModelConfig
from dinfc.frontend.states import history_entries
from dinfc.ir.build import constant, emap, gather_rows, reduce_sum, slice_, state_write, take, view
from dinfc.ir.graph import Builder, Function, Module, Value
from dinfc.ir.plan import max_pages
from dinfc.ir.scalar import Expr, compare, const, index, select
from dinfc.ir.types import Limits, StateType, TensorType, symbol

RING_SOURCE = 1 << 30  # source 1 of an encoded index

T, S, R = symbol("T"), symbol("S"), symbol("R")


def step_params(limits: Limits) -> dict[str, TensorType]:
    """Types of the step fields (ir.plan.STEP_FIELDS)."""
    return {
        "cu_rows": TensorType("i32", (S + 1,)), "start": TensorType("i32", (S,)),
        "state_slot": TensorType("i32", (S,)), "page_table": TensorType("i32", (S, max_pages(limits))),
        "ids": TensorType("i32", (T,)), "logit_rows": TensorType("i32", (R,)),
    }


def encoded(row: Expr, position: Expr, wanted: Expr, start: Expr, slot: Expr, capacity: int) -> Expr:
    """Place of position `wanted` of the row's sequence: a current row, a ring entry, or -1 before the beginning.

    The ring is read at positions below `start` only: it is written after all reads.
    """
    ring = (slot * capacity + wanted % capacity) | const(RING_SOURCE)
    current = row - (position - wanted)
    return select(compare("lt", wanted, 0), -1, select(compare("ge", wanted, start), current, ring))


def build_prepare(module: Module, config: ModelConfig, limits: Limits, states: Mapping[str, StateType]) -> Function:
    """The function `prepare`; its results are the metadata that `forward` takes by name, then the token history.

    seq, window_index `[T, W]` and window_slot, cs_window; with compressed layers cs_long, visible_r and page_slot_r per
    ratio; with ratio 2 cs_group, previous_index and latent_slot; with Engram gram_ids `[T, n_max]` (ids, -1 absent).
    """
    names = ["cu_rows", "start", "state_slot", "page_table", "ids"]
    types = step_params(limits)
    function = Function("prepare", [Value(n, types[n]) for n in names])
    if "history" in states:
        function.params.append(Value("history", states["history"]))
    module.functions["prepare"] = function
    b = Builder(function, module)
    p = {v.name: v for v in function.params}
    results: list[Value] = []

    def result(value: Value, name: str) -> Value:
        value.name = name
        results.append(value)
        return value

    begins, ends = slice_(b, p["cu_rows"], 0, 0, S, hint="begins"), slice_(b, p["cu_rows"], 0, 1, S + 1, hint="ends")
    before = emap(b, lambda e: select(compare("ge", index(0), e), const(1), 0), [ends], dims=[(1,)], shape=(T, S),
                  hint="before")
    seq = result(reduce_sum(b, before, 1, hint="row_seq"), "seq")
    first, last = take(b, begins, seq, hint="first"), take(b, ends, seq, hint="last")
    start, slot = take(b, p["start"], seq, hint="row_start"), take(b, p["state_slot"], seq, hint="row_slot")
    pos = emap(b, lambda s, f: s + (index(0) - f), [start, first], hint="pos")
    end = emap(b, lambda s, f, n: s + (n - f), [start, first, last], hint="end")

    def ring_places(width: int, back: int, capacity: int, hint: str) -> Value:
        """Places of positions pos - back .. pos - back + width - 1 (or downwards from pos for back < 0)."""
        def body(at: Expr, s: Expr, k: Expr) -> Expr:
            wanted = at - back + index(1) if back >= 0 else at - index(1)
            return encoded(index(0), at, wanted, s, k, capacity)

        return emap(b, body, [pos, start, slot], dims=[(0,), (0,), (0,)], shape=(T, width), hint=hint)

    def ring_slot(capacity: int, hint: str) -> Value:
        """Entry that a row is written to: only the last `capacity` rows of a sequence are."""
        def body(at: Expr, e: Expr, k: Expr) -> Expr:
            return select(compare("ge", at, e - capacity), k * capacity + at % capacity, -1)

        return emap(b, body, [pos, end, slot], hint=hint)

    window = config.sliding_window
    result(ring_places(window, window - 1, config.window_ring, "window_places"), "window_index")
    result(ring_slot(config.window_ring, "window_place"), "window_slot")
    result(gather_rows(b, pos, constant(b, "rope_window"), hint="rope_rows"), "cs_window")
    ratios = sorted({config.ratio(layer) for layer in range(config.num_hidden_layers)} - {0})
    if ratios:
        long_table = constant(b, "rope_long")
        result(gather_rows(b, pos, long_table, hint="rope_long_rows"), "cs_long")
        page_column = emap(b, lambda at: at // PAGE_TOKENS, [pos], hint="page_column")
        page = take(b, p["page_table"], [seq, page_column], fill=-1, hint="page")
    for r in ratios:
        records = PAGE_TOKENS // r

        def store(at: Expr, g: Expr, r: int = r, records: int = records) -> Expr:
            complete = compare("eq", (at + 1) % r, 0)
            return select(complete, g * records + (at // r) % records, -1)

        result(emap(b, lambda at, r=r: (at + 1) // r, [pos], hint=f"groups_{r}"), f"visible_{r}")
        result(emap(b, store, [pos, page], hint=f"record_{r}"), f"page_slot_{r}")
    if 2 in ratios:
        group = emap(b, lambda at: at // 2 * 2, [pos], hint="group_position")
        result(gather_rows(b, group, long_table, hint="rope_group_rows"), "cs_group")
        previous = emap(b, lambda at, s, k: encoded(index(0), at, at - 1, s, k, config.compress_ring),
                        [pos, start, slot], hint="previous")
        result(previous, "previous_index")
        result(ring_slot(config.compress_ring, "latent_place"), "latent_slot")
    if "history" in states:
        depth, entries = config.engram_max_ngram_size or 1, history_entries(config)
        grams = ring_places(depth, -1, entries, "gram_places")
        column = view(b, p["ids"], (T, 1), hint="id_column")
        found = gather_rows(b, grams, [column, p["history"]], fill=-1, hint="gram_rows")
        result(view(b, found, (T, depth), hint="grams"), "gram_ids")
        results.append(state_write(b, p["history"], column, ring_slot(entries, "history_place")))
    function.results = results
    return function
