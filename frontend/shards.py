"""Writing safetensors files piece by piece: no tensor is ever held whole, so that the full size can be written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from dinfc.frontend.checkpoint import ITEM_BYTES, TensorSpec

INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class Shard:
    """One file: its name and its tensors in enumeration order."""

    name: str
    tensors: tuple[TensorSpec, ...]


def plan_shards(tensors: Iterable[TensorSpec], shard_bytes: int) -> tuple[Shard, ...]:
    """Distributes tensors over files of at most `shard_bytes`, or half of the total where that is less.

    So there are always at least two files. A scale stays with its weight (§10.1), and a pair larger than a file gets
    a file of its own.
    """
    pairs: list[list[TensorSpec]] = []
    for tensor in tensors:
        if tensor.is_scale:
            pairs[-1].append(tensor)
        else:
            pairs.append([tensor])
    sizes = [sum(t.nbytes for t in pair) for pair in pairs]
    limit = min(shard_bytes, -(-sum(sizes) // 2))
    files: list[list[TensorSpec]] = []
    room = 0
    for pair, size in zip(pairs, sizes, strict=True):
        if not files or size > room:
            files.append([])
            room = limit
        files[-1].extend(pair)
        room -= size
    names = (f"model-{i + 1:05d}-of-{len(files):05d}.safetensors" for i in range(len(files)))
    return tuple(Shard(name, tuple(group)) for name, group in zip(names, files, strict=True))


def index_json(shards: Sequence[Shard]) -> str:
    """model.safetensors.index.json."""
    total = sum(t.nbytes for shard in shards for t in shard.tensors)
    weight_map = {t.name: shard.name for shard in shards for t in shard.tensors}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2, sort_keys=True) + "\n"


class ShardWriter:
    """Writes one file: pieces of any of its tensors may come interleaved, each tensor's own in order.

    Wide elements lie first in the file, so that every tensor is aligned to its element size.
    """

    def __init__(self, path: Path, tensors: Sequence[TensorSpec]) -> None:
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        starts: dict[str, int] = {}
        for tensor in sorted(tensors, key=lambda t: -ITEM_BYTES[t.dtype]):  # stable
            starts[tensor.name] = offset
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "data_offsets": [offset, offset + tensor.nbytes],
            }
            offset += tensor.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        base = 8 + len(text)
        self._next = {name: base + start for name, start in starts.items()}
        self._end = {t.name: base + starts[t.name] + t.nbytes for t in tensors}
        self._file: BinaryIO = path.open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)

    def write(self, name: str, piece: bytes | memoryview) -> None:
        """Appends `piece` to the tensor `name`. Raises ValueError if it would overrun the tensor."""
        position, size = self._next[name], memoryview(piece).nbytes
        if position + size > self._end[name]:
            raise ValueError(f"{name} is longer than its shape says")
        self._file.seek(position)
        self._file.write(piece)
        self._next[name] = position + size

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        unfinished = [name for name, position in self._next.items() if position != self._end[name]]
        if kind is None and unfinished:
            raise ValueError(f"incomplete tensors: {unfinished[:3]}")
