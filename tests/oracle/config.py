"""Spec §0.2, §0.6 and §1.4: sizes, options and the cross-layer source maps, read from a Hugging Face style config."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def source_of(ids: Sequence[int], layer: int) -> int | None:
    """source(l) of §1.4: the largest listed id <= l, None before the first one."""
    earlier = [i for i in ids if i <= layer]
    return max(earlier) if earlier else None


def required_source(ids: Sequence[int], layer: int) -> int:
    """``source_of`` for a layer that must have one."""
    source = source_of(ids, layer)
    if source is None:
        raise ValueError(f"layer {layer} has no source among {list(ids)}")
    return source


@dataclass(frozen=True)
class Dims:
    """The fields of §0.6 the backbone reads. Names follow the configuration, shortened where the spec has a symbol."""

    vocab: int  # V
    hidden: int  # D
    layers: int  # L
    streams: int  # m
    heads: int  # H
    head_dim: int  # d
    rope_dim: int  # d_r
    q_rank: int  # R_q
    groups: int  # G
    o_rank: int  # R_o
    window: int  # W
    ratios: tuple[int, ...]  # r_l, backbone layers only
    kv_sources: tuple[int, ...]
    index_k_sources: tuple[int, ...]
    index_sources: tuple[int, ...]
    index_heads: int  # H_I
    index_dim: int  # d_I
    index_topk: int  # k_I
    candidate_source: int | None
    candidate_blocks: int  # N_c
    candidate_block: int  # b_c
    experts: int  # E
    experts_per_token: int  # K
    expert_width: int  # I
    shared_experts: int
    routed_scale: float
    swiglu_limit: float
    eps: float
    hc_eps: float
    hc_iters: int
    rope_theta: float
    compress_theta: float
    rope_scaling: Mapping[str, Any] | None
    fp4_kv: bool
    engram_layers: tuple[int, ...]
    engram_ngram: int  # n_max
    engram_vocab: int
    engram_heads: int
    engram_dim: int
    engram_pad: int
    target_layers: tuple[int, ...]

    @property
    def engram_tables(self) -> int:
        """Hash tables of one Engram layer: (n_max - 1) orders times heads."""
        return (self.engram_ngram - 1) * self.engram_heads

    def is_candidate_consumer(self, layer: int) -> bool:
        """Index sources behind the candidate source score candidate blocks only (§2.8)."""
        return self.candidate_source is not None and layer in self.index_sources and layer > self.candidate_source

    @staticmethod
    def parse(config: Mapping[str, Any]) -> "Dims":
        """From the whole config.json (with ``text_config``) or from the text part alone."""
        text: Mapping[str, Any] = config.get("text_config", config)
        if text.get("hc_shifted") is False:
            raise ValueError("the oracle only has the shifted form of mHC (hc_shifted true)")
        layers = int(text["num_hidden_layers"])
        optional = {key: value for key, value in text.items() if value is not None}
        kv_sources = tuple(text["kv_source_layer_ids"])
        return Dims(
            vocab=text["vocab_size"],
            hidden=text["hidden_size"],
            layers=layers,
            streams=text["hc_mult"],
            heads=text["num_attention_heads"],
            head_dim=text["head_dim"],
            rope_dim=text["qk_rope_head_dim"],
            q_rank=text["q_lora_rank"],
            groups=text["o_groups"],
            o_rank=text["o_lora_rank"],
            window=text["sliding_window"],
            ratios=tuple(text["compress_ratios"][:layers]),
            kv_sources=kv_sources,
            index_k_sources=tuple(optional.get("index_k_source_layer_ids", kv_sources)),
            index_sources=tuple(text["index_source_layer_ids"]),
            index_heads=text["index_n_heads"],
            index_dim=text["index_head_dim"],
            index_topk=text["index_topk"],
            candidate_source=optional.get("candidate_source_layer_id"),
            candidate_blocks=optional.get("candidate_topk_blocks", 0),
            candidate_block=optional.get("candidate_block_size", 1),
            experts=text["n_routed_experts"],
            experts_per_token=text["num_experts_per_tok"],
            expert_width=text["moe_intermediate_size"],
            shared_experts=text["n_shared_experts"],
            routed_scale=float(text["routed_scaling_factor"]),
            swiglu_limit=float(text["swiglu_limit"]),
            eps=float(text["rms_norm_eps"]),
            hc_eps=float(text["hc_eps"]),
            hc_iters=text["hc_sinkhorn_iters"],
            rope_theta=float(text["rope_theta"]),
            compress_theta=float(text["compress_rope_theta"]),
            rope_scaling=optional.get("rope_scaling"),
            fp4_kv=bool(optional.get("use_fp4_sparse_kv", True)),
            engram_layers=tuple(optional.get("engram_layer_ids", ())),
            engram_ngram=optional.get("engram_max_ngram_size", 1),
            engram_vocab=optional.get("engram_vocab_size", 0),
            engram_heads=optional.get("engram_n_heads", 0),
            engram_dim=optional.get("engram_head_dim", 0),
            engram_pad=optional.get("engram_pad_token_id", 0),
            target_layers=tuple(optional.get("dspark_target_layer_ids", ())),
        )
