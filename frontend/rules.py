"""Validity rules of the configuration (spec §1.4, and the codec and layout conditions of §0.4, §2.8, §4.3, §10.1).

One named function a rule, one entry of the catalogue each. §2.13 is not here: those are limits of particular kernels
and live in target manifests. A later rule may rely on the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable

from dinfc.diagnostics import DinfcError
from dinfc.frontend.model_config import ModelConfig
from dinfc.frontend.rules_sizes import SIZE_RULES, Locate


def check(config: ModelConfig, locate: Locate) -> None:
    """Raises DinfcError E-CONFIG-0NN of the first rule that the configuration breaks."""
    for rule in RULES:
        rule(config, locate)


def feature_fields_present(c: ModelConfig, locate: Locate) -> None:
    """A feature that is on needs its fields: candidates, Engram, draft."""
    groups = (
        (
            "candidate_source_layer_id",
            c.candidate_source_layer_id is not None,
            ("candidate_topk_blocks", "candidate_block_size"),
        ),
        (
            "engram_layer_ids",
            bool(c.engram_layer_ids),
            (
                "engram_max_ngram_size",
                "engram_vocab_size",
                "engram_n_heads",
                "engram_head_dim",
                "engram_pad_token_id",
                "engram_compressed_vocab_size",
            ),
        ),
        (
            "num_nextn_predict_layers",
            c.num_nextn_predict_layers > 0,
            (
                "dspark_block_size",
                "dspark_noise_token_id",
                "dspark_markov_rank",
                "dspark_n_routed_experts",
                "dspark_num_experts_per_tok",
                "dspark_target_layer_ids",
            ),
        ),
    )
    for switch, on, fields in groups:
        for field in fields:
            if on and getattr(c, field) in (None, ()):
                raise DinfcError(
                    "E-CONFIG-001", place=locate(switch), field=f"text_config.{field}", hint=f"{switch} asks for it"
                )


def ratio_list_length(c: ModelConfig, locate: Locate) -> None:
    """compress_ratios has one entry per backbone and draft layer."""
    expected = c.num_hidden_layers + c.num_nextn_predict_layers
    if len(c.compress_ratios) != expected:
        raise DinfcError(
            "E-CONFIG-010", place=locate("compress_ratios"), count=len(c.compress_ratios), expected=expected
        )


def ratio_values(c: ModelConfig, locate: Locate) -> None:
    """Ratios are 0, 1 or 2; draft layers are window only."""
    for layer, ratio in enumerate(c.compress_ratios):
        if ratio not in (0, 1, 2):
            raise DinfcError("E-CONFIG-011", place=locate("compress_ratios"), layer=layer, ratio=ratio)
        if layer >= c.num_hidden_layers and ratio != 0:
            raise DinfcError("E-CONFIG-012", place=locate("compress_ratios"), layer=layer, ratio=ratio)


def layer_lists_ascending(c: ModelConfig, locate: Locate) -> None:
    """Lists of layer ids are ascending, without repetition, and name backbone layers."""
    for field, code in (
        ("kv_source_layer_ids", "E-CONFIG-013"),
        ("index_source_layer_ids", "E-CONFIG-013"),
        ("index_k_source_layer_ids", "E-CONFIG-013"),
        ("engram_layer_ids", "E-CONFIG-030"),
        ("dspark_target_layer_ids", "E-CONFIG-030"),
    ):
        ids: tuple[int, ...] = getattr(c, field)
        if list(ids) != sorted(set(ids)) or any(not 0 <= i < c.num_hidden_layers for i in ids):
            raise DinfcError(code, place=locate(field), field=field, value=list(ids), layers=c.num_hidden_layers)


def sources_are_compressed(c: ModelConfig, locate: Locate) -> None:
    """A listed source has ratio 1 or 2."""
    for field in ("kv_source_layer_ids", "index_k_source_layer_ids", "index_source_layer_ids"):
        for layer in getattr(c, field):
            if c.ratio(layer) == 0:
                raise DinfcError("E-CONFIG-016", place=locate(field), field=field, layer=layer)


def n_pre_is_kv_source(c: ModelConfig, locate: Locate) -> None:
    """The decoder half starts with its own compressed KV."""
    if c.n_pre < c.num_hidden_layers and not c.is_kv_source(c.n_pre):
        raise DinfcError("E-CONFIG-020", place=locate("kv_source_layer_ids"), layer=c.n_pre)


def every_compressed_layer_has_sources(c: ModelConfig, locate: Locate) -> None:
    """Each compressed layer has a nearest earlier (or own) source in all three maps."""
    for field, source in (
        ("kv_source_layer_ids", c.kv_source),
        ("index_k_source_layer_ids", c.index_k_source),
        ("index_source_layer_ids", c.index_source),
    ):
        for layer in range(c.num_hidden_layers):
            if c.ratio(layer) and source(layer) is None:
                raise DinfcError("E-CONFIG-014", place=locate(field), layer=layer, ratio=c.ratio(layer), field=field)


def ratio_equals_source(c: ModelConfig, locate: Locate) -> None:
    """Segments are contiguous and of one ratio: no layer after the first source differs from its KV source."""
    for layer in range(c.num_hidden_layers):
        source = max((i for i in c.kv_source_layer_ids if i <= layer), default=None)
        if source is not None and c.ratio(layer) != c.ratio(source):
            raise DinfcError(
                "E-CONFIG-015",
                place=locate("compress_ratios"),
                layer=layer,
                ratio=c.ratio(layer),
                source=source,
                source_ratio=c.ratio(source),
            )


def index_k_sources_are_kv_sources(c: ModelConfig, locate: Locate) -> None:
    """Index K is made from the compressor's latent, so its sources are KV sources."""
    for layer in c.index_k_source_layer_ids:
        if not c.is_kv_source(layer):
            raise DinfcError("E-CONFIG-017", place=locate("index_k_source_layer_ids"), layer=layer)


