"""Random tensors in place of a checkpoint, for self tests and benchmarks: values of a trained model's order."""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from .checkpoint import ExpectedTensor
from .plan import ModelFacts
from .safetensors_file import ITEM_BYTES

Bytes = NDArray[np.uint8]
UNIT_SCALE = 127  # E8M0 of 1.0


@dataclass(frozen=True)
class RandomTensors:
    """Tensors by name, the same for the same seed; a tensor does not depend on which others are asked for."""

    expected: Mapping[str, ExpectedTensor]
    seed: int

    def read(self, name: str) -> Bytes:
        """Bytes of one tensor in its expected dtype."""
        tensor = self.expected[name]
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        random = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        count, width = prod(tensor.shape), tensor.shape[-1] if tensor.shape else 1
        if tensor.dtype == "F8_E8M0":
            # codes are of order 1: products over `width` elements stay of order 1 with a scale near width ** -1/2
            exponent = -round(np.log2(max(1, width * 32)) / 2)
            return np.full(count, UNIT_SCALE + exponent, np.uint8)
        if ITEM_BYTES[tensor.dtype] == 1:
            raw = random.integers(0, 256, count, np.uint8)
            if tensor.dtype == "F8_E4M3":
                # exponents 5 to 8 of 15: magnitudes from 1/4 to 4, no NaN
                return ((raw & 0x87) | ((5 + (raw >> 4 & 3)) << 3)).astype(np.uint8)
            return raw
        is_norm = "norm" in name or name.endswith(("q_weight", "k_weight"))
        values = random.standard_normal(count, np.float32)
        values = 1 + 0.1 * values if is_norm else values * np.float32(width ** -0.5 if len(tensor.shape) > 1 else 0.1)
        if tensor.dtype == "F32":
            return values.astype(np.float32).view(np.uint8)
        words = values.astype(np.float32).view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype(np.uint16).view(np.uint8)


def random_token_map(model: ModelFacts) -> NDArray[np.int32] | None:
    """A map onto all compressed ids; None for a model without Engram."""
    if not model.compressed_vocab:
        return None
    return (np.arange(model.vocab_size, dtype=np.int32) % model.compressed_vocab).astype(np.int32)
