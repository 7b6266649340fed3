"""model.yaml -> `Deployment`: schema, defaults, combinations of keys, and the canonical text that a package stores.

`load_model_yaml` is the whole way for commands; `resolve` is its second half, for tests and for other front doors.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from pydantic import ValidationError

from dinfc.diagnostics import DinfcError
from dinfc.frontend.config import ModelConfig, load_config
from dinfc.frontend.yaml_schema import CPU_ISAS, MODELS, Limits, ModelYaml, section_keys
from dinfc.frontend.yaml_text import Document, read_yaml

DEFAULT_MAX_LEN = 4096
_BUCKET_STEP = 8  # default buckets: 1, 8, 64, ... below max_tokens

_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a mapping of keys to values",
    "int_from_float": "an integer",
}


@dataclass(frozen=True)
class Deployment:
    """What to compile: a model.yaml with every default filled in. Sizes are bytes; limits are per rank."""

    model: str
    config: ModelConfig
    target: str
    max_seqs: int
    max_tokens: int
    max_len: int
    score_bytes: int
    buckets: tuple[int, ...]  # ascending; the last one is max_tokens
    cache_main: str  # "fp4" or "mxfp8"
    memory_fraction: float
    cpu_isa: str | None  # "avx2" or "avx512" for target cpu, else None
    config_path: Path = field(compare=False)  # never written into a package


def load_model_yaml(
    path: Path,
    known_targets: Sequence[str],
    *,
    target: str | None = None,
    cpu_isa: str | None = None,
    host_isa: str | None = None,
) -> Deployment:
    """The deployment that `path` describes; `target` and `cpu_isa` are the command line's and win over the file.

    `host_isa` is this machine's instruction set, the default for target cpu. Raises DinfcError: E-YAML-*, E-CONFIG-*,
    E-TARGET-001 to 003.
    """
    document = read_yaml(path)
    written = parse(document)
    config_path = path.parent / written.config
    if not config_path.is_file():
        raise DinfcError("E-CONFIG-004", place=document.place(("config",)), path=config_path)
    config = load_config(config_path)
    return resolve(
        document, written, config, config_path, known_targets, target=target, cpu_isa=cpu_isa, host_isa=host_isa
    )


def parse(document: Document) -> ModelYaml:
    """Checks keys and types. Raises DinfcError E-YAML-003, 004, 006, 007, 010, 018."""
    try:
        written = ModelYaml.model_validate(document.values)
    except ValidationError as error:
        raise _schema_error(error, document) from None
    if written.model not in MODELS:
        hint = _nearest(written.model, MODELS)
        raise DinfcError(
            "E-YAML-018", place=document.place(("model",)), value=written.model, known=", ".join(MODELS), hint=hint
        )
    for axis in ("dp", "cp", "ep"):
        ranks: int = getattr(written.parallel, axis)
        if ranks != 1:
            raise DinfcError("E-YAML-010", place=document.place(("parallel", axis)), key=axis, value=ranks)
    return written


def resolve(
    document: Document,
    written: ModelYaml,
    config: ModelConfig,
    config_path: Path,
    known_targets: Sequence[str],
    *,
    target: str | None = None,
    cpu_isa: str | None = None,
    host_isa: str | None = None,
) -> Deployment:
    """Fills in defaults and checks combinations. Raises DinfcError E-YAML-011 to 017, E-TARGET-001 to 003."""
    chosen = target or written.target
    if chosen is None:
        raise DinfcError("E-YAML-016", place=document.place(()))
    if chosen not in known_targets:
        place = None if target else document.place(("target",))
        known = ", ".join(known_targets)
        raise DinfcError("E-TARGET-001", place=place, target=chosen, known=known, hint=_nearest(chosen, known_targets))
    limits = written.limits
    if limits.max_tokens < limits.max_seqs:
        place = document.place(("limits", "max_tokens"))
        raise DinfcError("E-YAML-014", place=place, tokens=limits.max_tokens, seqs=limits.max_seqs)
    max_len = limits.max_len or min(DEFAULT_MAX_LEN, config.max_position_embeddings)
    if max_len > config.max_position_embeddings:
        place = document.place(("limits", "max_len"))
        raise DinfcError("E-YAML-013", place=place, value=max_len, limit=config.max_position_embeddings)
    return Deployment(
        model=written.model,
        config=config,
        target=chosen,
        max_seqs=limits.max_seqs,
        max_tokens=limits.max_tokens,
        max_len=max_len,
        score_bytes=limits.score_bytes,
        buckets=_buckets(written.buckets.tokens, limits, document),
        cache_main=written.cache.main or ("fp4" if config.use_fp4_sparse_kv else "mxfp8"),
        memory_fraction=written.cache.memory_fraction,
        cpu_isa=_isa(document, written, chosen, cpu_isa, host_isa),
        config_path=config_path,
    )


def canonical_yaml(deployment: Deployment) -> str:
    """The resolved model.yaml that a package stores: no paths, equal bytes for equal deployments.

    It names `config.json`, which the package writer puts beside it (`config.canonical_json`), so it loads again.
    """
    d = deployment
    lines = [
        f"model: {d.model}",
        "config: config.json",
        f"target: {d.target}",
        "parallel: {dp: 1, cp: 1, ep: 1}",
        f"limits: {{max_seqs: {d.max_seqs}, max_tokens: {d.max_tokens}, max_len: {d.max_len}, "
        f"score_bytes: {d.score_bytes}}}",
        f"buckets: {{tokens: [{', '.join(map(str, d.buckets))}]}}",
        f"cache: {{main: {d.cache_main}, memory_fraction: {d.memory_fraction!r}}}",
    ]
    if d.cpu_isa is not None:
        lines.append(f"cpu: {{isa: {d.cpu_isa}}}")
    return "\n".join(lines) + "\n"


def json_schema() -> str:
    """JSON schema of model.yaml, for editors."""
    return json.dumps(ModelYaml.model_json_schema(), indent=2, sort_keys=True) + "\n"


def _buckets(written: list[int] | None, limits: Limits, document: Document) -> tuple[int, ...]:
    """The last bucket equals max_tokens: it is appended where the list ends lower, and a larger one is refused."""
    last = limits.max_tokens
    if written is None:
        sizes: list[int] = []
        while (size := _BUCKET_STEP ** len(sizes)) < last:
            sizes.append(size)
        return (*sizes, last)
    place = document.place(("buckets", "tokens"))
    if any(a >= b for a, b in pairwise(written)):
        raise DinfcError("E-YAML-011", place=place, value=written)
    if written[-1] > last:
        raise DinfcError("E-YAML-012", place=place, last=written[-1], limit=last)
    return tuple(written) if written[-1] == last else (*written, last)


def _isa(document: Document, written: ModelYaml, target: str, override: str | None, host: str | None) -> str | None:
    if target != "cpu":
        if written.cpu.isa is not None:
            raise DinfcError("E-YAML-017", place=document.place(("cpu",)), key="cpu.isa", owner="cpu", target=target)
        if override is not None:
            raise DinfcError("E-YAML-017", key="--cpu-isa", owner="cpu", target=target)
        return None
    if override is not None and override not in CPU_ISAS:
        raise DinfcError("E-TARGET-002", value=override)
    isa = override or written.cpu.isa or host
    if isa is None:
        raise DinfcError("E-TARGET-003")
    return isa


def _nearest(name: str, names: Sequence[str]) -> str:
    """What to write instead of `name`."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"use one of: {', '.join(names)}"


