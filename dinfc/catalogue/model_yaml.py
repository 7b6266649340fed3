"""Errors of model.yaml: syntax and schema (001-009), values and combinations of keys (010 onwards)."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry("E-YAML-001", "model.yaml not found", "there is no file {path}", "correct the path"),
    Entry(
        "E-YAML-002",
        "not YAML",
        "{path} is not YAML: {reason}",
        "correct the file there; it must be a mapping of keys to values, indented with spaces",
    ),
    Entry(
        "E-YAML-003",
        "unknown key",
        "unknown key {key}{where}",
        "{hint}",
        "No key is accepted and ignored: each one steers something, so a name that nothing reads is a mistake.",
    ),
    Entry("E-YAML-004", "wrong type", "{key} is {value}; it must be {expected}", "correct the value of {key}"),
    Entry("E-YAML-005", "key given twice", "key {key} is given twice", "remove one of the two"),
    Entry("E-YAML-006", "key missing", "required key {key} is missing", "add {key}: {expected}"),
    Entry("E-YAML-007", "value out of range", "{key} is {value}; it must be {expected}", "correct the value of {key}"),
    Entry(
        "E-YAML-010",
        "parallel is not yet supported",
        "parallel.{key} is {value}; only 1 is supported so far",
        "remove the key parallel, or set dp, cp and ep to 1",
    ),
    Entry(
        "E-YAML-011",
        "buckets not ascending",
        "buckets.tokens is {value}; it must be strictly ascending",
        "sort the list and remove repeated sizes",
    ),
    Entry(
        "E-YAML-012",
        "bucket above the row limit",
        "buckets.tokens ends with {last}, more than limits.max_tokens = {limit}",
        "lower the last bucket to {limit}, or raise limits.max_tokens",
    ),
    Entry(
        "E-YAML-013",
        "length above the model's",
        "limits.max_len is {value}, more than max_position_embeddings = {limit} of config.json",
        "lower limits.max_len to at most {limit}",
    ),
    Entry(
        "E-YAML-014",
        "rows fewer than sequences",
        "limits.max_tokens is {tokens}, less than limits.max_seqs = {seqs}",
        "raise limits.max_tokens or lower limits.max_seqs: a decode step has at least one row for each sequence",
    ),
    Entry(
        "E-YAML-016",
        "no target",
        "neither model.yaml nor --target names a target",
        "add `target: cpu` or give --target",
    ),
    Entry(
        "E-YAML-017",
        "key belongs to another target",
        "key {key} is only for target {owner}, but the target is {target}",
        "remove {key}, or compile for {owner}",
    ),
    Entry("E-YAML-018", "unknown model", "model is {value}; the models that dinfc knows are: {known}", "{hint}"),
)
