"""Every tensor of a V4.1 checkpoint: name, stored dtype, shape, codec (spec §10), enumerated from the configuration.

The order is the order of synthetic shards: globals, backbone layers, draft layers, vision; a scale follows its weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from dinfc.frontend.config import ModelConfig, VisionConfig

StoredDtype = Literal["BF16", "F32", "F8_E4M3", "F8_E8M0", "I8"]
Role = Literal["backbone", "draft", "image", "vision"]
Codec = Literal["bf16", "f32", "wfp8<32x32>", "mxfp8<32>", "mxfp4<32>"]
Shape = tuple[int, ...]

ITEM_BYTES: dict[StoredDtype, int] = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}
OPTIONAL_PREFIXES = ("vision.", "aligner.")  # may be absent as a whole (§10.1)


class TensorSpec(NamedTuple):
    """One tensor of the file.

    `shape` is the stored one (MXFP4 codes are I8 with two per byte). `codec` belongs to the whole value: a weight and
    its scale carry the same one; `is_scale` tells them apart.
    """

    name: str
    dtype: StoredDtype
    shape: Shape
    role: Role
    codec: Codec
    is_scale: bool = False

    @property
    def nbytes(self) -> int:
        """Payload in bytes."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class CheckpointSummary:
    """Numbers of tensors and payload bytes, in all and by role."""

    tensors: int
    nbytes: int
    tensors_by_role: dict[Role, int]
    bytes_by_role: dict[Role, int]


def expected_tensors(config: ModelConfig, vision: bool = True) -> Iterator[TensorSpec]:
    """All tensors in file order; without `vision.*` and `aligner.*` if `vision` is False or the model has none."""
    yield from _globals(config)
    for layer in range(config.num_hidden_layers):
        yield from _backbone_layer(config, layer)
    for draft in range(config.num_nextn_predict_layers):
        yield from _draft_layer(config, draft)
    if vision and config.vision is not None:
        yield from _vision(config.vision, config.hidden_size)


def summarize(tensors: Iterable[TensorSpec]) -> CheckpointSummary:
    """Counts and bytes of `tensors`."""
    counts: Counter[Role] = Counter()
    sizes: Counter[Role] = Counter()
    for tensor in tensors:
        counts[tensor.role] += 1
        sizes[tensor.role] += tensor.nbytes
    return CheckpointSummary(counts.total(), sizes.total(), dict(counts), dict(sizes))


def normalize_name(name: str) -> str:
    """Every name may carry an optional `model.` prefix (§10)."""
    return name.removeprefix("model.")


def _globals(c: ModelConfig) -> Iterator[TensorSpec]:
    for name, shape in (
        ("embed.weight", (c.vocab_size, c.hidden_size)),
        ("head.weight", (c.vocab_size, c.hidden_size)),
        ("norm.weight", (c.hidden_size,)),
    ):
        yield _bf16(name, shape)
    for name in ("image_start", "image_end", "image_newline"):
        yield _bf16(name, (c.hidden_size,), "image")


