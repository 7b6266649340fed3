"""Reads config.json: required values of §0.6, types, then the validity rules; and writes it back in canonical form.

This is the module to import configurations from; the class itself is in `model_config`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from dinfc.diagnostics import DinfcError, Place
from dinfc.frontend import rules
from dinfc.frontend.json_text import line_of, parse_object
from dinfc.frontend.model_config import PAGE_TOKENS, LayerTraits, ModelConfig, VisionConfig, YarnScaling

__all__ = [
    "PAGE_TOKENS",
    "LayerTraits",
    "ModelConfig",
    "VisionConfig",
    "YarnScaling",
    "canonical_json",
    "config_from_json",
    "load_config",
]

KeyPath = tuple[str, ...]

# Fields whose value this model family fixes (§0.6, "must be"). `hc_shifted`, `dspark_target_attn_input` and
# `tie_word_embeddings` may be absent; another value would mean mathematics that is not implemented.
_FIXED: Mapping[KeyPath, object] = {
    ("architectures",): ["DeepseekV41ForCausalLM"],
    ("model_type",): "deepseek_v41",
    ("dtype",): "bfloat16",
    ("quantization_config", "quant_method"): "fp8",
    ("quantization_config", "activation_scheme"): "dynamic",
    ("quantization_config", "weight_block_size"): [32, 32],
    ("quantization_config", "scale_fmt"): "ue8m0",
    ("quantization_config", "expert_dtype"): "fp4",
    ("text_config", "num_key_value_heads"): 1,
    ("text_config", "hidden_act"): "silu",
    ("text_config", "attention_bias"): False,
    ("text_config", "attention_dropout"): 0.0,
    ("text_config", "scoring_func"): "sqrtsoftplus",
    ("text_config", "topk_method"): "noaux_tc",
    ("text_config", "norm_topk_prob"): True,
}
_FIXED_OPTIONAL: Mapping[KeyPath, object] = {
    ("text_config", "tie_word_embeddings"): False,
    ("text_config", "hc_shifted"): True,
    ("text_config", "dspark_target_attn_input"): True,
    ("text_config", "rope_scaling", "rope_type"): "yarn",
}
_TOP_FIELDS = ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id")
_ABSENT = object()
_EXPECTED = {
    "int_type": "it must be an integer",
    "float_type": "it must be a number",
    "bool_type": "it must be true or false",
    "tuple_type": "it must be a list of integers",
    "model_type": "it must be an object",
}


def load_config(path: Path | str) -> ModelConfig:
    """The configuration in the Hugging Face config.json `path`.

    Raises DinfcError: E-CONFIG-004 (no file), 005 (not JSON), 001 to 003 (fields), 010 onwards (validity rules, §1.4).
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise DinfcError("E-CONFIG-004", path=path) from None
    except UnicodeDecodeError as error:
        raise DinfcError("E-CONFIG-005", place=path, path=path, reason=str(error)) from None
    try:
        raw = parse_object(text)
    except json.JSONDecodeError as error:
        raise DinfcError("E-CONFIG-005", place=Place(str(path), error.lineno), path=path, reason=error.msg) from None
    except (ValueError, RecursionError) as error:
        raise DinfcError("E-CONFIG-005", place=path, path=path, reason=str(error)) from None
    return config_from_json(raw, lambda key: Place(str(path), line_of(text, key)))


def config_from_json(
    raw: Mapping[str, object], locate: Callable[[KeyPath], Place | None] = lambda _: None
) -> ModelConfig:
    """The configuration in parsed JSON of Hugging Face form. `locate` gives the place of a key for messages.

    Raises DinfcError E-CONFIG-001 to 003 and 010 onwards.
    """
    _check_fixed(raw, locate)
    text = raw["text_config"]
    assert isinstance(text, dict)  # _check_fixed has looked inside it
    flat: dict[str, object] = {key: raw[key] for key in _TOP_FIELDS if key in raw}
    flat |= {key: value for key, value in text.items() if key in ModelConfig.model_fields and key not in _TOP_FIELDS}
    if flat.get("index_k_source_layer_ids") is None:
        flat["index_k_source_layer_ids"] = flat.get("kv_source_layer_ids", [])
    if raw.get("vision_config") is not None:
        flat["vision"] = raw["vision_config"]
    try:
        config = ModelConfig.model_validate({key: _tuples(value) for key, value in flat.items()})
    except ValidationError as error:
        raise _field_error(error, locate) from None
    rules.check(config, lambda field: locate(_key_path(field)))
    return config


