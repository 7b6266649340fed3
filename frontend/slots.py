"""Weight slots of a layer: type of each, and the checkpoint tensors that fill it (spec 10.2)."""
from __future__ import annotations

from dataclasses import dataclass

from dinfc.frontend.model_config import ModelConfig
from dinfc.ir.plan import WeightPart, WeightRecipe
from dinfc.ir.types import Dim, TensorType


@dataclass(frozen=True)
class Slot:
    """A weight parameter. `parts`: (checkpoint name behind the layer's prefix, rows it fills), in order; names of codec
    slots are completed with `.weight` and `.scale`."""

    type: TensorType
    parts: tuple[tuple[str, int], ...]

    def recipe(self, name: str, prefix: str) -> WeightRecipe:
        """The recipe of the slot called `name` of the layer whose tensors start with `prefix`."""
        out, row = [], 0
        for part, rows in self.parts:
            source = prefix + part
            if self.type.codec:
                out.append(WeightPart(source + ".weight", rows, row, source + ".scale"))
            else:
                out.append(WeightPart(source, rows, row))
            row += rows
        return WeightRecipe(name, tuple(out))


def _slot(elem: str, shape: tuple[int, ...], *parts: tuple[str, int] | str) -> Slot:
    rows = 1
    for d in shape[:-1]:
        rows *= d
    full = tuple((p, rows) if isinstance(p, str) else p for p in parts)
    return Slot(TensorType(elem, shape), full)


def layer_slots(config: ModelConfig, layer: int) -> dict[str, Slot]:
    """All slots of a backbone layer by local name; functions ask only for those they use."""
    c = config
    width, m, heads, d = c.hidden_size, c.hc_mult, c.num_attention_heads, c.head_dim
    group_width = heads // c.o_groups * d
    inner, shared, experts = c.moe_intermediate_size, c.n_shared_experts * c.moe_intermediate_size, c.n_routed_experts
    mixes = m * (m + 2)
    out: dict[str, Slot] = {}
    for part in ("attn", "ffn"):
        out[f"hc_{part}_fn"] = _slot("f32", (mixes, m * width), f"hc_{part}_fn")
        out[f"hc_{part}_scale"] = _slot("f32", (3,), f"hc_{part}_scale")
        out[f"hc_{part}_base"] = _slot("f32", (mixes,), f"hc_{part}_base")
        out[f"{part}_norm"] = _slot("bf16", (width,), f"{part}_norm.weight")
    rank, latent = c.q_lora_rank, c.o_groups * c.o_lora_rank
    out |= {
        "attn.wqkv_a": _slot("wfp8<32x32>", (rank + d, width), ("attn.wq_a", rank), ("attn.wkv", d)),
        "attn.q_norm": _slot("bf16", (rank,), "attn.q_norm.weight"),
        "attn.wq_b": _slot("wfp8<32x32>", (heads * d, rank), "attn.wq_b"),
        "attn.kv_norm": _slot("bf16", (d,), "attn.kv_norm.weight"),
        "attn.attn_sink": _slot("f32", (heads,), "attn.attn_sink"),
        "attn.wo_a": _slot("wfp8<32x32>", (c.o_groups, c.o_lora_rank, group_width), "attn.wo_a"),
        "attn.wo_b": _slot("wfp8<32x32>", (width, latent), "attn.wo_b"),
        "attn.compressor.wkv": _slot("bf16", (d, width), "attn.compressor.wkv.weight"),
        "attn.compressor.wgl": _slot("bf16", (2 * d, width), ("attn.compressor.wgate.weight", d),
                                     ("attn.compressor.wkv.weight", d)),
        "attn.compressor.norm": _slot("bf16", (d,), "attn.compressor.norm.weight"),
        "attn.indexer.wq_b": _slot("wfp8<32x32>", (c.index_n_heads * c.index_head_dim, rank), "attn.indexer.wq_b"),
        "attn.indexer.weights_proj": _slot("bf16", (c.index_n_heads, width), "attn.indexer.weights_proj.weight"),
        "attn.indexer.wk": _slot("bf16", (c.index_head_dim, d), "attn.indexer.wk.weight"),
        "attn.indexer.k_norm": _slot("bf16", (c.index_head_dim,), "attn.indexer.k_norm.weight"),
        "ffn.gate": _slot("bf16", (experts, width), "ffn.gate.weight"),
        "ffn.gate.bias": _slot("f32", (experts,), "ffn.gate.bias"),
        "ffn.shared.w13": _slot("wfp8<32x32>", (2 * shared, width), ("ffn.shared_experts.w1", shared),
                                ("ffn.shared_experts.w3", shared)),
        "ffn.shared.w2": _slot("wfp8<32x32>", (width, shared), "ffn.shared_experts.w2"),
        "ffn.experts.w13": _slot("mxfp4<32>", (experts, 2 * inner, width),
                                 *((f"ffn.experts.{e}.{w}", inner) for e in range(experts) for w in ("w1", "w3"))),
        "ffn.experts.w2": _slot("mxfp4<32>", (experts, width, inner),
                                *((f"ffn.experts.{e}.w2", width) for e in range(experts))),
    }
    if c.has_engram(layer):
        entries, entry = len(c.engram_orders) * (c.engram_n_heads or 0), c.engram_head_dim or 0
        out |= {
            "engram.q_weight": _slot("bf16", (m, width), "engram.q_weight"),
            "engram.k_weight": _slot("bf16", (m, width), "engram.k_weight"),
            "engram.embed": _slot("mxfp8<32>", (c.engram_rows[layer], entry), "engram.embed"),
            "engram.wkv": _slot("wfp8<32x32>", ((m + 1) * width, entries * entry), "engram.wkv"),
        }
    return out


def global_slots(config: ModelConfig) -> dict[str, Slot]:
    """Slots outside of the layers; `engram.token_map` comes from the tokenizer, not from a checkpoint tensor."""
    v, width = config.vocab_size, config.hidden_size
    out = {
        "embed.weight": _slot("bf16", (v, width), "embed.weight"),
        "norm.weight": _slot("bf16", (width,), "norm.weight"),
        "head.weight": _slot("bf16", (v, width), "head.weight"),
    }
    if config.engram_layer_ids:
        size: Dim = config.engram_compressed_vocab_size or 1
        out["engram.token_map"] = Slot(TensorType("i32", (v,), bounds=(-1, size)), (("engram.token_map", 1),))
    return out
