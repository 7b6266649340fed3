"""Errors of checkpoints (spec §10). They are raised by the compiler and by packages alike."""

from __future__ import annotations

from typing import Final

from dinfc.catalogue.entry import Entry

ENTRIES: Final[tuple[Entry, ...]] = (
    Entry(
        "E-CKPT-001",
        "not a checkpoint directory",
        "{path} is no checkpoint: {reason}",
        "give the folder that holds model.safetensors.index.json (or one .safetensors file) and config.json",
    ),
    Entry(
        "E-CKPT-002",
        "tensor missing",
        "the checkpoint lacks tensor {name}{more}",
        "use the checkpoint that belongs to this configuration; all tensors of a layer must be present",
    ),
    Entry(
        "E-CKPT-003",
        "unexpected tensor",
        "the checkpoint has tensor {name}{more}, which this model does not use",
        "use the checkpoint that belongs to this configuration",
        "Only vision.* and aligner.* may be there or not; any other surplus means another model.",
    ),
    Entry(
        "E-CKPT-004",
        "tensor has a wrong shape",
        "tensor {name} has shape {shape}; the configuration gives {expected}",
        "use the checkpoint that belongs to this configuration",
    ),
    Entry(
        "E-CKPT-005",
        "tensor has a wrong dtype",
        "tensor {name} has dtype {dtype}; expected {expected}",
        "convert the tensor, or use the original checkpoint",
        "F8_E4M3, I8 and F8_E8M0 are strict; BF16 and F32 may replace one another if every value is representable.",
    ),
    Entry("E-CKPT-006", "shard truncated or damaged", "{path} is damaged: {reason}", "download or copy the file again"),
    Entry(
        "E-CKPT-007",
        "cast would lose bits",
        "tensor {name} is stored as {dtype} and has values that {expected} cannot hold",
        "store the tensor as {expected}",
    ),
    Entry(
        "E-CKPT-008",
        "shard missing",
        "{path} is named in model.safetensors.index.json but does not exist",
        "download or copy the missing file",
    ),
    Entry("E-CKPT-009", "index and shards disagree", "{path}: {reason}", "download the index again"),
    Entry(
        "E-CKPT-010",
        "scale in another shard",
        "{name} and its scale are in different files ({first}, {second})",
        "put an Engram table and its scale in one file (spec §10.1)",
    ),
    Entry(
        "E-CKPT-011",
        "tensor name occurs twice",
        "tensor {name} is in {first} and again in {second}",
        "remove one of the two",
    ),
    Entry(
        "E-CKPT-012",
        "checkpoint of another configuration",
        "{path} has {field} = {value}; the package was compiled for {expected}",
        "use the checkpoint that belongs to this package, or compile for this checkpoint's config.json",
        "Most fields leave no trace in tensor names and shapes; a wrong one gives wrong logits and no other error.",
    ),
    Entry(
        "E-CKPT-013",
        "no token map",
        "{path} has neither engram_token_map.json nor tokenizer.json, and the model has Engram layers",
        "put the model's tokenizer.json into the folder",
    ),
    Entry("E-CKPT-014", "token map does not fit", "{path}: {reason}", "use the files that belong to this model"),
    Entry("E-CKPT-015", "tokenizer unreadable", "{path} cannot be used: {reason}", "use the model's tokenizer.json"),
)
