"""Spec §2.6 to §2.8: index scores, top-k and candidate blocks. All lists ascending, padded with -1."""

import torch
from torch import Tensor

from oracle.codecs import F64, Quant, bf, mxfp4, split
from oracle.ops import g8, gb
from oracle.rope import rotate

BF16_MAX = float(torch.finfo(torch.bfloat16).max)
NEG_INF = float("-inf")


def index_query(qr: Tensor, wq_b: Tensor, heads: int, positions: Tensor, freq: Tensor) -> Quant:
    """qI [T, H_I, d_I]: G8, rotation at p, MXFP4/32."""
    q = split(g8(qr, wq_b), -1, wq_b.shape[0] // heads)
    return mxfp4(rotate(q, positions, freq))


def index_weights(x: Tensor, weights_proj: Tensor) -> Tensor:
    """w = bf(x @ weights_proj^T), [T, H_I]; no scale factor (C.2)."""
    return gb(x, weights_proj)


def index_scores(q: Tensor, w: Tensor, keys: Tensor) -> Tensor:
    """S[t, j] = bf(sum_h w[t, h] * max(0, <qI[t, h], kappa_j>)) for all j; q [T, H_I, d_I], keys [n, d_I]."""
    rows = []
    for start in range(0, q.shape[0], 64):
        dots = (q[start : start + 64] @ keys.T).clamp_min(0.0)
        rows.append(bf((w[start : start + 64].unsqueeze(-1) * dots).sum(1)))
    return torch.cat(rows) if rows else torch.zeros((0, keys.shape[0]), dtype=F64)


def visible(lengths: Tensor, n: int) -> Tensor:
    """Mask [T, n] of j < lengths[t]."""
    return torch.arange(n).unsqueeze(0) < lengths.unsqueeze(1)


def select_largest(values: Tensor, allowed: Tensor, k: int) -> Tensor:
    """Per row the min(k, allowed count) largest allowed entries, ties to the lowest index, as an ascending list."""
    rows, n = values.shape
    # + 0.0 turns -0.0 into +0.0, which must compare equal.
    order = (values.masked_fill(~allowed, NEG_INF) + 0.0).sort(dim=1, descending=True, stable=True).indices[:, :k]
    chosen = allowed.gather(1, order)
    ascending = order.masked_fill(~chosen, n).sort(dim=1).values
    ascending = ascending.masked_fill(ascending == n, -1)
    out = torch.full((rows, k), -1, dtype=torch.int64)
    out[:, : ascending.shape[1]] = ascending
    return out


def top_k(scores: Tensor, lengths: Tensor, k: int, allowed: Tensor | None = None) -> Tensor:
    """§2.7: [T, k_I]; entries j >= lengths[t] are ignored, and those outside ``allowed`` when it is given."""
    mask = visible(lengths, scores.shape[1])
    return select_largest(scores, mask if allowed is None else mask & allowed, k)


def candidate_blocks(scores: Tensor, lengths: Tensor, block: int, count: int) -> Tensor:
    """§2.8 at the candidate source: [T, N_c] block indices; the newest block is always among them."""
    rows, n = scores.shape
    blocks = -(-n // block)
    padded = torch.full((rows, blocks * block), NEG_INF, dtype=F64)
    padded[:, :n] = scores.masked_fill(~visible(lengths, n), NEG_INF)
    if blocks == 0:
        return torch.full((rows, count), -1, dtype=torch.int64)
    best = split(padded, 1, block).amax(-1).clamp_max(BF16_MAX)
    number = (lengths + block - 1) // block
    newest = torch.arange(blocks).unsqueeze(0) == (number - 1).unsqueeze(1)
    best = best.masked_fill(newest, float("inf"))
    return select_largest(best, visible(number, blocks), count)


def candidate_mask(cand: Tensor, n: int, block: int) -> Tensor:
    """[T, n]: compressed tokens inside the candidate blocks (equal to the compact list of §2.8 followed by restore)."""
    rows = cand.shape[0]
    blocks = -(-n // block)
    flags = torch.zeros((rows, blocks + 1), dtype=torch.bool)
    flags.scatter_(1, cand.masked_fill(cand < 0, blocks), True)
    return flags[:, :blocks].repeat_interleave(block, dim=1)[:, :n]
