"""Spec §2.3 and §2.5: compressed tokens (ratio 1 and 2), their main records and their index keys."""

from typing import NamedTuple

import torch
from torch import Tensor

from oracle.codecs import Quant, bf, fp4_e4m3, fp4_e4m3_value, mxfp4, mxfp8, mxfp8_value
from oracle.ops import gb, product, rmsnorm
from oracle.rope import rotate


class Record(NamedTuple):
    """A quantised tensor and its dequantised value."""

    quant: Quant
    value: Tensor


def latents(x: Tensor, wkv: Tensor, wgate: Tensor) -> tuple[Tensor, Tensor]:
    """Ratio 2: (lat_p, g_p), class GB32, not rounded in R64."""
    return product(x, wkv), product(x, wgate)


def pool(latent: Tensor, gate: Tensor) -> Tensor:
    """Ratio 2: c_j from the two members of each group; latent and gate [groups, 2, d]."""
    return bf((torch.softmax(gate, dim=1) * latent).sum(1))


def compress_ratio1(x: Tensor, wkv: Tensor) -> Tensor:
    """Ratio 1: c_p = GB(x_p, wkv)."""
    return gb(x, wkv)


def group_range(start: int, end: int, ratio: int) -> tuple[int, int]:
    """Compressed tokens completed by the chunk [start, end): floor(start/r) .. floor(end/r) - 1."""
    return start // ratio, end // ratio


def main_record(z: Tensor, positions: Tensor, freq: Tensor, fp4: bool) -> Record:
    """z_j rotated at j*r, then FP4/E4M3 (``use_fp4_sparse_kv``) or MXFP8."""
    k = rotate(z, positions, freq)
    if fp4:
        q = fp4_e4m3(k)
        return Record(q, fp4_e4m3_value(q))
    q = mxfp8(k)
    return Record(q, mxfp8_value(q))


def index_key(z: Tensor, wk: Tensor, k_norm: Tensor, positions: Tensor, freq: Tensor, eps: float) -> Quant:
    """§2.5: kappa_j from z_j before its rotation; RMSNorm, rotation at j*r, MXFP4/32."""
    kappa = rmsnorm(gb(z, wk), k_norm, eps)
    return mxfp4(rotate(kappa, positions, freq))
