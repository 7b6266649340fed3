"""The enumeration of checkpoint tensors (spec §10) against the published counts."""

from __future__ import annotations

import time

import pytest

from dinfc.frontend.checkpoint import expected_tensors, normalize_name, summarize
from frontend_support import changed, example_config


def test_full_size_is_96085_tensors_and_475_24_gib() -> None:
    config = example_config("v41-flash")
    start = time.perf_counter()
    summary = summarize(expected_tensors(config))
    assert time.perf_counter() - start < 2
    assert summary.tensors == 96_085
    assert f"{summary.nbytes / 2**30:.2f}" == "475.24"
    assert summary.tensors_by_role == {"backbone": 93_418, "draft": 2_401, "image": 3, "vision": 263}


def test_tiny_is_884_tensors_and_861_without_vision() -> None:
    config = example_config()
    assert summarize(expected_tensors(config)).tensors == 884
    bare = summarize(expected_tensors(config, vision=False))
    assert (bare.tensors, bare.nbytes) == (861, 3_825_828)


def test_names_are_unique_and_a_scale_follows_its_weight() -> None:
    tensors = list(expected_tensors(example_config("v41-flash")))
    assert len({t.name for t in tensors}) == len(tensors)
    for previous, tensor in zip([None, *tensors], tensors, strict=False):
        if tensor.is_scale:
            assert previous is not None and previous.name == tensor.name.removesuffix(".scale") + ".weight"
            assert previous.codec == tensor.codec and tensor.dtype == "F8_E8M0"
        if tensor.dtype in ("F8_E4M3", "I8"):
            assert tensor.name.endswith(".weight")


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("layers.0.hc_attn_fn", "F32", (24, 20480)),
        ("layers.7.attn.wo_a.weight", "F8_E4M3", (8192, 4096)),
        ("layers.7.attn.wo_a.scale", "F8_E8M0", (256, 128)),
        ("layers.14.attn.compressor.wgate.weight", "BF16", (512, 5120)),
        ("layers.36.attn.indexer.wq_b.weight", "F8_E4M3", (4096, 1280)),
        ("layers.20.attn.indexer.wk.weight", "BF16", (128, 512)),
        ("layers.14.engram.embed.weight", "F8_E4M3", (384_016_682, 256)),
        ("layers.14.engram.embed.scale", "F8_E8M0", (384_016_682, 8)),
        ("layers.1.engram.wkv.weight", "F8_E4M3", (25600, 6144)),
        ("layers.39.ffn.experts.383.w2.weight", "I8", (5120, 1152)),
        ("layers.39.ffn.experts.383.w2.scale", "F8_E8M0", (5120, 72)),
        ("layers.0.ffn.gate.bias_vl", "F32", (384,)),
        ("mtp.2.ffn.gate.weight", "BF16", (128, 5120)),
        ("mtp.0.main_proj.weight", "F8_E4M3", (5120, 15360)),
        ("mtp.2.markov_head.head.weight", "BF16", (129280, 256)),
        ("mtp.2.confidence_head.proj.weight", "BF16", (1, 5376)),
        ("vision.blocks.31.mlp.w1.weight", "BF16", (5632, 1024)),
        ("vision.patch_embed.proj.weight", "BF16", (1024, 588)),
        ("aligner.w1.weight", "BF16", (5120, 9216)),
        ("image_newline", "BF16", (5120,)),
    ],
)
def test_rows_of_the_tables_of_section_10(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    found = {t.name: t for t in expected_tensors(example_config("v41-flash"))}[name]
    assert (found.dtype, found.shape) == (dtype, shape)


def test_what_only_some_layers_own() -> None:
    names = {t.name for t in expected_tensors(example_config("v41-flash"))}
    owners = {
        "attn.compressor.wkv.weight": [2, 8, 14, 20],
        "attn.compressor.wgate.weight": [2, 8, 14],
        "attn.indexer.weights_proj.weight": [2, 8, 14, 20, 24, 28, 32, 36],
        "attn.indexer.k_norm.weight": [2, 8, 14, 20],
        "engram.q_weight": [1, 14],
    }
    for suffix, layers in owners.items():
        assert [i for i in range(40) if f"layers.{i}.{suffix}" in names] == layers
        assert not any(name.startswith("mtp.") and name.endswith(suffix) for name in names)
    assert not any("embed" in name or "head.weight" in name for name in names if name.startswith(("mtp.0", "mtp.1")))


def test_one_draft_layer_is_the_first_and_the_last() -> None:
    config = changed(num_nextn_predict_layers=1, compress_ratios=[0, 0, 2, 2, 2, 1, 1, 1, 1, 0])
    names = {t.name for t in expected_tensors(config)}
    assert {"mtp.0.main_norm.weight", "mtp.0.confidence_head.proj.weight"} <= names


def test_two_shared_experts_are_concatenated_along_the_width() -> None:
    shapes = {t.name: t.shape for t in expected_tensors(changed(n_shared_experts=2))}
    assert shapes["layers.0.ffn.shared_experts.w1.weight"] == (128, 128)
    assert shapes["layers.0.ffn.shared_experts.w2.scale"] == (4, 4)


def test_the_optional_prefix_is_dropped() -> None:
    assert normalize_name("model.layers.0.hc_attn_fn") == normalize_name("layers.0.hc_attn_fn") == "layers.0.hc_attn_fn"
