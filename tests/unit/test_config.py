"""config.json: what is derived from it, and one named error for each way in which it can be wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dinfc.frontend.config import canonical_json, config_from_json, load_config
from frontend_support import EXAMPLES, changed, error_of, example_config, example_json

FULL = "v41-flash"


def test_the_full_size_config_is_the_published_one() -> None:
    c = example_config(FULL)
    assert (c.n_pre, c.backtrack, c.window_ring, c.compress_ring) == (20, 6, 134, 7)
    assert c.index_k_source_layer_ids == c.kv_source_layer_ids == (2, 8, 14, 20)


def test_tiny_sharing_table_is_the_one_of_the_spec() -> None:
    c = example_config()
    layers = range(c.num_hidden_layers)
    assert [c.ratio(i) for i in layers] == [0, 0, 2, 2, 2, 1, 1, 1, 1]
    assert [c.kv_source(i) for i in layers] == [None, None, 2, 2, 4, 5, 5, 5, 5]
    assert [c.index_source(i) for i in layers] == [None, None, 2, 2, 4, 5, 5, 7, 7]
    assert [c.index_k_source(i) for i in layers] == [c.kv_source(i) for i in layers]
    assert [i for i in layers if c.is_candidate_source(i)] == [5]
    assert [i for i in layers if c.is_candidate_consumer(i)] == [7]
    assert [i for i in layers if c.has_engram(i)] == [1, 4]
    assert c.kv_source(9) is None and c.index_source(10) is None  # draft layers share nothing
    assert len({c.traits(i) for i in layers}) == 8


def test_full_sharing_table_is_the_one_of_the_spec() -> None:
    c = example_config(FULL)
    assert [c.kv_source(i) for i in (2, 7, 8, 13, 14, 19, 20, 39)] == [2, 2, 8, 8, 14, 14, 20, 20]
    assert [c.index_source(i) for i in (23, 24, 27, 28, 31, 32, 35, 36, 39)] == [20, 24, 24, 28, 28, 32, 32, 36, 36]
    assert [i for i in range(40) if c.is_candidate_consumer(i)] == [24, 28, 32, 36]


@pytest.mark.parametrize("name", ["tiny-test", "tiny", "production-shape", FULL])
def test_canonical_text_reads_back_as_the_same_config(name: str, tmp_path: Path) -> None:
    config = example_config(name)
    path = tmp_path / "config.json"
    path.write_text(canonical_json(config), encoding="utf-8")
    again = load_config(path)
    assert again == config and hash(again) == hash(config)
    assert canonical_json(again) == canonical_json(config)


def test_optional_fields_have_the_defaults_of_the_spec() -> None:
    raw = example_json()
    del raw["text_config"]["rope_scaling"], raw["text_config"]["candidate_source_layer_id"], raw["vision_config"]
    raw["text_config"]["unknown_to_us"] = {"a": 1}
    c = config_from_json(raw)
    assert c.rope_scaling is None and c.candidate_source_layer_id is None and c.vision is None
    assert c.use_fp4_sparse_kv and not any(c.is_candidate_consumer(i) for i in range(9))


def test_a_model_without_engram_or_draft_needs_none_of_their_fields() -> None:
    raw = example_json()
    text = raw["text_config"]
    for key in [k for k in text if k.startswith(("engram_", "dspark_", "num_nextn"))]:
        del text[key]
    text["compress_ratios"] = text["compress_ratios"][:9]
    c = config_from_json(raw)
    assert c.engram_rows == {} and c.backtrack == 1 and c.num_nextn_predict_layers == 0


# (what text_config gets, the code): the rules of §1.4 and their kin
BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 0]}, "E-CONFIG-010"),
    ({"compress_ratios": [0, 0, 3, 3, 3, 1, 1, 1, 1, 0, 0]}, "E-CONFIG-011"),
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0]}, "E-CONFIG-012"),
    ({"kv_source_layer_ids": [4, 2, 5]}, "E-CONFIG-013"),
    ({"kv_source_layer_ids": [2, 4, 5, 9]}, "E-CONFIG-013"),
    ({"index_source_layer_ids": [2, 2, 4, 5, 7]}, "E-CONFIG-013"),
    ({"kv_source_layer_ids": [4, 5], "index_source_layer_ids": [4, 5, 7]}, "E-CONFIG-014"),
    ({"index_source_layer_ids": [4, 5, 7]}, "E-CONFIG-014"),
    ({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 2, 1, 0, 0]}, "E-CONFIG-015"),  # ratio unlike its KV source's
    ({"compress_ratios": [0, 0, 2, 0, 2, 1, 1, 1, 1, 0, 0]}, "E-CONFIG-015"),  # a gap in a segment
    ({"kv_source_layer_ids": [1, 2, 4, 5]}, "E-CONFIG-016"),
    ({"index_source_layer_ids": [0, 2, 4, 5, 7]}, "E-CONFIG-016"),
    ({"index_k_source_layer_ids": [2, 3, 4, 5]}, "E-CONFIG-017"),
    ({"index_k_source_layer_ids": [2, 5]}, "E-CONFIG-018"),
    ({"index_source_layer_ids": [2, 5, 7]}, "E-CONFIG-019"),
    ({"kv_source_layer_ids": [2, 4], "candidate_source_layer_id": None}, "E-CONFIG-020"),
    ({"candidate_source_layer_id": 6}, "E-CONFIG-021"),
    ({"candidate_source_layer_id": 4}, "E-CONFIG-022"),
    ({"candidate_topk_blocks": 8, "candidate_block_size": 8, "index_topk": 65}, "E-CONFIG-023"),
    ({"candidate_topk_blocks": 12}, "E-CONFIG-024"),
    ({"candidate_block_size": 24}, "E-CONFIG-025"),
    ({"o_groups": 3}, "E-CONFIG-026"),
    ({"hidden_size": 120}, "E-CONFIG-027"),
    ({"o_lora_rank": 48}, "E-CONFIG-027"),
    ({"moe_intermediate_size": 40}, "E-CONFIG-027"),
    ({"engram_head_dim": 16}, "E-CONFIG-027"),
    ({"qk_rope_head_dim": 66}, "E-CONFIG-028"),
    ({"qk_rope_head_dim": 31}, "E-CONFIG-028"),
    ({"num_experts_per_tok": 9}, "E-CONFIG-029"),
    ({"dspark_num_experts_per_tok": 5}, "E-CONFIG-029"),
    ({"engram_layer_ids": [4, 1]}, "E-CONFIG-030"),
    ({"dspark_target_layer_ids": [6, 7, 9]}, "E-CONFIG-030"),
    ({"engram_pad_token_id": 512}, "E-CONFIG-031"),
    ({"dspark_noise_token_id": -1}, "E-CONFIG-031"),
    ({"engram_num_embeddings": [660, 865]}, "E-CONFIG-032"),
    ({"engram_compressed_vocab_size": 513}, "E-CONFIG-040"),
    ({"candidate_block_size": None}, "E-CONFIG-001"),
    ({"engram_head_dim": None}, "E-CONFIG-001"),
    ({"dspark_target_layer_ids": []}, "E-CONFIG-001"),
]


@pytest.mark.parametrize(
    ("change", "code"), BROKEN_RULES, ids=[f"{code}-{i}" for i, (_, code) in enumerate(BROKEN_RULES)]
)
def test_a_broken_rule_has_its_own_error(change: dict[str, Any], code: str) -> None:
    assert error_of(lambda: changed(**change)).code == code


FIXED: list[tuple[tuple[str, ...], Any]] = [
    (("architectures",), ["DeepseekV4ForCausalLM"]),
    (("architectures",), []),
    (("model_type",), "deepseek_v4"),
    (("dtype",), "float16"),
    (("quantization_config", "quant_method"), "awq"),
    (("quantization_config", "activation_scheme"), "static"),
    (("quantization_config", "weight_block_size"), [128, 128]),
    (("quantization_config", "scale_fmt"), "float"),
    (("quantization_config", "expert_dtype"), "fp8"),
    (("text_config", "num_key_value_heads"), 2),
    (("text_config", "num_key_value_heads"), True),  # 1 == True in Python, not in JSON
    (("text_config", "hidden_act"), "gelu"),
    (("text_config", "attention_bias"), True),
    (("text_config", "attention_bias"), 0),
    (("text_config", "attention_dropout"), 0.1),
    (("text_config", "scoring_func"), "sigmoid"),
    (("text_config", "topk_method"), "greedy"),
    (("text_config", "norm_topk_prob"), False),
    (("text_config", "tie_word_embeddings"), True),
    (("text_config", "hc_shifted"), False),
    (("text_config", "dspark_target_attn_input"), False),
    (("text_config", "rope_scaling", "rope_type"), "linear"),
]


@pytest.mark.parametrize(("key", "value"), FIXED, ids=[f"{'.'.join(k)}-{i}" for i, (k, _) in enumerate(FIXED)])
def test_a_fixed_value_may_not_differ(key: tuple[str, ...], value: Any) -> None:
    raw = copy.deepcopy(example_json())
    node = raw
    for name in key[:-1]:
        node = node[name]
    node[key[-1]] = value
    error = error_of(lambda: config_from_json(raw))
    assert error.code == "E-CONFIG-003" and ".".join(key) in error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("vocab_size", "512"), ("vocab_size", 512.0), ("vocab_size", True), ("vocab_size", 0), ("hc_eps", "1e-6"),
     ("rms_norm_eps", 0), ("compress_ratios", 3), ("compress_ratios", [0, "0"]), ("rope_scaling", 4),
     ("engram_max_ngram_size", 1), ("num_nextn_predict_layers", -1)],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_range_is_refused(key: str, value: object) -> None:
    error = error_of(lambda: changed(**{key: value}))
    assert error.code == "E-CONFIG-002" and key in error.message


def test_every_required_field_is_missed_by_name() -> None:
    optional = {
        "use_cache", "tie_word_embeddings", "rope_scaling", "candidate_source_layer_id", "model_type",
        "engram_layer_ids", "engram_num_embeddings", "num_nextn_predict_layers",
    }  # fmt: skip
    for key in set(example_json()["text_config"]) - optional:
        raw = example_json()
        del raw["text_config"][key]
        error = error_of(lambda raw=raw: config_from_json(raw))  # type: ignore[misc]
        assert error.code == "E-CONFIG-001" and key in error.message, key


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [("{\n  \"a\": 1,\n}", "E-CONFIG-005", 3), ("[]", "E-CONFIG-005", None), ("", "E-CONFIG-005", 1),
     ('{"a": NaN}', "E-CONFIG-005", None), ('{"a": 1, "a": 2}', "E-CONFIG-005", None)],
)  # fmt: skip
def test_a_file_that_is_no_json_object(tmp_path: Path, text: str, code: str, line: int | None) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    error = error_of(lambda: load_config(path))
    assert error.code == code and error.place is not None
    assert error.place.line == line


def test_no_file() -> None:
    assert error_of(lambda: load_config(EXAMPLES / "nothing.json")).code == "E-CONFIG-004"
    assert error_of(lambda: load_config(EXAMPLES)).code == "E-CONFIG-004"


def test_the_place_is_the_line_of_the_key_even_where_the_name_occurs_twice(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    text = (EXAMPLES / FULL / "config.json").read_text(encoding="utf-8")
    path.write_text(text.replace('"patch_size": 14', '"patch_size": 0'), encoding="utf-8")
    lines = path.read_text(encoding="utf-8").split("\n")
    place = error_of(lambda: load_config(path)).place
    assert place is not None and place.line is not None and '"patch_size"' in lines[place.line - 1]
    path.write_text(text.replace('"hidden_size": 1024', '"hidden_size": "x"'), encoding="utf-8")
    place = error_of(lambda: load_config(path)).place
    assert (
        place is not None
        and place.line is not None
        and '"hidden_size": "x"' in path.read_text().split("\n")[place.line - 1]
    )
