"""Errors of config.json: fields (001-009), validity rules of §1.4 and of the codecs (010 onwards)."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import Entry

_SHARING = (
    "Spec §1.4: compressed layers share the KV, index-K and top-k results of the nearest listed layer before them."
)

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        "E-CONFIG-001",
        "field missing",
        "the model configuration has no field {field}",
        "add {field} to config.json; {hint}",
    ),
    Entry(
        "E-CONFIG-002",
        "field has a wrong type or range",
        "field {field} is {value}, but {expected}",
        "correct {field} in config.json",
    ),
    Entry(
        "E-CONFIG-003",
        "field must have a fixed value",
        "field {field} is {value}; for this model it must be {required}",
        "set {field} to {required}, or use the compiler of the model that this configuration belongs to",
        "Spec §0.6 lists the fields whose value this model family fixes; another value means other mathematics.",
    ),
    Entry(
        "E-CONFIG-004",
        "config file not found",
        "there is no configuration file {path}",
        "correct the path; in a model.yaml it is relative to the folder of that file",
    ),
    Entry(
        "E-CONFIG-005",
        "config file is not JSON",
        "{path} is not valid JSON: {reason}",
        "correct the file; it must be a Hugging Face config.json",
    ),
    Entry(
        "E-CONFIG-010",
        "rule ratio-list-length",
        "compress_ratios has {count} entries; num_hidden_layers + num_nextn_predict_layers is {expected}",
        "give one ratio per backbone layer, then one 0 per draft layer",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-011",
        "rule ratio-values",
        "compress_ratios[{layer}] is {ratio}; only 0, 1 and 2 exist",
        "use 0 (window only), 2 (two tokens a record) or 1 (every token a record)",
    ),
    Entry(
        "E-CONFIG-012",
        "rule draft-layers-never-share",
        "compress_ratios[{layer}] is {ratio}, but layer {layer} is a draft layer",
        "draft layers (the last num_nextn_predict_layers entries) are window only: set the entry to 0",
    ),
    Entry(
        "E-CONFIG-013",
        "rule source-ids-ascending",
        "{field} is {value}; it must list different layer ids in ascending order, each in [0, {layers})",
        "sort {field}, remove repeated ids and ids that are no backbone layer",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-014",
        "rule source-exists",
        "layer {layer} has compress ratio {ratio}, but {field} lists no layer at or before it",
        "add a source at or before layer {layer} to {field}, or set compress_ratios[{layer}] to 0",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-015",
        "rule ratio-equals-source",
        "layer {layer} has compress ratio {ratio}, but its KV source, layer {source}, has ratio {source_ratio}",
        "make compress_ratios constant from each id of kv_source_layer_ids to the next, or list layer {layer} there",
        _SHARING + " A consumer reads records made with its source's ratio, so the two must be equal.",
    ),
    Entry(
        "E-CONFIG-016",
        "rule source-is-compressed",
        "layer {layer} is listed in {field}, but its compress ratio is 0 (window only)",
        "remove {layer} from {field}, or give the layer a ratio of 1 or 2",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-017",
        "rule index-k-sources-are-kv-sources",
        "layer {layer} is in index_k_source_layer_ids but not in kv_source_layer_ids",
        "index keys are made from the compressed latent, so list only KV sources",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-018",
        "rule index-k-segment-inside-kv-segment",
        "layer {layer} starts a KV segment inside the index-K segment of layer {source}",
        "add {layer} to index_k_source_layer_ids",
        _SHARING + " Index keys of one segment describe records of one cache.",
    ),
    Entry(
        "E-CONFIG-019",
        "rule top-k-segment-inside-index-k-segment",
        "layer {layer} starts an index-K segment inside the top-k segment of layer {source}",
        "add {layer} to index_source_layer_ids",
        _SHARING + " A selected index list refers to the records of one cache.",
    ),
    Entry(
        "E-CONFIG-020",
        "rule n-pre-is-kv-source",
        "layer {layer} is the first with compress ratio 1, but it is not in kv_source_layer_ids",
        "add {layer} to kv_source_layer_ids: the decoder half starts there and needs its own compressed KV",
        _SHARING,
    ),
    Entry(
        "E-CONFIG-021",
        "rule candidate-source-is-index-source",
        "candidate_source_layer_id is {layer}, which is not in index_source_layer_ids",
        "name an index source, or null to switch candidate blocks off",
        "Spec §2.8: candidates come from its scores.",
    ),
    Entry(
        "E-CONFIG-022",
        "rule candidate-consumer-ratio",
        "layer {layer} selects among the candidates of layer {source}, but its ratio is {ratio}, not {source_ratio}",
        "give index sources after candidate_source_layer_id the ratio of the candidate source",
    ),
    Entry(
        "E-CONFIG-023",
        "rule candidates-cover-top-k",
        "candidate_topk_blocks * candidate_block_size = {blocks} * {block} is less than index_topk = {top_k}",
        "raise candidate_topk_blocks or lower index_topk",
        "Spec §1.4: N_c * b_c >= k_I, otherwise a consumer could not fill its list.",
    ),
    Entry(
        "E-CONFIG-024",
        "rule candidate-blocks-multiple-of-8",
        "candidate_topk_blocks is {blocks}; it must be a multiple of 8",
        "use {lower} or {upper}",
    ),
    Entry(
        "E-CONFIG-025",
        "rule candidate-block-divides-page",
        "candidate_block_size {block} does not divide {records}, the records of a page (128 tokens) at ratio {ratio}",
        "use a power of two up to {records}",
        "Spec §2.8: a block must not cross a page.",
    ),
    Entry(
        "E-CONFIG-026",
        "rule heads-divisible-by-groups",
        "num_attention_heads {heads} is not divisible by o_groups {groups}",
        "choose o_groups among the divisors of {heads}",
    ),
    Entry(
        "E-CONFIG-027",
        "rule codec-divisibility",
        "{field} is {value}; it must be a multiple of {group}: {reason}",
        "use a multiple of {group}",
        "Spec §0.4: one scale covers 16 or 32 consecutive elements and must not straddle rows.",
    ),
    Entry(
        "E-CONFIG-028",
        "rule rotary-width",
        "qk_rope_head_dim is {value}; it must be even and at most {field} = {limit}",
        "lower qk_rope_head_dim",
    ),
    Entry(
        "E-CONFIG-029",
        "rule experts-per-token",
        "{field} is {value}, more than the {experts} experts of {experts_field}",
        "lower {field}",
    ),
    Entry(
        "E-CONFIG-030",
        "rule layer-ids-ascending",
        "{field} is {value}; it must list different layer ids in ascending order, each in [0, {layers})",
        "sort {field}, remove repeated ids and ids that are no backbone layer",
    ),
    Entry(
        "E-CONFIG-031",
        "rule token-id-in-vocabulary",
        "{field} is {value}; it must be in [0, vocab_size = {vocab})",
        "correct {field}",
    ),
    Entry(
        "E-CONFIG-032",
        "rule engram-rows",
        "engram_num_embeddings is {value}, but the primes above engram_vocab_size give {expected}",
        "set it to {expected}, or correct engram_vocab_size, engram_n_heads or engram_max_ngram_size",
        "Spec §4.3: a table has as many rows as the sum of its hash primes.",
    ),
    Entry(
        "E-CONFIG-033",
        "rule yarn-range",
        "rope_scaling has beta_fast {fast} and beta_slow {slow}; beta_fast must be greater than beta_slow",
        "swap them or remove rope_scaling",
    ),
    Entry(
        "E-CONFIG-034",
        "Engram token map missing",
        "the configuration has Engram layers, but {folder} has neither engram_token_map.json nor tokenizer.json",
        "put one of the two beside config.json",
        "Spec §4.1: n-grams are hashed over compressed token ids.",
    ),
    Entry(
        "E-CONFIG-035",
        "Engram token map malformed",
        "{path}: {reason}",
        "the file must be a JSON list of {vocab} integers, each in [0, {compressed}) (spec §12.2)",
    ),
    Entry(
        "E-CONFIG-036",
        "Engram token map has another size",
        "the token map of {path} has {count} compressed ids; engram_compressed_vocab_size is {expected}",
        "set engram_compressed_vocab_size to {count}, or use the tokenizer that the model was trained with",
        "The hash multipliers are derived from this size (spec §4.3): a wrong one gives wrong rows everywhere.",
    ),
    Entry(
        "E-CONFIG-037",
        "Engram token maps disagree",
        "engram_token_map.json gives id {id} the compressed id {map_value}, tokenizer.json gives {tokenizer_value}",
        "delete engram_token_map.json, or replace the tokenizer.json that does not belong to the model",
    ),
    Entry(
        "E-CONFIG-038",
        "tokenizer unreadable",
        "{path} cannot be read as a tokenizer: {reason}",
        "replace it by the tokenizer.json of the model",
    ),
    Entry(
        "E-CONFIG-039",
        "rule tokenizer-fits-vocabulary",
        "{path} has {count} ids, more than vocab_size = {vocab}",
        "use the tokenizer of this model",
    ),
    Entry(
        "E-CONFIG-040",
        "rule compressed-vocabulary",
        "engram_compressed_vocab_size is {value}, more than vocab_size = {vocab}",
        "lower engram_compressed_vocab_size: a class holds at least one token",
    ),
)
