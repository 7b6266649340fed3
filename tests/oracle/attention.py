"""Spec §2: projections, sliding window, sparse attention with sink, output projection, and one layer's whole attention.

``attention`` runs §2 for the rows of one chunk and appends their records to the state. The other functions are its
steps on explicit tensors.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oracle.codecs import Quant, bf, mxfp4_value, mxfp8, mxfp8_value, split
from oracle.compress import compress_ratio1, group_range, index_key, latents, main_record, pool
from oracle.config import Dims, required_source
from oracle.indexer import (
    NEG_INF,
    candidate_blocks,
    candidate_mask,
    index_query,
    index_scores,
    index_weights,
    top_k,
    visible,
)
from oracle.ops import g8, product, rmsnorm
from oracle.rope import layer_frequencies, rotate
from oracle.state import State
from oracle.weights import Weights

Record = Callable[[str, Tensor], None]


@dataclass
class Chunk:
    """What the layers of one forward share about its rows: positions [T], top-k lists by source, candidate blocks."""

    positions: Tensor
    topk: dict[int, Tensor] = field(default_factory=dict)
    cand: Tensor | None = None


def query_latent(x: Tensor, wq_a: Tensor, q_norm: Tensor, eps: float) -> Tensor:
    """qr = RMSNorm(G8(x, wq_a)), [T, R_q]."""
    return rmsnorm(g8(x, wq_a), q_norm, eps)


def query(qr: Tensor, wq_b: Tensor, heads: int, positions: Tensor, freq: Tensor) -> Tensor:
    """q = G8(qr, wq_b) as [T, H, d], rotated."""
    return rotate(split(g8(qr, wq_b), -1, wq_b.shape[0] // heads), positions, freq)


def window_key(x: Tensor, wkv: Tensor, kv_norm: Tensor, positions: Tensor, freq: Tensor, eps: float) -> Tensor:
    """kv = RMSNorm(G8(x, wkv)) rotated, [T, d], before its MXFP8 round trip."""
    return rotate(rmsnorm(g8(x, wkv), kv_norm, eps), positions, freq)


def sparse_attention(
    q: Tensor, window_keys: Tensor, positions: Tensor, window: int, main: Tensor, topk: Tensor | None, sink: Tensor
) -> Tensor:
    """§2.9: o [T, H, d] rounded to bf16.

    ``window_keys`` [n, d] holds the keys of all positions 0..n-1, ``main`` [n_c, d] those of all compressed tokens,
    ``topk`` [T, k] the selected ones (-1 absent) or None.
    """
    rows = []
    scale = q.shape[-1] ** -0.5
    for start in range(0, q.shape[0], 64):
        part = slice(start, start + 64)
        index = positions[part].unsqueeze(1) + torch.arange(1 - window, 1)
        keys, valid = window_keys[index.clamp_min(0)], index >= 0
        if topk is not None and main.shape[0] > 0:
            chosen = topk[part]
            keys = torch.cat((keys, main[chosen.clamp_min(0)]), dim=1)
            valid = torch.cat((valid, chosen >= 0), dim=1)
        keys = keys.masked_fill(~valid.unsqueeze(-1), 0.0)
        logits = scale * (q[part] @ keys.mT)
        logits = logits.masked_fill(~valid.unsqueeze(1), NEG_INF)
        top = torch.maximum(logits.amax(-1, keepdim=True), sink.reshape(1, -1, 1))
        e = (logits - top).exp()
        total = e.sum(-1, keepdim=True) + (sink.reshape(1, -1, 1) - top).exp()
        rows.append(bf((e @ keys) / total))
    return torch.cat(rows)


def output_latent(oq: Quant, wo_a: Tensor, groups: int) -> Tensor:
    """u [T, G*R_o] in bf16 from the MXFP8 codes of the rotated o [T, H, d]."""
    o = split(mxfp8_value(oq).flatten(1), 1, wo_a.shape[1])
    return bf(torch.einsum("tgk,grk->tgr", o, split(wo_a, 0, wo_a.shape[0] // groups))).flatten(1)


def _compressed(x: Tensor, layer: int, dims: Dims, weights: Weights, state: State, chunk: Chunk, rec: Record) -> None:
    """KV source layers: append the compressed tokens (§2.3) and index keys (§2.5) this chunk completes."""
    ratio, own = dims.ratios[layer], state.layers[layer]
    name = f"layers.{layer}.attn"
    wkv = weights.bf16(f"{name}.compressor.wkv.weight")
    end = int(chunk.positions[-1]) + 1
    first, last = group_range(end - x.shape[0], end, ratio)
    if ratio == 1:
        c = compress_ratio1(x, wkv)
    else:
        latent, gate = latents(x, wkv, weights.bf16(f"{name}.compressor.wgate.weight"))
        rec("c_lat", latent)
        rec("c_gate", gate)
        own.latent, own.gate = torch.cat((own.latent, latent)), torch.cat((own.gate, gate))
        members = slice(first * ratio, last * ratio)
        c = pool(split(own.latent[members], 0, ratio), split(own.gate[members], 0, ratio))
    z = rmsnorm(c, weights.bf16(f"{name}.compressor.norm.weight"), dims.eps)
    positions = torch.arange(first, last) * ratio
    freq = layer_frequencies(dims, ratio)
    main = main_record(z, positions, freq, dims.fp4_kv)
    own.main = torch.cat((own.main, main.value))
    rec("c", c)
    rec("z", z)
    rec("main_codes", main.quant.codes)
    rec("main_scales", main.quant.scales)
    if layer in dims.index_k_sources:
        wk, k_norm = weights.bf16(f"{name}.indexer.wk.weight"), weights.bf16(f"{name}.indexer.k_norm.weight")
        index = index_key(z, wk, k_norm, positions, freq, dims.eps)
        own.index = torch.cat((own.index, mxfp4_value(index)))
        rec("index_codes", index.codes)
        rec("index_scales", index.scales)


def _select(
    x: Tensor, qr: Tensor, layer: int, dims: Dims, weights: Weights, state: State, chunk: Chunk, rec: Record
) -> None:
    """Index source layers: scores, own top-k and, at the candidate source, candidate blocks (§2.6 to §2.8)."""
    ratio = dims.ratios[layer]
    name = f"layers.{layer}.attn.indexer"
    lengths = (chunk.positions + 1) // ratio
    q = index_query(qr, weights.fp8(f"{name}.wq_b"), dims.index_heads, chunk.positions, layer_frequencies(dims, ratio))
    w = index_weights(x, weights.bf16(f"{name}.weights_proj.weight"))
    keys = state.layers[required_source(dims.index_k_sources, layer)].index
    scores = index_scores(mxfp4_value(q), w, keys)
    allowed = visible(lengths, keys.shape[0])
    if layer == dims.candidate_source:
        chunk.cand = candidate_blocks(scores, lengths, dims.candidate_block, dims.candidate_blocks)
        rec("cand", chunk.cand)
    elif dims.is_candidate_consumer(layer):
        assert chunk.cand is not None
        allowed = allowed & candidate_mask(chunk.cand, keys.shape[0], dims.candidate_block)
    chunk.topk[layer] = top_k(scores, lengths, dims.index_topk, allowed)
    rec("qI_codes", q.codes)
    rec("qI_scales", q.scales)
    rec("index_w", w)
    rec("scores", scores.masked_fill(~allowed, NEG_INF))


def attention(x: Tensor, layer: int, dims: Dims, weights: Weights, state: State, chunk: Chunk, rec: Record) -> Tensor:
    """Attention_l(x) for the rows of one chunk, x [T, D] normed; appends to the state; returns y [T, D]."""
    ratio, name, own = dims.ratios[layer], f"layers.{layer}.attn", state.layers[layer]
    pos, freq = chunk.positions, layer_frequencies(dims, ratio)
    qr = query_latent(x, weights.fp8(f"{name}.wq_a"), weights.bf16(f"{name}.q_norm.weight"), dims.eps)
    q = query(qr, weights.fp8(f"{name}.wq_b"), dims.heads, pos, freq)
    kv = window_key(x, weights.fp8(f"{name}.wkv"), weights.bf16(f"{name}.kv_norm.weight"), pos, freq, dims.eps)
    kvw = mxfp8(kv)
    own.window = torch.cat((own.window, mxfp8_value(kvw)))
    for key, value in (("qr", qr), ("q", q), ("kv", kv), ("kv_codes", kvw.codes), ("kv_scales", kvw.scales)):
        rec(key, value)
    main, topk = own.main, None
    if ratio > 0:
        if layer in dims.kv_sources:
            _compressed(x, layer, dims, weights, state, chunk, rec)
        if layer in dims.index_sources:
            _select(x, qr, layer, dims, weights, state, chunk, rec)
        main = state.layers[required_source(dims.kv_sources, layer)].main
        topk = chunk.topk[required_source(dims.index_sources, layer)]
        rec("topk", topk)
    o = sparse_attention(q, own.window, pos, dims.window, main, topk, weights.fp32(f"{name}.attn_sink"))
    o_rot = rotate(o, pos, freq, conjugate=True)
    oq = mxfp8(o_rot)
    u = output_latent(oq, weights.fp8(f"{name}.wo_a"), dims.groups)
    uq = mxfp8(u)
    y = bf(product(mxfp8_value(uq), weights.fp8(f"{name}.wo_b")))
    for key, value in (("attn_o", o), ("attn_o_rot", o_rot), ("oq_codes", oq.codes), ("oq_scales", oq.scales)):
        rec(key, value)
    for key, value in (("u", u), ("uq_codes", uq.codes), ("uq_scales", uq.scales), ("attn_y", y)):
        rec(key, value)
    return y