def canonical_json(config: ModelConfig) -> str:
    """config.json that `load_config` reads back as an equal configuration; the same bytes for equal configurations."""
    fields = config.model_dump(exclude_none=True)
    raw: dict[str, object] = {key: fields.pop(key) for key in _TOP_FIELDS}
    vision = fields.pop("vision", None)
    if vision is not None:
        raw["vision_config"] = vision
    if "rope_scaling" in fields:
        fields["rope_scaling"]["rope_type"] = "yarn"
    raw["text_config"] = fields
    for key, value in _FIXED.items():
        node: dict[str, object] = raw
        for name in key[:-1]:
            inner = node.setdefault(name, {})
            assert isinstance(inner, dict)
            node = inner
        node[key[-1]] = value
    return json.dumps(raw, indent=2, sort_keys=True) + "\n"


def _check_fixed(raw: Mapping[str, object], locate: Callable[[KeyPath], Place | None]) -> None:
    for section in ("quantization_config", "text_config"):
        if section not in raw:
            raise DinfcError("E-CONFIG-001", place=locate(()), field=section, hint="it is an object")
        if not isinstance(raw[section], dict):
            raise DinfcError(
                "E-CONFIG-002",
                place=locate((section,)),
                field=section,
                value=json.dumps(raw[section]),
                expected=_EXPECTED["model_type"],
            )
    for table, optional in ((_FIXED, False), (_FIXED_OPTIONAL, True)):
        for key, required in table.items():
            value: object = raw
            for name in key:
                value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
            field = ".".join(key)
            if value is _ABSENT:
                if not optional or (key[-1] == "rope_type" and _has_scaling(raw)):
                    raise DinfcError(
                        "E-CONFIG-001", place=locate(key[:-1]), field=field, hint=f"it must be {json.dumps(required)}"
                    )
            elif not _same(value, required):
                raise DinfcError(
                    "E-CONFIG-003",
                    place=locate(key),
                    field=field,
                    value=json.dumps(value),
                    required=json.dumps(required),
                )


def _has_scaling(raw: Mapping[str, object]) -> bool:
    text = raw["text_config"]
    return isinstance(text, dict) and isinstance(text.get("rope_scaling"), dict)


def _same(value: object, required: object) -> bool:
    """Equal as JSON: 0 and 0.0 are, 1 and true are not."""
    return value == required and isinstance(value, bool) == isinstance(required, bool)


def _tuples(value: object) -> object:
    """Lists become tuples, so that the configuration is hashable."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _key_path(field: str) -> KeyPath:
    """Where a (dotted) field of ModelConfig is in config.json."""
    first, *rest = field.split(".")
    if first in _TOP_FIELDS:
        return (first, *rest)
    return ("vision_config", *rest) if first == "vision" else ("text_config", first, *rest)


def _field_error(error: ValidationError, locate: Callable[[KeyPath], Place | None]) -> DinfcError:
    """The first finding of pydantic in the words of the catalogue."""
    first = error.errors(include_url=False)[0]
    names = [str(part) for part in first["loc"] if isinstance(part, str) and part not in ("YarnScaling",)]
    key = _key_path(".".join(names))
    index = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
    kind = first["type"]
    if kind == "missing":
        known = YarnScaling.model_fields if "rope_scaling" in names else ModelConfig.model_fields
        hint = "see spec §0.6" if names[-1] not in known else "every V4.1 configuration has it (spec §0.6)"
        return DinfcError("E-CONFIG-001", place=locate(key[:-1]), field=".".join(key), hint=hint)
    context = first.get("ctx", {})
    expected = _EXPECTED.get(kind, first["msg"])
    if "gt" in context or "ge" in context:
        expected = (
            f"it must be greater than {context['gt']}" if "gt" in context else f"it must be at least {context['ge']}"
        )
    return DinfcError(
        "E-CONFIG-002",
        place=locate(key),
        field=".".join(key) + index,
        value=json.dumps(first["input"], default=str),
        expected=expected,
    )
