"""Synthetic checkpoints: random tensors with names, shapes and codecs of a real one (spec §10), streamed.

Matrices N(0, 1/K) with K inputs; lookup tables N(0, 1), a lookup being a product with a one-hot row; norms 1 + 0.1 N;
hyper-connection fn N(0, 1/(mD)), base as in §1.3, scale 1; sinks and biases 0.1 N (0.1 is the standard deviation).
A tensor depends on the seed and its name alone: not on the shards, on the other tensors, or on piece sizes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from dinfc.diagnostics import DinfcError
from dinfc.frontend import codecs
from dinfc.frontend.checkpoint import TensorSpec, expected_tensors
from dinfc.frontend.config import ModelConfig, load_config
from dinfc.frontend.shards import INDEX_FILE, Shard, ShardWriter, index_json, plan_shards
from dinfc.frontend.token_map import MAP_FILE, TOKENIZER_FILE, check_token_map, halving_map, map_of_tokenizer
from dinfc.output import check_vacant, fresh_folder

DEFAULT_SHARD_BYTES = 2 * 2**30
PIECE_ELEMENTS = 2**18  # elements made at a time: what stays in the caches is made fastest

_TABLES = ("embed.weight", "markov_head.embed.weight", "engram.embed.weight")


def synthesize(
    config_path: Path,
    folder: Path,
    seed: int,
    *,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    vision: bool = True,
    tokenizer: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Writes a checkpoint of `config_path` into `folder`, which must not exist or be empty.

    With `tokenizer` (a tokenizer.json whose token map has the configuration's size) it is copied; without one,
    `engram_token_map.json` is written (§12.2). Raises DinfcError: E-CONFIG-*, E-BUILD-002 to 004, E-CLI-005.
    """
    config = load_config(config_path)
    check_vacant(folder)
    if tokenizer is not None:
        if not tokenizer.is_file():
            raise DinfcError("E-CLI-005", path=tokenizer)
        mapping = map_of_tokenizer(tokenizer, config.vocab_size)
        if config.engram_layer_ids:
            check_token_map(mapping, tokenizer, config)
    shards = plan_shards(expected_tensors(config, vision), shard_bytes)
    _check_space(folder, sum(t.nbytes for shard in shards for t in shard.tensors))
    with fresh_folder(folder) as work:
        shutil.copyfile(config_path, work / "config.json")
        if tokenizer is not None:
            shutil.copyfile(tokenizer, work / TOKENIZER_FILE)
        elif config.engram_layer_ids and config.engram_compressed_vocab_size is not None:
            entries = halving_map(config.vocab_size, config.engram_compressed_vocab_size)
            (work / MAP_FILE).write_text(json.dumps(entries, separators=(",", ":")) + "\n", encoding="utf-8")
        for shard in shards:
            _write_shard(work, shard, config, seed)
            progress(shard.name)
        (work / INDEX_FILE).write_text(index_json(shards), encoding="utf-8")


def pieces(
    tensor: TensorSpec, config: ModelConfig, seed: int, piece_elements: int = PIECE_ELEMENTS
) -> Iterator[tuple[bytes, bytes]]:
    """The payload of a tensor, and of its scale where it has one, as consecutive runs of rows.

    Pieces are whole rows, a multiple of 32 of them where scales cover 32 rows.
    """
    if tensor.name.endswith(("_base", "hc_attn_scale", "hc_ffn_scale")):
        yield _constant(tensor, config).tobytes(), b""
        return
    rows = tensor.shape[0]
    width = (tensor.shape[1] if len(tensor.shape) == 2 else 1) * (2 if tensor.codec == "mxfp4<32>" else 1)
    step = max(codecs.GROUP, piece_elements // width // codecs.GROUP * codecs.GROUP)
    mean, deviation = _distribution(tensor, width)
    generator = _generator(seed, tensor.name)
    for first in range(0, rows, step):
        shape = (min(step, rows - first), width)
        values = generator.standard_normal(shape, np.float32) * np.float32(deviation) + np.float32(mean)
        yield _encode(tensor, values)


def _write_shard(folder: Path, shard: Shard, config: ModelConfig, seed: int) -> None:
    with ShardWriter(folder / shard.name, shard.tensors) as writer:
        names = {tensor.name for tensor in shard.tensors}
        for tensor in shard.tensors:
            if tensor.is_scale:
                continue  # made with its weight
            scale_name = tensor.name.removesuffix(".weight") + ".scale"
            for codes, scales in pieces(tensor, config, seed):
                writer.write(tensor.name, codes)
                if scales and scale_name in names:
                    writer.write(scale_name, scales)


def _generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _distribution(tensor: TensorSpec, width: int) -> tuple[float, float]:
    """(mean, standard deviation) of a tensor with rows of `width` inputs."""
    name = tensor.name
    if name.endswith(_TABLES):
        return 0.0, 1.0
    if name.endswith(("norm.weight", "norm1.weight", "norm2.weight", "q_weight", "k_weight")):
        return 1.0, 0.1
    if name.endswith(("attn_sink", ".bias", ".bias_vl")):
        return 0.0, 0.1
    if len(tensor.shape) == 1:  # image_start and the like stand for embedding rows
        return 0.0, 1.0
    return 0.0, float(width) ** -0.5


def _constant(tensor: TensorSpec, config: ModelConfig) -> codecs.F32:
    """Hyper-connection base and scale: no random numbers in them (§1.3, initial values; scale 1)."""
    if tensor.name.endswith("_scale"):
        return np.ones(tensor.shape, np.float32)
    kind, number = tensor.name.split(".")[:2]
    layer = int(number) + (config.num_hidden_layers if kind == "mtp" else 0)
    m = config.hc_mult
    pre = np.full(m, -3, np.float32)
    pre[layer % m] = 3
    combine = 6 * np.eye(m, dtype=np.float32) - 3
    return np.concatenate([pre, np.zeros(m, np.float32), combine.reshape(-1)])


def _encode(tensor: TensorSpec, values: codecs.F32) -> tuple[bytes, bytes]:
    """Codes and scales of some rows; codecs take bf16-rounded values (§0.4)."""
    if tensor.codec == "f32":
        return values.tobytes(), b""
    if tensor.codec == "bf16":
        return codecs.bf16_bits(values).tobytes(), b""
    rounded = codecs.round_bf16(values)
    encode = {"wfp8<32x32>": codecs.encode_wfp8, "mxfp8<32>": codecs.encode_mxfp8, "mxfp4<32>": codecs.encode_mxfp4}
    codes, scales = encode[tensor.codec](rounded)
    return codes.tobytes(), scales.tobytes()


def _check_space(folder: Path, needed: int) -> None:
    """Refuses before writing what cannot fit."""
    parent = folder.absolute()
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if needed > free:
        reason = f"{needed / 2**30:.1f} GiB are needed and {free / 2**30:.1f} GiB are free"
        raise DinfcError("E-BUILD-004", path=folder, reason=reason)
