"""The attention sub-layer (spec section 2): projections, compressor, indexer, candidates, sparse attention, output."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dinfc.frontend.model_config import PAGE_TOKENS
from dinfc.ir.build import (
    concat,
    contract,
    gather_rows,
    index_score,
    quantize,
    slice_,
    sparse_attend,
    state_write,
    topk,
    view,
)
from dinfc.ir.graph import Value
from dinfc.ir.types import StateType, symbol

if TYPE_CHECKING:
    from dinfc.frontend.layer_kinds import LayerScope

T = symbol("T")


@dataclass(frozen=True)
class Attended:
    """Result of the sub-layer; `attend_index` and `candidates` only where the layer makes them."""

    y: Value
    attend_index: Value | None = None
    candidates: Value | None = None


def attention(s: LayerScope, x: Value, xq: Value) -> Attended:
    """x bf16 `[T, D]` and its MXFP8 form -> y bf16 `[T, D]`; writes the states that the layer owns."""
    b, c, t = s.b, s.config, s.kind.traits
    eps = c.rms_norm_eps
    cs = s.data("cs_long" if t.ratio else "cs_window")
    down = contract(b, xq, s.weight("attn.wqkv_a"), "G8", hint="qkv_a")
    qa = slice_(b, down, 1, 0, c.q_lora_rank, hint="qa")
    ka = slice_(b, down, 1, c.q_lora_rank, c.q_lora_rank + c.head_dim, hint="ka")
    qr = b.one("rms_norm", [qa, s.weight("attn.q_norm")], "qr", eps=eps)
    qrq = quantize(b, qr, "mxfp8<32>", "qrq")
    heads = view(b, contract(b, qrq, s.weight("attn.wq_b"), "G8", hint="q_flat"),
                 (T, c.num_attention_heads, c.head_dim), hint="q_heads")
    q = b.one("rope", [heads, cs], "q")
    kv = b.one("rms_norm", [ka, s.weight("attn.kv_norm")], "kv_normed", eps=eps)
    kvw = quantize(b, b.one("rope", [kv, cs], "kv"), "mxfp8<32>", "kvw")
    if t.is_kv_source:
        compress(s, x)
    made_index, cand = None, None
    window_index = s.data("window_index")
    index = window_index
    if t.is_index_source:
        tokens, cand = select_tokens(s, x, qrq)
        placed = b.one("page_translate", [tokens, s.data("page_table"), s.data("seq")], "page_places",
                       capacity=PAGE_TOKENS // t.ratio)
        made_index = index = concat(b, [window_index, placed], 1, hint="attend_index")
    elif t.ratio:
        index = s.data("attend_index")
    pages = s.state("main") if t.ratio else None
    ring = s.state("window")
    o = sparse_attend(b, q, index, kvw, ring, s.weight("attn.attn_sink"), c.head_dim ** -0.5, pages, hint="o")
    s.store("window", state_write(b, ring, kvw, s.data("window_slot"), hint="window_next"))
    o = b.one("rope", [o, cs], "o_turned", conj=True)
    grouped = view(b, o, (T, c.o_groups, c.num_attention_heads // c.o_groups * c.head_dim), hint="o_groups")
    u = contract(b, quantize(b, grouped, "mxfp8<32>", "oq"), s.weight("attn.wo_a"), "G8", hint="u")
    uq = quantize(b, view(b, u, (T, c.o_groups * c.o_lora_rank), hint="u_flat"), "mxfp8<32>", "uq")
    return Attended(contract(b, uq, s.weight("attn.wo_b"), "G8", hint="attn_y"), made_index, cand)


def compress(s: LayerScope, x: Value) -> None:
    """The compressor of a KV source (spec 2.3 to 2.5): writes main and index-K records, and the latents of ratio 2."""
    b, c, t = s.b, s.config, s.kind.traits
    eps = c.rms_norm_eps
    if t.ratio == 2:
        latent = contract(b, x, s.weight("attn.compressor.wgl"), "GB32", hint="gate_latent")
        ring = s.state("latent")
        previous = gather_rows(b, s.data("previous_index"), [latent, ring], hint="previous")
        pooled = b.one("softmax_pool", [previous, latent], "pooled")
        s.store("latent", state_write(b, ring, latent, s.data("latent_slot"), hint="latent_next"))
        cs = s.data("cs_group")
    else:
        pooled = contract(b, x, s.weight("attn.compressor.wkv"), "GB", hint="latent")
        cs = s.data("cs_long")
    z = b.one("rms_norm", [pooled, s.weight("attn.compressor.norm")], "z", eps=eps)
    slots = s.data(f"page_slot_{t.ratio}")
    main = s.state("main")
    assert isinstance(main.type, StateType)
    record = quantize(b, b.one("rope", [z, cs], "main_key"), main.type.elem, "main_record")
    s.store("main", state_write(b, main, record, slots, hint="main_next"))
    if t.is_index_k_source:
        kappa = contract(b, z, s.weight("attn.indexer.wk"), "GB", hint="kappa_raw")
        kappa = b.one("rms_norm", [kappa, s.weight("attn.indexer.k_norm")], "kappa", eps=eps)
        turned = quantize(b, b.one("rope", [kappa, cs], "kappa_turned"), "mxfp4<32>", "kappa_record")
        s.store("index", state_write(b, s.state("index"), turned, slots, hint="index_next"))


def select_tokens(s: LayerScope, x: Value, qrq: Value) -> tuple[Value, Value | None]:
    """Selected compressed tokens i32 `[T, k_I]` and, at the candidate source, candidate blocks (spec 2.6 to 2.8)."""
    b, c, t = s.b, s.config, s.kind.traits
    cs = s.data("cs_long")
    heads = view(b, contract(b, qrq, s.weight("attn.indexer.wq_b"), "G8", hint="qi_flat"),
                 (T, c.index_n_heads, c.index_head_dim), hint="qi_heads")
    qi = quantize(b, b.one("rope", [heads, cs], "qi_turned"), "mxfp4<32>", "qi")
    w = contract(b, x, s.weight("attn.indexer.weights_proj"), "GB", hint="index_w")
    table, seq, end = s.data("page_table"), s.data("seq"), s.data(f"visible_{t.ratio}")
    pages = table.tensor.shape[1]
    assert isinstance(pages, int)
    keys = s.state("index")
    block, blocks = c.candidate_block_size or 0, c.candidate_topk_blocks or 0
    width = pages * (PAGE_TOKENS // t.ratio)
    if t.is_candidate_consumer:
        cand = s.data("cand")
        compact = b.one("compact_length", [cand, end], "compact_end", block=block)
        scores = index_score(b, qi, w, keys, table, seq, compact, blocks * block, cand, block, hint="scores")
        chosen = topk(b, scores, compact, c.index_topk, hint="chosen")
        return b.one("restore_blocks", [chosen, cand], "tokens", block=block), None
    scores = index_score(b, qi, w, keys, table, seq, end, width, hint="scores")
    tokens = topk(b, scores, end, c.index_topk, hint="tokens")
    if not t.is_candidate_source:
        return tokens, None
    best, count = b.op("block_max", [scores, end], ("block_scores", "blocks"), block=block)
    return tokens, topk(b, best, count, blocks, hint="cand")
