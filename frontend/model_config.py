"""The model configuration: Hugging Face config.json (spec §0.6) as one frozen, validated, flat object.

`config.load_config(path)` is the usual way to get one; `config.config_from_json` takes a parsed file.
Names are those of `text_config`; the comment at a field gives the spec's symbol.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dinfc.frontend import engram_hash

PAGE_TOKENS = 128  # original tokens a cache page covers, all layers at once (spec §2.11)

Count = Annotated[int, Field(gt=0)]
Ids = tuple[int, ...]
Scale = Annotated[float, Field(gt=0)]

_STRICT = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


class YarnScaling(BaseModel):
    """`rope_scaling` of type yarn; it applies to compressed layers only (spec §2.2)."""

    model_config = _STRICT
    factor: Scale
    beta_fast: Scale
    beta_slow: Scale
    original_max_position_embeddings: Count  # L0


class VisionConfig(BaseModel):
    """The fields of `vision_config` that give tensor shapes (spec §10.3)."""

    model_config = _STRICT
    num_hidden_layers: Count
    hidden_size: Count
    num_attention_heads: Count
    intermediate_size: Count
    patch_size: Count
    downsample_ratio: Count


@dataclass(frozen=True)
class LayerTraits:
    """What a backbone layer owns and reads; equal traits mean the same layer kind (spec §1.4)."""

    ratio: int  # 0 window only, 1 or 2
    is_kv_source: bool
    is_index_source: bool
    is_index_k_source: bool
    is_candidate_source: bool
    is_candidate_consumer: bool
    has_engram: bool
    is_dspark_target: bool


class ModelConfig(BaseModel):
    """All fields that the compiler reads. Values are type-checked here; `rules.check` holds the validity rules."""

    model_config = _STRICT

    # top level
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    image_token_id: int
    # network
    vocab_size: Count  # V
    hidden_size: Count  # D
    num_hidden_layers: Count  # L
    max_position_embeddings: Count
    rms_norm_eps: Scale
    # attention
    num_attention_heads: Count  # H
    head_dim: Count  # d
    qk_rope_head_dim: Count  # d_r
    q_lora_rank: Count  # R_q
    o_lora_rank: Count  # R_o
    o_groups: Count  # G
    sliding_window: Count  # W, the query itself included
    rope_theta: Scale
    compress_rope_theta: Scale
    rope_scaling: YarnScaling | None = None
    # compression, index, candidates
    compress_ratios: Ids  # L + N entries
    kv_source_layer_ids: Ids
    index_source_layer_ids: Ids
    index_k_source_layer_ids: Ids  # absent in the file: kv sources
    index_n_heads: Count  # H_I
    index_head_dim: Count  # d_I
    index_topk: Count  # k_I
    candidate_source_layer_id: int | None = None  # None: feature off
    candidate_topk_blocks: Count | None = None  # N_c
    candidate_block_size: Count | None = None  # b_c
    use_fp4_sparse_kv: bool = True
    # hyper-connections
    hc_mult: Count  # m
    hc_sinkhorn_iters: Count  # n_it
    hc_eps: Scale
    # mixture of experts
    n_routed_experts: Count  # E
    n_shared_experts: Count
    num_experts_per_tok: Count  # K
    moe_intermediate_size: Count  # I
    routed_scaling_factor: Scale
    swiglu_limit: Scale
    # Engram
    engram_layer_ids: Ids = ()
    engram_num_embeddings: Ids | None = None  # informative; checked against the primes
    engram_max_ngram_size: Annotated[int, Field(ge=2)] | None = None  # n_max
    engram_vocab_size: Count | None = None
    engram_n_heads: Count | None = None
    engram_head_dim: Count | None = None
    engram_pad_token_id: int | None = None
    engram_compressed_vocab_size: Count | None = None  # V_c
    # draft module
    num_nextn_predict_layers: Annotated[int, Field(ge=0)] = 0  # N
    dspark_block_size: Count | None = None
    dspark_noise_token_id: int | None = None
    dspark_target_layer_ids: Ids = ()
    dspark_markov_rank: Count | None = None
    dspark_n_routed_experts: Count | None = None  # E'
    dspark_num_experts_per_tok: Count | None = None  # K'
    # vision, None when the file has no vision_config
    vision: VisionConfig | None = None

    # ---- derived: run-time extents

    @property
    def backtrack(self) -> int:
        """B_max, tokens a request may roll back: the draft block + 1, drafts or not (design section 4a)."""
        return (self.dspark_block_size or 0) + 1

    @property
    def window_ring(self) -> int:
        """n_w = W + B_max, entries of a window ring (§2.11)."""
        return self.sliding_window + self.backtrack

    @property
    def compress_ring(self) -> int:
        """n_ring = r + max(0, B_max - 1) for the ratio r = 2 that alone has a ring (§2.4)."""
        return 2 + max(0, self.backtrack - 1)

    # ---- derived: layer kinds and sharing (§1.4)

    @property
    def n_pre(self) -> int:
        """First layer with ratio 1, where the decoder half starts; num_hidden_layers when there is none."""
        ratios = self.compress_ratios[: self.num_hidden_layers]
        return ratios.index(1) if 1 in ratios else self.num_hidden_layers

    def ratio(self, layer: int) -> int:
        """r_l of a backbone layer, or of draft layer i as layer L + i: 0, 1 or 2."""
        return self.compress_ratios[layer]

    def kv_source(self, layer: int) -> int | None:
        """The layer whose compressed KV `layer` reads; None when its ratio is 0."""
        return self._source(self.kv_source_layer_ids, layer)

    def index_source(self, layer: int) -> int | None:
        """The layer whose top-k result `layer` uses; None when its ratio is 0."""
        return self._source(self.index_source_layer_ids, layer)

    def index_k_source(self, layer: int) -> int | None:
        """The layer whose index keys `layer` scores; None when its ratio is 0."""
        return self._source(self.index_k_source_layer_ids, layer)

    def is_kv_source(self, layer: int) -> bool:
        """True if the layer has its own compressor."""
        return layer in self.kv_source_layer_ids

    def is_index_source(self, layer: int) -> bool:
        """True if the layer computes its own top-k."""
        return layer in self.index_source_layer_ids

    def is_index_k_source(self, layer: int) -> bool:
        """True if the layer writes index keys."""
        return layer in self.index_k_source_layer_ids

    def is_candidate_source(self, layer: int) -> bool:
        """True for the one layer that produces candidate blocks (§2.8)."""
        return self.candidate_source_layer_id is not None and layer == self.candidate_source_layer_id

    def is_candidate_consumer(self, layer: int) -> bool:
        """True for an index source after the candidate source: it scores candidates only."""
        source = self.candidate_source_layer_id
        return source is not None and layer > source and self.is_index_source(layer)

    def has_engram(self, layer: int) -> bool:
        """True if Engram is added before the layer's attention (§4)."""
        return layer in self.engram_layer_ids

    def is_dspark_target(self, layer: int) -> bool:
        """True if the layer's input feeds the draft module (§5.2)."""
        return layer in self.dspark_target_layer_ids

    def traits(self, layer: int) -> LayerTraits:
        """Everything above about one backbone layer, as a value that can be compared and hashed."""
        return LayerTraits(
            self.ratio(layer),
            self.is_kv_source(layer),
            self.is_index_source(layer),
            self.is_index_k_source(layer),
            self.is_candidate_source(layer),
            self.is_candidate_consumer(layer),
            self.has_engram(layer),
            self.is_dspark_target(layer),
        )

    def _source(self, ids: Ids, layer: int) -> int | None:
        if not 0 <= layer < self.num_hidden_layers or self.ratio(layer) == 0:
            return None
        return max((i for i in ids if i <= layer), default=None)

    # ---- derived: Engram hash constants (§4.3)

    @property
    def engram_orders(self) -> range:
        """n-gram orders 2..n_max; empty without Engram."""
        return range(2, (self.engram_max_ngram_size or 1) + 1)

    @cached_property
    def engram_primes(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """layer -> primes [order][head] (orders 2..n_max)."""
        orders, heads, start = len(self.engram_orders), self.engram_n_heads or 0, self.engram_vocab_size or 0
        return engram_hash.primes(self.engram_layer_ids, orders, heads, start)

    @cached_property
    def engram_offsets(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """layer -> first table row [order][head]: exclusive prefix sums of the primes."""
        return {layer: engram_hash.offsets(table) for layer, table in self.engram_primes.items()}

    @cached_property
    def engram_multipliers(self) -> dict[int, tuple[int, ...]]:
        """layer -> M_0..M_{n_max-1}, odd, products with a compressed id fit int64."""
        size, n_max = self.engram_compressed_vocab_size or 1, self.engram_max_ngram_size or 0
        return {layer: engram_hash.multipliers(layer, n_max, size) for layer in self.engram_layer_ids}

    @cached_property
    def engram_rows(self) -> dict[int, int]:
        """layer -> rows of its table: the sum of its primes."""
        return {layer: sum(map(sum, table)) for layer, table in self.engram_primes.items()}
