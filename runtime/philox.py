"""Philox4x32-10: random bits as a pure function of (key, counter) (design section 4a, *Random bits*).

Counter words: absolute position of the generated token, purpose, vocabulary index, 0. So a number depends neither on
the batch, nor on the order of requests, nor on how many numbers were drawn before.
"""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PURPOSE_TOKEN = 0

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10

Words = NDArray[np.uint64]


def philox(counter: tuple[Words, Words, Words, Words], key: int) -> tuple[Words, Words, Words, Words]:
    """Four 32-bit words (held in uint64) for each element of the counter words; `key`: 64 bits."""
    a, b, c, d = counter
    low, high = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for number in range(_ROUNDS):
        k0 = np.uint64((low + number * _WEYL[0]) & 0xFFFFFFFF)
        k1 = np.uint64((high + number * _WEYL[1]) & 0xFFFFFFFF)
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (right >> _SHIFT) ^ b ^ k0, right & _LOW, (left >> _SHIFT) ^ d ^ k1, left & _LOW
    return a, b, c, d


def uniforms(seed: int, position: int, count: int, purpose: int = PURPOSE_TOKEN) -> NDArray[np.float64]:
    """`count` numbers in (0, 1), one for each vocabulary index: 52 random bits and a half, so never 0 or 1."""
    index = np.arange(count, dtype=np.uint64)
    fixed = (np.full(count, position & 0xFFFFFFFF, np.uint64), np.full(count, purpose, np.uint64))
    high, low, _, _ = philox((*fixed, index, np.zeros(count, np.uint64)), seed & (2**64 - 1))
    bits = (high << np.uint64(20)) | (low >> np.uint64(12))
    result: NDArray[np.float64] = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return result
