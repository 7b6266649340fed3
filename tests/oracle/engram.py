"""Spec §4.4: Engram table lookup, projection and gate."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.codecs import F64, Quant, bf, mxfp8_value, split
from oracle.config import Dims
from oracle.engram_hash import LayerHash, ngram
from oracle.ops import product, rsqrt_mean
from oracle.weights import Weights

Record = Callable[[str, Tensor], None]
GATE_FLOOR = 1e-6


class Gate(NamedTuple):
    """dot and g [T, m], and the new streams [T, m, D]."""

    dot: Tensor
    g: Tensor
    x: Tensor


def hash_rows(
    history: Sequence[int], start: int, token_map: Sequence[int], layer_hash: LayerHash, dims: Dims
) -> Tensor:
    """Table rows [T, (n_max-1)*heads] int64 of the tokens history[start:]; -1 everywhere on sentinel rows."""
    pad = token_map[dims.engram_pad]
    result = []
    for p in range(start, len(history)):
        a = ngram(history, p, token_map, dims.engram_ngram, pad)
        result.append([-1] * dims.engram_tables if a is None else layer_hash.rows(a))
    return torch.tensor(result, dtype=torch.int64).reshape(len(history) - start, dims.engram_tables)


def lookup(rows: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """e [T, tables * width] in fp64: dequantised table rows side by side, zeros for row -1."""
    index = rows.clamp_min(0)
    value = mxfp8_value(Quant(codes[index], scales[index]))
    return value.masked_fill((rows < 0).unsqueeze(-1), 0.0).flatten(1)


def gate(x: Tensor, kv: Tensor, q_weight: Tensor, k_weight: Tensor, eps: float) -> Gate:
    """The gated addition to the streams: x [T, m, D], kv [T, m + 1, D] (k_0..k_{m-1}, v)."""
    k, v = kv[:, :-1], kv[:, -1:]
    inner = (x * (q_weight * k_weight) * k).sum(-1)
    dot = x.shape[-1] ** -0.5 * rsqrt_mean(x, eps).squeeze(-1) * rsqrt_mean(k, eps).squeeze(-1) * inner
    g = torch.sigmoid(dot.sign() * dot.abs().clamp_min(GATE_FLOOR).sqrt())
    return Gate(dot, g, bf(x + g.unsqueeze(-1) * v))


def engram(
    x: Tensor,
    history: Sequence[int],
    start: int,
    layer: int,
    dims: Dims,
    weights: Weights,
    token_map: Sequence[int],
    layer_hash: LayerHash,
    rec: Record,
) -> Tensor:
    """Engram_l(X) for the rows history[start:], x [T, m, D]; image-type rows keep their X."""
    name = f"layers.{layer}.engram"
    rows = hash_rows(history, start, token_map, layer_hash, dims)
    e = lookup(rows, *weights.table(f"{name}.embed"))
    kv = split(bf(product(e, weights.fp8(f"{name}.wkv"))), -1, dims.hidden)
    result = gate(x, kv, weights.bf16(f"{name}.q_weight"), weights.bf16(f"{name}.k_weight"), dims.eps)
    out = torch.where((rows[:, :1] < 0).unsqueeze(-1), x.to(F64), result.x)
    for key, value in (("engram_rows", rows), ("engram_e", e), ("engram_kv", kv), ("engram_g", result.g)):
        rec(key, value)
    return out
