"""Rotary tables in fp64 (spec §2.2): plain for window layers, YaRN-scaled for compressed ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dinfc.frontend.config import ModelConfig, YarnScaling

Table = NDArray[np.float64]


def yarn_range(theta: float, width: int, scaling: YarnScaling) -> tuple[float, float]:
    """(lo, hi) of the ramp between unscaled and scaled frequencies, in pair indices; hi > lo always."""

    def pair(rotations: float) -> float:
        """f(n): the pair that turns `rotations` times within the original length L0."""
        length = scaling.original_max_position_embeddings
        return width * math.log(length / (2 * math.pi * rotations)) / (2 * math.log(theta))

    low = float(max(math.floor(pair(scaling.beta_fast)), 0))
    high = float(min(math.ceil(pair(scaling.beta_slow)), width - 1))
    return low, high + 0.001 if low == high else high


def frequencies(config: ModelConfig, ratio: int) -> Table:
    """w_i in radians per position, fp64 [d_r / 2], for layers of compress ratio `ratio`.

    Ratio 0 (window and draft layers): `rope_theta` alone. Ratios 1 and 2 (their q, window kv, compressed kv, index q
    and k): `compress_rope_theta`, with `rope_scaling` where the configuration has one.
    """
    width = config.qk_rope_head_dim
    index = np.arange(width // 2, dtype=np.float64)
    theta = config.rope_theta if ratio == 0 else config.compress_rope_theta
    plain: Table = theta ** (-2 * index / width)
    if ratio == 0 or config.rope_scaling is None:
        return plain
    low, high = yarn_range(theta, width, config.rope_scaling)
    ramp = np.clip((index - low) / (high - low), 0, 1)
    scaled: Table = plain * (ramp / config.rope_scaling.factor + (1 - ramp))
    return scaled


def cos_sin(config: ModelConfig, ratio: int, positions: int) -> Table:
    """fp64 [positions, d_r]: cosines of all pairs, then sines, for positions 0..positions-1.

    Targets round it once to fp32; R64 uses it as it is. The compiler asks for max_len + 3 * block + 1 positions
    (design section 4a). A compressed record j of ratio r uses the row j * r.
    """
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies(config, ratio)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
