"""The tiny configuration of spec §12.2 and its compression table."""

import copy
from typing import Any

_TINY: dict[str, Any] = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "image_token_id": 509,
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [32, 32],
        "scale_fmt": "ue8m0",
        "expert_dtype": "fp4",
    },
    "text_config": {
        "model_type": "deepseek_v41_text",
        "vocab_size": 512,
        "hidden_size": 128,
        "moe_intermediate_size": 64,
        "num_hidden_layers": 9,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "qk_rope_head_dim": 32,
        "q_lora_rank": 64,
        "o_lora_rank": 32,
        "o_groups": 2,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "swiglu_limit": 10.0,
        "rms_norm_eps": 1e-20,
        "use_cache": True,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
        "rope_theta": 10000,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 1024,
        },
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "sliding_window": 8,
        "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 1, 0, 0],
        "compress_rope_theta": 160000,
        "kv_source_layer_ids": [2, 4, 5],
        "index_source_layer_ids": [2, 4, 5, 7],
        "index_n_heads": 4,
        "index_head_dim": 64,
        "index_topk": 8,
        "candidate_source_layer_id": 5,
        "candidate_topk_blocks": 8,
        "candidate_block_size": 8,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-06,
        "engram_layer_ids": [1, 4],
        "engram_num_embeddings": [660, 864],
        "engram_max_ngram_size": 4,
        "engram_vocab_size": 100,
        "engram_n_heads": 2,
        "engram_head_dim": 32,
        "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": 256,
        "num_nextn_predict_layers": 2,
        "dspark_block_size": 5,
        "dspark_noise_token_id": 510,
        "dspark_target_layer_ids": [6, 7, 8],
        "dspark_markov_rank": 32,
        "dspark_n_routed_experts": 4,
        "dspark_num_experts_per_tok": 2,
    },
    "vision_config": {
        "model_type": "deepseek_v41_vision",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "patch_size": 4,
        "rope_theta": 10000,
        "downsample_ratio": 3,
        "max_image_tokens": 64,
        "min_pixels": 1,
        "max_wh_ratio": None,
    },
}


def tiny_config(**text_overrides: Any) -> dict[str, Any]:
    """A fresh copy; keyword arguments replace or add fields of ``text_config``."""
    config = copy.deepcopy(_TINY)
    config["text_config"].update(text_overrides)
    return config


def tiny_token_map() -> list[int]:
    """old2new[id] = floor(id / 2), 256 compressed ids."""
    return [i // 2 for i in range(512)]
