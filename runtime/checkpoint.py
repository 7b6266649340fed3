"""Strict reading of a checkpoint folder (spec §10): every tensor known by name, present, of its shape and dtype.

Only headers are read here. Names may carry a `model.` prefix. `vision.*` and `aligner.*` may be absent as a whole.
"""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault
from .safetensors_file import StoredTensor, read_header

INDEX_FILE = "model.safetensors.index.json"
CONFIG_FILE = "config.json"
OPTIONAL_PREFIXES = ("vision.", "aligner.")
WIDENING = {("BF16", "F32"), ("F32", "BF16")}  # may replace one another where no value changes
WHOLE_HASH = 64 * 2**20  # shards up to this size enter the fingerprint whole
SAMPLES, SAMPLE_BYTES = 256, 4096

Bytes = NDArray[np.uint8]


class ExpectedTensor(NamedTuple):
    """One tensor that the model has. `role`: backbone, draft, image or vision."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint: `tensors` by name without prefix, `expected` dtypes by name."""

    folder: Path
    tensors: Mapping[str, StoredTensor]
    expected: Mapping[str, ExpectedTensor]
    index_text: bytes

    def read(self, name: str) -> Bytes:
        """The bytes of a tensor in its expected dtype; mapped from the file where no cast is needed.

        Raises RuntimeFault E-CKPT-007 if a value does not survive the cast.
        """
        stored, wanted = self.tensors[name], self.expected[name].dtype
        raw: Bytes = np.memmap(stored.path, np.uint8, "r", stored.start, (stored.nbytes,)) if stored.nbytes else (
            np.empty(0, np.uint8))
        if stored.dtype == wanted:
            return raw
        if wanted == "F32":
            return (np.frombuffer(raw.tobytes(), np.uint16).astype(np.uint32) << 16).view(np.uint8)
        words = np.frombuffer(raw.tobytes(), np.uint32)
        if (words & 0xFFFF).any():
            raise RuntimeFault("E-CKPT-007", name=name, dtype=stored.dtype, expected=wanted, place=stored.path)
        return (words >> 16).astype(np.uint16).view(np.uint8)

    def fingerprint(self) -> str:
        """sha256 that changes when the contents do, from the index, the configuration and every shard.

        A large shard is sampled; its time of modification counts too, so that a changed file is not taken for the old
        one because the samples missed the change.
        """
        digest = hashlib.sha256(self.index_text)
        for path in sorted({t.path for t in self.tensors.values()}):
            status = path.stat()
            digest.update(f"\n{path.name} {status.st_size}".encode())
            with path.open("rb") as file:
                if status.st_size <= WHOLE_HASH:
                    digest.update(file.read())
                    continue
                digest.update(f" {status.st_mtime_ns}".encode())
                for number in range(SAMPLES):
                    file.seek((status.st_size - SAMPLE_BYTES) * number // (SAMPLES - 1))
                    digest.update(file.read(SAMPLE_BYTES))
        return digest.hexdigest()


def open_checkpoint(folder: Path, expected: Sequence[ExpectedTensor], config: Mapping[str, object]) -> Checkpoint:
    """Reads index and headers of `folder` and checks them. `config`: the package's config.json.

    Raises RuntimeFault: E-CKPT-001 (no checkpoint), 002 (missing), 003 (unexpected), 004 (shape), 005 (dtype),
    006 (damaged shard), 008 (shard missing), 009 (index wrong), 010 (scale elsewhere), 011 (twice), 012 (config).
    """
    if not os.path.isdir(folder):  # unlike Path.is_dir, no name makes it raise
        raise RuntimeFault("E-CKPT-001", path=folder, reason="it is no directory")
    check_config(folder, config)
    stored, index_text = read_tensors(folder)
    table = {t.name: t for t in expected}
    check_names(stored, table)
    for name, tensor in stored.items():
        wanted = table.get(name)
        if wanted is None:
            continue  # vision of a model without vision_config
        if tensor.shape != wanted.shape:
            raise RuntimeFault("E-CKPT-004", name=name, shape=list(tensor.shape), expected=list(wanted.shape),
                               place=tensor.path)
        if tensor.dtype != wanted.dtype and (tensor.dtype, wanted.dtype) not in WIDENING:
            either = " or ".join(("BF16", "F32")) if wanted.dtype in ("BF16", "F32") else wanted.dtype
            raise RuntimeFault("E-CKPT-005", name=name, dtype=tensor.dtype, expected=either, place=tensor.path)
        scale = name.removesuffix(".weight") + ".scale"
        if name.endswith("engram.embed.weight") and scale in stored and stored[scale].path != tensor.path:
            raise RuntimeFault("E-CKPT-010", name=name, first=tensor.path.name, second=stored[scale].path.name)
    return Checkpoint(folder, stored, table, index_text)


def read_tensors(folder: Path) -> tuple[dict[str, StoredTensor], bytes]:
    """All tensors of the folder by name without prefix, and the text of the index (empty for a single file)."""
    index_path = folder / INDEX_FILE
    if index_path.is_file():
        text = index_path.read_bytes()
        weight_map = read_index(index_path, text)
        files = [folder / name for name in sorted(set(weight_map.values()))]
    else:
        text, weight_map = b"", None
        files = sorted(folder.glob("*.safetensors"))
        if len(files) != 1:
            reason = f"it has {len(files) or 'no'} .safetensors files and no {INDEX_FILE}"
            raise RuntimeFault("E-CKPT-001", path=folder, reason=reason)
    found: dict[str, StoredTensor] = {}
    for path in files:
        if not path.is_file():
            raise RuntimeFault("E-CKPT-008", path=path)
        header = read_header(path)
        if weight_map is not None:
            listed = {name for name, file in weight_map.items() if file == path.name}
            if absent := sorted(listed - header.keys()):
                raise RuntimeFault("E-CKPT-009", path=index_path, reason=f"{path.name} does not hold {absent[0]}")
            if unlisted := sorted(header.keys() - listed):
                where = weight_map.get(unlisted[0])
                if where is not None:
                    raise RuntimeFault("E-CKPT-011", name=unlisted[0], first=where, second=path.name)
                raise RuntimeFault("E-CKPT-009", path=index_path, reason=f"it lacks {unlisted[0]} of {path.name}")
        for full, tensor in header.items():
            name = full.removeprefix("model.")
            if name in found:
                raise RuntimeFault("E-CKPT-011", name=name, first=found[name].path.name, second=path.name)
            found[name] = tensor
    return found, text


def read_index(path: Path, text: bytes) -> dict[str, str]:
    """`weight_map` of the index: tensor name -> file name. Raises RuntimeFault E-CKPT-009."""
    try:
        raw = json.loads(text)
    except ValueError:
        raise RuntimeFault("E-CKPT-009", path=path, reason="it is not JSON") from None
    entries = raw.get("weight_map") if isinstance(raw, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise RuntimeFault("E-CKPT-009", path=path, reason="it has no weight_map")
    for name, file in entries.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise RuntimeFault("E-CKPT-009", path=path, reason=f"{name} lies in {file!r}, which is no file name")
    return entries


def check_names(stored: Mapping[str, StoredTensor], table: Mapping[str, ExpectedTensor]) -> None:
    """Raises RuntimeFault E-CKPT-002 or 003 unless the names are the model's."""
    has_vision = any(name.startswith(OPTIONAL_PREFIXES) for name in stored)
    knows_vision = any(t.role == "vision" for t in table.values())
    missing = [t.name for t in table.values() if t.name not in stored and (t.role != "vision" or has_vision)]
    if missing:
        raise RuntimeFault("E-CKPT-002", name=missing[0], more=and_more(missing))
    extra = [n for n in stored if n not in table and (knows_vision or not n.startswith(OPTIONAL_PREFIXES))]
    if extra:
        raise RuntimeFault("E-CKPT-003", name=extra[0], more=and_more(extra), place=stored[extra[0]].path)


def check_config(folder: Path, config: Mapping[str, object]) -> None:
    """Raises RuntimeFault E-CKPT-012 if the checkpoint's own config.json contradicts the one compiled for.

    Most of its fields leave no trace in names and shapes (rotary base, number of selected tokens ...): the wrong one
    would give wrong logits and no error. Fields that only one of the two has are not compared.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise RuntimeFault("E-CKPT-001", path=folder, reason=f"it has no {CONFIG_FILE}")
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuntimeFault("E-CKPT-001", path=folder, reason=f"{CONFIG_FILE} cannot be read: {error}") from None
    difference = first_difference(config, theirs, "")
    if difference is not None:
        field, ours, found = difference
        raise RuntimeFault("E-CKPT-012", path=path, field=field, value=json.dumps(found), expected=json.dumps(ours))


def first_difference(ours: object, theirs: object, at: str) -> tuple[str, object, object] | None:
    """(dotted field, our value, their value) of the first field that both have with other values."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() & theirs.keys()):
            found = first_difference(ours[key], theirs[key], f"{at}.{key}" if at else str(key))
            if found is not None:
                return found
        return None
    return None if ours == theirs else (at, ours, theirs)


def and_more(names: Sequence[str]) -> str:
    """`""`, or ` and 3 more`."""
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
