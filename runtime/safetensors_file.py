"""The safetensors format: strict reading of headers, and a writer that fills tensors piece by piece.

A file is: length of the header (u64), header (JSON: name -> dtype, shape, data_offsets), data.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault

ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2,
              "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}
MAX_HEADER = 100 * 2**20  # what the format allows


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: bytes [start, start + nbytes) of `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name.

    Raises RuntimeFault E-CKPT-006 for anything that is not a whole, well formed file: a shard cut off in a download, a
    header that does not fit the data, sizes that do not fit the shapes.
    """
    def damaged(reason: str) -> RuntimeFault:
        return RuntimeFault("E-CKPT-006", path=path, reason=reason, place=path)

    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise damaged(f"its {size} bytes do not hold the header")
        text = file.read(length)
    try:
        header = json.loads(text)
    except ValueError:
        raise damaged("its header is not JSON") from None
    if not isinstance(header, dict):
        raise damaged("its header is no object")
    header.pop("__metadata__", None)
    base, end = 8 + length, 8 + length
    found = {}
    for name, entry in header.items():
        try:
            dtype, shape = str(entry["dtype"]), tuple(int(d) for d in entry["shape"])
            start, stop = (int(o) for o in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise damaged(f"the header's entry of {name} is malformed") from None
        if dtype not in ITEM_BYTES:
            raise damaged(f"{name} has the unknown dtype {dtype}")
        if not 0 <= start <= stop or stop - start != prod(shape) * ITEM_BYTES[dtype] or min(shape, default=0) < 0:
            raise damaged(f"{name} of {dtype} {list(shape)} does not take bytes {start} to {stop}")
        if base + stop > size:
            raise damaged(f"it ends inside {name}: {size} bytes instead of at least {base + stop}")
        found[name] = StoredTensor(path, dtype, shape, base + start, stop - start)
        end = max(end, base + stop)
    if end != size:
        raise damaged(f"{size - end} bytes follow the last tensor")
    return found


class TensorWriter:
    """Writes a file of f32 tensors, rows in any order; the file appears under its name when everything is written.

    `shapes`: name -> shape. Raises RuntimeFault E-RUN-007 if `path` exists, E-RUN-016 if it cannot be written.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]], option: str) -> None:
        if os.path.exists(path):  # unlike Path.exists, never raises: a bad name fails when the file is opened
            raise RuntimeFault("E-RUN-007", path=path)
        self._path, self._option = path, option
        self._work = path.with_name(f".{path.name}.partial-{os.getpid()}")
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        self._starts = {}
        for name, shape in shapes.items():
            size = prod(shape) * 4
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
            self._starts[name] = offset
            offset += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._base = 8 + len(text)
        self._columns = {name: prod(shape[1:]) for name, shape in shapes.items()}
        try:
            self._file = self._work.open("wb")
            self._file.write(len(text).to_bytes(8, "little") + text)
            self._file.flush()
            # a full disk is an error now, not after hours of work
            os.posix_fallocate(self._file.fileno(), 0, self._base + offset)
        except OSError as error:
            with suppress(OSError):
                self._work.unlink()
            raise RuntimeFault("E-RUN-016", path=path, reason=error.strerror, option=option) from None

    def write_rows(self, name: str, first: int, rows: NDArray[np.float32]) -> None:
        """Rows [first, first + len(rows)) of a tensor."""
        self._file.seek(self._base + self._starts[name] + first * self._columns[name] * 4)
        self._file.write(np.ascontiguousarray(rows, np.float32).tobytes())

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            self._work.replace(self._path)
        else:
            self._work.unlink(missing_ok=True)
