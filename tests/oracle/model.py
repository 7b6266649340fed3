"""Spec §1.1: the whole backbone. ``Oracle.forward`` appends a chunk of tokens to a sequence.

Keys of ``trace`` (all tensors of the T rows of that chunk; fp64 unless said otherwise; values that live in bf16 are
bf16-representable; codes and scales uint8, e2m1 codes unpacked; a new forward overwrites them):

* ``embed`` [T, D], ``final_h`` [T, D] (before the last norm), ``hidden`` [T, D] (normed), ``logits`` [T, V] fp32
* per layer, prefix ``layers.{l}.``:

  - ``X_in``, ``X_engram`` (Engram layers), ``X_mid``, ``X_out`` [T, m, D]: streams on entry, after Engram, after the
    attention sub-layer, after the MoE sub-layer; ``feature`` [T, D] = F_l at DSpark target layers
  - ``{attn,ffn}_pre_in`` [T, m]: the mix of the previous sub-layer, used to form ``{attn,ffn}_h`` [T, D];
    ``{attn,ffn}_x`` [T, D] after the norm; ``{attn,ffn}_pre`` [T, m], ``{attn,ffn}_post`` [T, m],
    ``{attn,ffn}_C`` [T, m, m]: HCMix of this sub-layer; ``{attn,ffn}_y`` [T, D]: its output
  - Engram: ``engram_rows`` [T, tables] int64, ``engram_e`` [T, tables*width], ``engram_kv`` [T, m+1, D],
    ``engram_g`` [T, m]
  - attention: ``qr`` [T, R_q]; ``q`` [T, H, d] rotated; ``kv`` [T, d] rotated, before the quantiser; ``kv_codes``
    [T, d], ``kv_scales`` [T, d/32]; ``attn_o``, ``attn_o_rot`` [T, H, d] before and after the conjugate rotation;
    ``oq_codes`` [T, H, d], ``oq_scales`` [T, H, d/32]; ``u`` [T, G*R_o], ``uq_codes``, ``uq_scales``;
    ``topk`` [T, k_I] int64 (ratio > 0; shared by the consumers of a source)
  - KV sources, N = compressed tokens this chunk completes: ``c_lat``, ``c_gate`` [T, d] (ratio 2), ``c``, ``z``
    [N, d], ``main_codes`` [N, d], ``main_scales`` [N, d/16 or d/32]; index-K sources: ``index_codes`` [N, d_I],
    ``index_scales`` [N, d_I/32]
  - index sources: ``qI_codes`` [T, H_I, d_I], ``qI_scales``, ``index_w`` [T, H_I], ``scores`` [T, n_c] over all
    compressed tokens so far (-inf where invisible or, at consumers, outside the candidate blocks); ``cand`` [T, N_c]
    int64 at the candidate source
  - MoE: ``router_zlog`` [T, E], ``router_ids`` [T, K] int64 in rank order, ``router_w`` [T, K]; ``ffn_xq_codes``
    [T, D], ``ffn_xq_scales``; ``expert_a``, ``expert_b``, ``expert_hh`` [T, K, I], ``expert_hh_codes``,
    ``expert_hh_scales``, ``expert_y`` [T, K, D]; ``shared_a``, ``shared_b``, ``shared_hh``, ``shared_hh_codes``,
    ``shared_hh_scales``, ``shared_y``
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oracle.attention import Chunk, attention
from oracle.codecs import F32, F64, bf
from oracle.config import Dims
from oracle.engram import engram
from oracle.engram_hash import LayerHash, layer_hashes
from oracle.hyper import Mix, first_mix, hc_apply, hc_mix, hc_post
from oracle.moe import moe
from oracle.ops import product, rmsnorm
from oracle.state import State
from oracle.weights import Weights

Record = Callable[[str, Tensor], None]


def embed(ids: Sequence[int], table: Tensor) -> Tensor:
    """Rows of the embedding in fp64, zero for ids outside [0, V)."""
    index = torch.tensor(list(ids), dtype=torch.int64)
    inside = (index >= 0) & (index < table.shape[0])
    return table[index * inside].masked_fill(~inside.unsqueeze(1), 0.0)


class Oracle:
    """The backbone of one checkpoint in reference mode R64."""

    def __init__(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor], token_map: Sequence[int] | None = None
    ) -> None:
        self.dims = Dims.parse(config)
        self.weights = Weights(tensors)
        self.token_map: list[int] = list(token_map) if token_map is not None else []
        self.hashes: dict[int, LayerHash] = {}
        if self.dims.engram_layers:
            if token_map is None:
                raise ValueError("a configuration with Engram layers needs a token map")
            self.hashes = layer_hashes(self.dims, max(self.token_map) + 1)

    def new_state(self) -> State:
        """State of an empty sequence."""
        return State.empty(self.dims)

    def mix(self, x: Tensor, layer: int, sub: str) -> Mix:
        """HCMix of sub-layer ``sub`` ("attn" or "ffn") of a layer, x [T, m, D]."""
        name, w = f"layers.{layer}.hc_{sub}", self.weights
        d = self.dims
        return hc_mix(
            x, w.fp32(f"{name}_fn"), w.fp32(f"{name}_scale"), w.fp32(f"{name}_base"), d.eps, d.hc_eps, d.hc_iters
        )

    def sublayer(
        self, x: Tensor, pre: Tensor, layer: int, sub: str, run: Callable[[Tensor], Tensor], rec: Record
    ) -> tuple[Tensor, Tensor]:
        """One sub-layer around ``run`` (normed input -> output): (new streams, mix for the next sub-layer)."""
        h = hc_apply(x, pre)
        mix = self.mix(x, layer, sub)
        normed = rmsnorm(h, self.weights.bf16(f"layers.{layer}.{sub}_norm.weight"), self.dims.eps)
        rec(f"{sub}_pre_in", pre)
        rec(f"{sub}_h", h)
        rec(f"{sub}_x", normed)
        rec(f"{sub}_pre", mix.pre)
        rec(f"{sub}_post", mix.post)
        rec(f"{sub}_C", mix.comb)
        return hc_post(x, run(normed), mix.post, mix.comb), mix.pre

    def layer(
        self, x: Tensor, pre: Tensor, layer: int, state: State, chunk: Chunk, image_rows: Tensor, rec: Record
    ) -> tuple[Tensor, Tensor]:
        """Layer ``layer`` on x [T, m, D], pre [T, m]; ``state.ids`` already ends with the chunk's tokens."""
        rec("X_in", x)
        if layer in self.dims.engram_layers:
            start = len(state.ids) - x.shape[0]
            x = engram(x, state.ids, start, layer, self.dims, self.weights, self.token_map, self.hashes[layer], rec)
            rec("X_engram", x)
        if layer in self.dims.target_layers:
            rec("feature", bf(x.mean(1)))

        def run_attention(normed: Tensor) -> Tensor:
            return attention(normed, layer, self.dims, self.weights, state, chunk, rec)

        def run_moe(normed: Tensor) -> Tensor:
            return moe(normed, image_rows, layer, self.dims, self.weights, rec)

        x, pre = self.sublayer(x, pre, layer, "attn", run_attention, rec)
        rec("X_mid", x)
        x, pre = self.sublayer(x, pre, layer, "ffn", run_moe, rec)
        rec("X_out", x)
        return x, pre

    def forward(self, state: State, ids: Sequence[int], trace: dict[str, Tensor] | None = None) -> Tensor:
        """Append ``ids`` to the sequence; fp32 logits [len(ids), V] of all its rows."""
        rows, dims, weights = len(ids), self.dims, self.weights
        if rows == 0:
            return torch.zeros((0, dims.vocab), dtype=F32)
        chunk = Chunk(torch.arange(len(state.ids), len(state.ids) + rows))
        state.ids.extend(int(i) for i in ids)
        image_rows = torch.tensor([i >= dims.vocab for i in ids])

        def recorder(prefix: str) -> Record:
            def rec(name: str, value: Tensor) -> None:
                if trace is not None:
                    trace[prefix + name] = value

            return rec

        rec = recorder("")
        embedded = embed(ids, weights.bf16("embed.weight"))
        rec("embed", embedded)
        x = embedded.unsqueeze(1).expand(rows, dims.streams, dims.hidden).to(F64)
        pre = first_mix(rows, dims.streams)
        for layer in range(dims.layers):
            x, pre = self.layer(x, pre, layer, state, chunk, image_rows, recorder(f"layers.{layer}."))
        h = hc_apply(x, pre)
        hidden = rmsnorm(h, weights.bf16("norm.weight"), dims.eps)
        logits = product(hidden, weights.bf16("head.weight")).to(F32)
        rec("final_h", h)
        rec("hidden", hidden)
        rec("logits", logits)
        return logits
