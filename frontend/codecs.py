"""Writing the number formats of spec §0.4, vectorised in numpy: for synthetic checkpoints.

Every input is fp32 holding bf16 values (`round_bf16`). Division by a scale is exact in fp32, scales being powers of
two. Written on integer bits, so nothing depends on a CPU's rounding of narrow casts, and torch is not imported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

GROUP = 32  # elements that share a scale, along a row (MXFP8, MXFP4) and down the rows of weight blocks (W-FP8)


def bf16_bits(x: F32) -> NDArray[np.uint16]:
    """bf(x) as bit patterns: round to nearest even. `x` is finite."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def round_bf16(x: F32) -> F32:
    """bf(x) as fp32."""
    return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32)


def power_of_two_byte(y: F32) -> U8:
    """E8M0 byte of P2(y), the smallest power of two >= y, for fp32 y > 0."""
    byte: U8 = ((y.view(np.uint32) + 0x007FFFFF) >> 23).astype(np.uint8)
    return byte


def power_of_two(byte: U8) -> F32:
    """2^(byte - 127) for bytes 1..254."""
    exact: F32 = (byte.astype(np.uint32) << 23).view(np.float32)
    return exact


def e4m3_byte(x: F32) -> U8:
    """E4M3 (fn) byte of |x| <= 448: round to nearest even, the sign of zero kept."""
    code = _round_to_minifloat(np.abs(x), mantissa=3, bias=7)
    byte: U8 = (code | ((x.view(np.uint32) >> 24) & 0x80)).astype(np.uint8)
    return byte


def e2m1_code(x: F32) -> U8:
    """4-bit code of e2m1: ties to the even mantissa, saturating at 6, the sign of zero kept."""
    code = _round_to_minifloat(np.minimum(np.abs(x), np.float32(6)), mantissa=1, bias=1)
    nibble: U8 = (code | ((x.view(np.uint32) >> 28) & 0x8)).astype(np.uint8)
    return nibble


def _round_to_minifloat(magnitude: F32, mantissa: int, bias: int) -> NDArray[np.uint32]:
    """Exponent and mantissa bits of `magnitude` in a format with `mantissa` bits, to nearest even; no overflow check.

    Normal numbers: rounding the fp32 bits, a carry running into the exponent by itself. Below the smallest normal
    number 2^(1-bias), adding the power of two whose ulp is the format's smallest step rounds to a count of steps.
    """
    drop = 23 - mantissa
    bits = magnitude.view(np.uint32)
    normal = ((bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop) - ((127 - bias) << mantissa)
    anchor = np.array([2.0 ** (23 + 1 - bias - mantissa)], np.float32)
    steps = (magnitude + anchor).view(np.uint32) - anchor.view(np.uint32)
    return np.where(magnitude < np.float32(2.0 ** (1 - bias)), steps, normal)


def encode_mxfp8(x: F32) -> tuple[U8, U8]:
    """MXFP8: [n, k] -> e4m3 bytes [n, k] and E8M0 bytes [n, k / 32]. k is a multiple of 32."""
    groups = x.reshape(x.shape[0], -1, GROUP)
    scale = power_of_two_byte(np.maximum(np.abs(groups).max(axis=2), np.float32(1e-4)) / np.float32(448))
    return e4m3_byte(groups / power_of_two(scale)[:, :, None]).reshape(x.shape), scale


def encode_mxfp4(x: F32) -> tuple[U8, U8]:
    """MXFP4: [n, k] -> packed codes [n, k / 2], even k in the low nibble, and E8M0 bytes [n, k / 32]."""
    groups = x.reshape(x.shape[0], -1, GROUP)
    scale = power_of_two_byte(np.maximum(np.abs(groups).max(axis=2), np.float32(6 * 2.0**-126)) / np.float32(6))
    codes = e2m1_code(groups / power_of_two(scale)[:, :, None]).reshape(x.shape)
    packed: U8 = codes[:, 0::2] | np.left_shift(codes[:, 1::2], 4, dtype=np.uint8)
    return packed, scale


def encode_wfp8(x: F32) -> tuple[U8, U8]:
    """W-FP8: [n, k] -> e4m3 bytes [n, k] and one E8M0 byte for each 32 x 32 block, [ceil(n/32), ceil(k/32)].

    The scale of a block is P2(max(amax, 1e-4) / 448), the rule of MXFP8; the last blocks may be partial.
    """
    n, k = x.shape
    padded = np.zeros((-(-n // GROUP) * GROUP, -(-k // GROUP) * GROUP), np.float32)
    padded[:n, :k] = x
    blocks = padded.reshape(padded.shape[0] // GROUP, GROUP, padded.shape[1] // GROUP, GROUP)
    scale = power_of_two_byte(np.maximum(np.abs(blocks).max(axis=(1, 3)), np.float32(1e-4)) / np.float32(448))
    divided = np.divide(blocks, power_of_two(scale)[:, None, :, None], dtype=np.float32)
    codes = e4m3_byte(divided).reshape(padded.shape)
    return np.ascontiguousarray(codes[:n, :k]), scale
