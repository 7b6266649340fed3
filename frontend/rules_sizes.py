"""Validity rules about extents: candidates, heads, scale groups, experts, ids, Engram rows (run by `rules`)."""

from __future__ import annotations

from collections.abc import Callable

from dinfc.diagnostics import DinfcError, Place
from dinfc.frontend.model_config import PAGE_TOKENS, ModelConfig

Locate = Callable[[str], Place | None]  # field name -> its place in config.json


def candidate_sizes(c: ModelConfig, locate: Locate) -> None:
    """N_c * b_c >= k_I, N_c is a multiple of 8, and a block does not cross a page."""
    source, blocks, block = c.candidate_source_layer_id, c.candidate_topk_blocks, c.candidate_block_size
    if source is None or blocks is None or block is None:
        return
    if blocks * block < c.index_topk:
        raise DinfcError(
            "E-CONFIG-023", place=locate("candidate_topk_blocks"), blocks=blocks, block=block, top_k=c.index_topk
        )
    if blocks % 8:
        raise DinfcError(
            "E-CONFIG-024",
            place=locate("candidate_topk_blocks"),
            blocks=blocks,
            lower=max(8, blocks // 8 * 8),
            upper=blocks // 8 * 8 + 8,
        )
    records = PAGE_TOKENS // c.ratio(source)
    if records % block:
        raise DinfcError(
            "E-CONFIG-025", place=locate("candidate_block_size"), block=block, records=records, ratio=c.ratio(source)
        )


def heads_divisible_by_groups(c: ModelConfig, locate: Locate) -> None:
    """Each output group holds H / G whole heads."""
    if c.num_attention_heads % c.o_groups:
        raise DinfcError("E-CONFIG-026", place=locate("o_groups"), heads=c.num_attention_heads, groups=c.o_groups)


def codec_divisibility(c: ModelConfig, locate: Locate) -> None:
    """Every quantised extent is a whole number of scale groups (32 elements, §0.4)."""
    products = "it is the inner extent of fp8 products"
    for field, value, reason in (
        ("hidden_size", c.hidden_size, products),
        ("q_lora_rank", c.q_lora_rank, products),
        ("o_lora_rank", c.o_lora_rank, "no scale block may straddle output groups"),
        ("head_dim", c.head_dim, "window and main KV are quantised along it"),
        ("index_head_dim", c.index_head_dim, "index Q and K are quantised along it"),
        ("moe_intermediate_size", c.moe_intermediate_size, products),
        ("engram_head_dim", c.engram_head_dim, "table rows are quantised along it"),
    ):
        if value is not None and value % 32:
            raise DinfcError("E-CONFIG-027", place=locate(field), field=field, value=value, group=32, reason=reason)


def rotary_width(c: ModelConfig, locate: Locate) -> None:
    """The rotary slice consists of pairs and fits into heads and index heads; YaRN's range is not empty."""
    width = c.qk_rope_head_dim
    for field, limit in (("head_dim", c.head_dim), ("index_head_dim", c.index_head_dim)):
        if width % 2 or width > limit:
            raise DinfcError("E-CONFIG-028", place=locate("qk_rope_head_dim"), value=width, field=field, limit=limit)
    scaling = c.rope_scaling
    if scaling is not None and scaling.beta_fast <= scaling.beta_slow:
        raise DinfcError("E-CONFIG-033", place=locate("rope_scaling"), fast=scaling.beta_fast, slow=scaling.beta_slow)


def experts_per_token(c: ModelConfig, locate: Locate) -> None:
    """A token cannot choose more experts than there are."""
    for field, chosen, experts_field, experts in (
        ("num_experts_per_tok", c.num_experts_per_tok, "n_routed_experts", c.n_routed_experts),
        (
            "dspark_num_experts_per_tok",
            c.dspark_num_experts_per_tok,
            "dspark_n_routed_experts",
            c.dspark_n_routed_experts,
        ),
    ):
        if chosen is not None and experts is not None and chosen > experts:
            raise DinfcError(
                "E-CONFIG-029",
                place=locate(field),
                field=field,
                value=chosen,
                experts=experts,
                experts_field=experts_field,
            )


def token_ids_in_vocabulary(c: ModelConfig, locate: Locate) -> None:
    """Special ids are real rows of the embedding."""
    for field in (
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "image_token_id",
        "engram_pad_token_id",
        "dspark_noise_token_id",
    ):
        value: int | None = getattr(c, field)
        if value is not None and not 0 <= value < c.vocab_size:
            raise DinfcError("E-CONFIG-031", place=locate(field), field=field, value=value, vocab=c.vocab_size)


def compressed_vocabulary(c: ModelConfig, locate: Locate) -> None:
    """V_c <= V: classes are made of tokens."""
    size = c.engram_compressed_vocab_size
    if size is not None and size > c.vocab_size:
        place = locate("engram_compressed_vocab_size")
        raise DinfcError("E-CONFIG-040", place=place, value=size, vocab=c.vocab_size)


def engram_row_counts(c: ModelConfig, locate: Locate) -> None:
    """engram_num_embeddings, where given, is the sum of each layer's primes."""
    expected = [c.engram_rows[layer] for layer in c.engram_layer_ids]
    if c.engram_num_embeddings is not None and list(c.engram_num_embeddings) != expected:
        raise DinfcError(
            "E-CONFIG-032",
            place=locate("engram_num_embeddings"),
            value=list(c.engram_num_embeddings),
            expected=expected,
        )


SIZE_RULES: tuple[Callable[[ModelConfig, Locate], None], ...] = (
    candidate_sizes,
    heads_divisible_by_groups,
    codec_divisibility,
    rotary_width,
    experts_per_token,
    token_ids_in_vocabulary,
    compressed_vocabulary,
    engram_row_counts,
)