def _backbone_layer(c: ModelConfig, layer: int) -> Iterator[TensorSpec]:
    prefix = f"layers.{layer}."
    yield from _attention(c, prefix, "backbone")
    attn = prefix + "attn."
    hidden, head = c.hidden_size, c.head_dim
    if c.is_kv_source(layer):
        yield _bf16(attn + "compressor.wkv.weight", (head, hidden))
        if c.ratio(layer) == 2:
            yield _bf16(attn + "compressor.wgate.weight", (head, hidden))
        yield _bf16(attn + "compressor.norm.weight", (head,))
    if c.is_index_source(layer):
        yield from _fp8(attn + "indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank, "backbone")
        yield _bf16(attn + "indexer.weights_proj.weight", (c.index_n_heads, hidden))
    if c.is_index_k_source(layer):
        yield _bf16(attn + "indexer.wk.weight", (c.index_head_dim, head))
        yield _bf16(attn + "indexer.k_norm.weight", (c.index_head_dim,))
    if c.has_engram(layer):
        yield from _engram(c, layer, prefix + "engram.")
    yield from _experts(c, prefix + "ffn.", "backbone", c.n_routed_experts)


def _draft_layer(c: ModelConfig, draft: int) -> Iterator[TensorSpec]:
    prefix, hidden = f"mtp.{draft}.", c.hidden_size
    if draft == 0:
        yield from _fp8(prefix + "main_proj", hidden, len(c.dspark_target_layer_ids) * hidden, "draft")
        yield _bf16(prefix + "main_norm.weight", (hidden,), "draft")
    yield from _attention(c, prefix, "draft")
    assert c.dspark_n_routed_experts is not None and c.dspark_markov_rank is not None  # rules.feature_fields_present
    yield from _experts(c, prefix + "ffn.", "draft", c.dspark_n_routed_experts)
    if draft == c.num_nextn_predict_layers - 1:
        rank = c.dspark_markov_rank
        yield _bf16(prefix + "norm.weight", (hidden,), "draft")
        yield _bf16(prefix + "markov_head.embed.weight", (c.vocab_size, rank), "draft")
        yield _bf16(prefix + "markov_head.head.weight", (c.vocab_size, rank), "draft")
        yield _bf16(prefix + "confidence_head.proj.weight", (1, hidden + rank), "draft")


def _attention(c: ModelConfig, prefix: str, role: Role) -> Iterator[TensorSpec]:
    """Hyper-connections, norms and projections that every layer has."""
    hidden, mixes = c.hidden_size, c.hc_mult * (c.hc_mult + 2)
    for part in ("attn", "ffn"):
        yield TensorSpec(f"{prefix}hc_{part}_fn", "F32", (mixes, c.hc_mult * hidden), role, "f32")
        yield TensorSpec(f"{prefix}hc_{part}_base", "F32", (mixes,), role, "f32")
        yield TensorSpec(f"{prefix}hc_{part}_scale", "F32", (3,), role, "f32")
        yield _bf16(f"{prefix}{part}_norm.weight", (hidden,), role)
    attn, heads_width = prefix + "attn.", c.num_attention_heads * c.head_dim
    yield from _fp8(attn + "wq_a", c.q_lora_rank, hidden, role)
    yield _bf16(attn + "q_norm.weight", (c.q_lora_rank,), role)
    yield from _fp8(attn + "wq_b", heads_width, c.q_lora_rank, role)
    yield from _fp8(attn + "wkv", c.head_dim, hidden, role)
    yield _bf16(attn + "kv_norm.weight", (c.head_dim,), role)
    yield TensorSpec(attn + "attn_sink", "F32", (c.num_attention_heads,), role, "f32")
    yield from _fp8(attn + "wo_a", c.o_groups * c.o_lora_rank, heads_width // c.o_groups, role)
    yield from _fp8(attn + "wo_b", hidden, c.o_groups * c.o_lora_rank, role)


def _experts(c: ModelConfig, prefix: str, role: Role, experts: int) -> Iterator[TensorSpec]:
    hidden, width = c.hidden_size, c.moe_intermediate_size
    yield _bf16(prefix + "gate.weight", (experts, hidden), role)
    yield TensorSpec(prefix + "gate.bias", "F32", (experts,), role, "f32")
    yield TensorSpec(prefix + "gate.bias_vl", "F32", (experts,), role, "f32")
    shared = c.n_shared_experts * width
    for name, n, k in (("w1", shared, hidden), ("w3", shared, hidden), ("w2", hidden, shared)):
        yield from _fp8(f"{prefix}shared_experts.{name}", n, k, role)
    for expert in range(experts):
        for name, n, k in (("w1", width, hidden), ("w3", width, hidden), ("w2", hidden, width)):
            base = f"{prefix}experts.{expert}.{name}"
            yield TensorSpec(base + ".weight", "I8", (n, k // 2), role, "mxfp4<32>")
            yield TensorSpec(base + ".scale", "F8_E8M0", (n, k // 32), role, "mxfp4<32>", True)


def _engram(c: ModelConfig, layer: int, prefix: str) -> Iterator[TensorSpec]:
    assert c.engram_head_dim is not None and c.engram_n_heads is not None  # rules.feature_fields_present
    for name in ("q_weight", "k_weight"):
        yield _bf16(prefix + name, (c.hc_mult, c.hidden_size))
    rows, width = c.engram_rows[layer], c.engram_head_dim
    yield TensorSpec(prefix + "embed.weight", "F8_E4M3", (rows, width), "backbone", "mxfp8<32>")
    yield TensorSpec(prefix + "embed.scale", "F8_E8M0", (rows, width // 32), "backbone", "mxfp8<32>", True)
    lookups = len(c.engram_orders) * c.engram_n_heads
    yield from _fp8(prefix + "wkv", (c.hc_mult + 1) * c.hidden_size, lookups * width, "backbone")


def _vision(v: VisionConfig, hidden: int) -> Iterator[TensorSpec]:
    width = v.hidden_size
    shapes: list[tuple[str, Shape]] = [
        ("vision.patch_embed.proj.weight", (width, 3 * v.patch_size**2)),
        ("vision.patch_embed.proj.bias", (width,)),
    ]
    for block in range(v.num_hidden_layers):
        prefix = f"vision.blocks.{block}."
        shapes += [
            (prefix + "norm1.weight", (width,)),
            (prefix + "norm2.weight", (width,)),
            (prefix + "attn.wqkv.weight", (3 * width, width)),
            (prefix + "attn.wqkv.bias", (3 * width,)),
            (prefix + "attn.wo.weight", (width, width)),
            (prefix + "attn.wo.bias", (width,)),
            (prefix + "mlp.w1.weight", (2 * v.intermediate_size, width)),
            (prefix + "mlp.w2.weight", (width, v.intermediate_size)),
        ]
    shapes += [
        ("vision.norm.weight", (width,)),
        ("aligner.w1.weight", (hidden, v.downsample_ratio**2 * width)),
        ("aligner.w1.bias", (hidden,)),
        ("aligner.w2.weight", (hidden, hidden)),
        ("aligner.w2.bias", (hidden,)),
    ]
    for name, shape in shapes:
        yield _bf16(name, shape, "vision")


def _bf16(name: str, shape: Shape, role: Role = "backbone") -> TensorSpec:
    return TensorSpec(name, "BF16", shape, role, "bf16")


def _fp8(base: str, n: int, k: int, role: Role) -> Iterator[TensorSpec]:
    """`base.weight` e4m3 [n, k] and `base.scale`, one E8M0 for each 32 x 32 block."""
    yield TensorSpec(base + ".weight", "F8_E4M3", (n, k), role, "wfp8<32x32>")
    yield TensorSpec(base + ".scale", "F8_E8M0", (-(-n // 32), -(-k // 32)), role, "wfp8<32x32>", True)
