"""Reading weights.json: which tensors a checkpoint has, the packed buffers, and the steps that fill them."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import ExpectedTensor
from .errors import RuntimeFault

WEIGHTS_FILE = "weights.json"
TOKEN_MAP = "engram.token_map"  # a source that no checkpoint holds: the runtime makes it


@dataclass(frozen=True)
class WeightBuffer:
    """One packed buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class LoadStep:
    """Tensors in, slices of packed buffers out: through a kernel, or (kernel "") the bytes as they are.

    `targets`: (number of the buffer, byte offset), one for each source.
    """

    kernel: str
    sources: tuple[str, ...]
    targets: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WeightsPlan:
    """weights.json. `digest` changes whenever packed bytes may change: with buffers, steps or load kernels."""

    tensors: tuple[ExpectedTensor, ...]
    buffers: tuple[WeightBuffer, ...]
    load: tuple[LoadStep, ...]
    digest: str


def load_weights_plan(root: Path) -> WeightsPlan:
    """Raises RuntimeFault: E-PLAN-003 (missing or unreadable), E-PLAN-002 (malformed)."""
    path = root / WEIGHTS_FILE
    try:
        text = path.read_bytes()
        raw = json.loads(text)
    except (OSError, ValueError) as error:
        raise RuntimeFault("E-PLAN-003", path=root, reason=f"{WEIGHTS_FILE} cannot be read: {error}") from None
    try:
        return parse_weights(raw, hashlib.sha256(text).hexdigest())
    except (KeyError, TypeError, ValueError):
        raise RuntimeFault("E-PLAN-002", path=path) from None


def parse_weights(raw: Mapping[str, list[list[object]]], digest: str) -> WeightsPlan:
    """The plan from parsed JSON. Raises KeyError, TypeError or ValueError for another structure."""
    tensors = tuple(ExpectedTensor(str(n), str(d), _ints(s), str(r)) for n, d, s, r in raw["tensors"])
    buffers = tuple(WeightBuffer(str(n), str(d), _ints(s), _int(b)) for n, d, s, b in raw["buffers"])
    steps = []
    for kernel, sources, targets in raw["load"]:
        if not isinstance(sources, list) or not isinstance(targets, list):
            raise TypeError("a load step holds no lists")
        pairs = tuple((_int(number), _int(offset)) for number, offset in targets)
        if len(pairs) != len(sources) or not all(0 <= number < len(buffers) for number, _ in pairs):
            raise ValueError("a load step has other targets than sources")
        steps.append(LoadStep(str(kernel), tuple(map(str, sources)), pairs))
    return WeightsPlan(tensors, buffers, tuple(steps), digest)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return value


def _ints(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(_int(v) for v in values)