def segments_nest(c: ModelConfig, locate: Locate) -> None:
    """Every top-k segment lies inside one index-K segment, and that inside one KV segment."""
    for layer in range(c.num_hidden_layers):
        key_source, top_source = c.index_k_source(layer), c.index_source(layer)
        if key_source is not None and c.kv_source(layer) != c.kv_source(key_source):
            raise DinfcError("E-CONFIG-018", place=locate("kv_source_layer_ids"), layer=layer, source=key_source)
        if top_source is not None and key_source != c.index_k_source(top_source):
            raise DinfcError("E-CONFIG-019", place=locate("index_source_layer_ids"), layer=layer, source=top_source)


def candidate_source_is_index_source(c: ModelConfig, locate: Locate) -> None:
    """Candidate blocks are made from the scores of an index source; consumers share its ratio."""
    source = c.candidate_source_layer_id
    if source is None:
        return
    if not c.is_index_source(source):
        raise DinfcError("E-CONFIG-021", place=locate("candidate_source_layer_id"), layer=source)
    for layer in c.index_source_layer_ids:
        if c.is_candidate_consumer(layer) and c.ratio(layer) != c.ratio(source):
            raise DinfcError(
                "E-CONFIG-022",
                place=locate("candidate_source_layer_id"),
                layer=layer,
                source=source,
                ratio=c.ratio(layer),
                source_ratio=c.ratio(source),
            )


RULES: tuple[Callable[[ModelConfig, Locate], None], ...] = (
    feature_fields_present,
    ratio_list_length,
    ratio_values,
    layer_lists_ascending,
    sources_are_compressed,
    n_pre_is_kv_source,
    every_compressed_layer_has_sources,
    ratio_equals_source,
    index_k_sources_are_kv_sources,
    segments_nest,
    candidate_source_is_index_source,
    *SIZE_RULES,
)