def _schema_error(error: ValidationError, document: Document) -> DinfcError:
    """The finding of pydantic that comes first in the file, in the words of the catalogue."""
    findings = error.errors(include_url=False)
    lines = [document.place([str(part) for part in f["loc"]]).line or 0 for f in findings]
    first = findings[lines.index(min(lines))]
    path = tuple(str(part) for part in first["loc"])
    place, kind, context = document.place(path), first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        siblings = section_keys(path[:-1])
        homes = [section for section in section_keys(()) if path[-1] in section_keys((section,))]
        hint = f"it belongs under {homes[0]}" if homes and len(path) == 1 else _nearest(path[-1], siblings)
        where = f" under {path[0]}" if len(path) > 1 else ""
        return DinfcError("E-YAML-003", place=place, key=path[-1], where=where, hint=hint)
    key = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).lstrip(".")
    if kind == "missing":
        described = ModelYaml.model_fields[path[-1]].description or "see docs"
        return DinfcError("E-YAML-006", place=place, key=key, expected=described)
    value = json.dumps(first["input"], default=str)
    if kind in _EXPECTED:
        return DinfcError("E-YAML-004", place=place, key=key, value=value, expected=_EXPECTED[kind])
    if kind == "value_error":
        return DinfcError("E-YAML-004", place=place, key=key, value=value, expected=str(context["error"]))
    words = {
        "gt": "greater than",
        "ge": "at least",
        "le": "at most",
        "expected": "one of",
        "min_length": "a list of length at least",
    }
    expected = " and ".join(f"{words[name]} {bound}" for name, bound in context.items() if name in words)
    return DinfcError("E-YAML-007", place=place, key=key, value=value, expected=expected or first["msg"])
