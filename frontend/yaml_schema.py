"""The schema of model.yaml (design section 3): which keys there are, of which type, with which defaults.

Keys appear here together with the capability that they steer; a key that nothing reads is a defect.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

MODELS = ("deepseek-v4.1-flash",)
CACHE_FORMATS = ("fp4", "mxfp8")
CPU_ISAS = ("avx2", "avx512")

_UNITS = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+)\s*([A-Za-z]*)")


def parse_size(value: object) -> int:
    """Bytes of 4096, "4096", "64KiB", "64MiB", "2GiB" or "1TiB". Raises ValueError for anything else."""
    if type(value) is int:
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise ValueError("a size such as 4096, 64KiB, 64MiB or 2GiB")
    return int(match[1]) * _UNITS[match[2]]


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+\s*([KMGT]iB|B)?$"}]}
    ),
]
Count = Annotated[int, Field(gt=0)]

_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(BaseModel):
    """Bounds of one step and of one sequence, per rank."""

    model_config = _STRICT
    max_seqs: Count = Field(default=8, description="sequences in one step")
    max_tokens: Count = Field(default=512, description="token rows in one step")
    max_len: Count | None = Field(
        default=None, description="tokens of one sequence; default min(4096, the model's limit)"
    )
    score_bytes: Size = Field(default=64 * 2**20, description="bytes of index scores held at once; rows go in chunks")


class Buckets(BaseModel):
    """Row counts that get their own memory plan; results never depend on them."""

    model_config = _STRICT
    tokens: Annotated[list[Count], Field(min_length=1)] | None = Field(
        default=None,
        description="ascending; max_tokens is appended if it is not the last; default 1, 8, 64, ... max_tokens",
    )


class Cache(BaseModel):
    """The paged cache."""

    model_config = _STRICT
    main: Literal["fp4", "mxfp8"] | None = Field(
        default=None, description="format of the main KV; default from config.json"
    )
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="share of free memory that pages may take"
    )


class Parallel(BaseModel):
    """Ranks. Only one rank is supported so far."""

    model_config = _STRICT
    dp: Count = 1
    cp: Count = 1
    ep: Count = 1


class Cpu(BaseModel):
    """What is particular to the target cpu."""

    model_config = _STRICT
    isa: Literal["avx2", "avx512"] | None = Field(default=None, description="instruction set; default this machine's")


class ModelYaml(BaseModel):
    """model.yaml as written, before defaults are resolved."""

    model_config = ConfigDict(**_STRICT, title="dinfc model.yaml")
    model: str = Field(description=f"one of {', '.join(MODELS)}")
    config: str = Field(description="Hugging Face config.json, relative to this file")
    target: str | None = Field(default=None, description="cpu, sm90, sm100 or ascend950; --target overrides it")
    parallel: Parallel = Parallel()
    limits: Limits = Limits()
    buckets: Buckets = Buckets()
    cache: Cache = Cache()
    cpu: Cpu = Cpu()


def section_keys(path: tuple[str, ...]) -> tuple[str, ...]:
    """Keys that the schema has under `path`: () for the top level, ("limits",) and so on."""
    fields = ModelYaml.model_fields
    for name in path:
        section = fields[name].annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return ()
        fields = section.model_fields
    return tuple(fields)
