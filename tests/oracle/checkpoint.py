"""Spec §10: read (and, for tests, write) a checkpoint directory in Hugging Face safetensors format."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from oracle.weights import strip_prefix

INDEX_NAME = "model.safetensors.index.json"


def read_config(directory: str | Path) -> dict[str, Any]:
    """config.json as it is."""
    config: dict[str, Any] = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    return config


def read_tensors(directory: str | Path) -> dict[str, Tensor]:
    """All tensors listed in the index, names without the optional ``model.`` prefix, dtypes as stored."""
    root = Path(directory)
    index: dict[str, str] = json.loads((root / INDEX_NAME).read_text(encoding="utf-8"))["weight_map"]
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(index.values())):
        stored = load_file(root / shard)
        for name in (n for n, s in index.items() if s == shard):
            short = strip_prefix(name)
            if short in tensors:
                raise ValueError(f"tensor {short} occurs twice")
            tensors[short] = stored[name]
    return tensors


def read_checkpoint(directory: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(config, tensors) of a checkpoint directory; the token map is ``token_map.read_token_map``."""
    return read_config(directory), read_tensors(directory)


def write_checkpoint(
    directory: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    token_map: Sequence[int] | None = None,
    shards: int = 2,
    prefix: str = "",
) -> None:
    """Write config.json, the index, ``shards`` shards and, when given, engram_token_map.json."""
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    (root / "config.json").write_text(json.dumps(config), encoding="utf-8")
    parts: list[dict[str, Tensor]] = [{} for _ in range(shards)]
    # A weight and its scale share a stem, hence a shard.
    stems = sorted({name.removesuffix(".weight").removesuffix(".scale") for name in tensors})
    place = {stem: i * shards // len(stems) for i, stem in enumerate(stems)}
    weight_map: dict[str, str] = {}
    total = 0
    for name, t in tensors.items():
        part = place[name.removesuffix(".weight").removesuffix(".scale")]
        parts[part][prefix + name] = t.contiguous()
        weight_map[prefix + name] = f"model-{part + 1:05d}-of-{shards:05d}.safetensors"
        total += t.numel() * t.element_size()
    for i, content in enumerate(parts):
        save_file(content, root / f"model-{i + 1:05d}-of-{shards:05d}.safetensors")
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (root / INDEX_NAME).write_text(json.dumps(index), encoding="utf-8")
    if token_map is not None:
        (root / "engram_token_map.json").write_text(json.dumps(list(token_map)), encoding="utf-8")
