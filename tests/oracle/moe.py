"""Spec §3: router, routed experts (MXFP4), shared expert (W-FP8) and their sum."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from oracle.codecs import F64, Quant, bf, mxfp8, mxfp8_value
from oracle.config import Dims
from oracle.ops import product
from oracle.weights import Weights

Record = Callable[[str, Tensor], None]


class Routing(NamedTuple):
    """ids [T, K] in rank order, weights [T, K] fp64, score [T, E] = sqrt(softplus(zlog)), zlog [T, E]."""

    ids: Tensor
    weights: Tensor
    score: Tensor
    zlog: Tensor


class ExpertResult(NamedTuple):
    """a, b [T, I] bf16; hh [T, I] unrounded; its MXFP8 form; y [T, D] bf16."""

    a: Tensor
    b: Tensor
    hh: Tensor
    hhq: Quant
    y: Tensor


def softplus(v: Tensor) -> Tensor:
    """v for v > 20, else log1p(e^v)."""
    return torch.where(v > 20.0, v, v.clamp_max(20.0).exp().log1p())


def route_logits(zlog: Tensor, bias: Tensor, k: int, scale: float) -> Routing:
    """§3.1 from the logits [T, E]; bias [E] or [T, E] affects the selection only; ties to the lower expert."""
    score = softplus(zlog).sqrt()
    ids = (score + bias).sort(dim=1, descending=True, stable=True).indices[:, :k]
    picked = score.gather(1, ids)
    return Routing(ids, picked / (picked.sum(1, keepdim=True) + 1e-20) * scale, score, zlog)


def route(x: Tensor, gate: Tensor, bias: Tensor, bias_vl: Tensor, image_rows: Tensor, k: int, scale: float) -> Routing:
    """§3.1: x [T, D] bf16; image_rows [T] bool take bias_vl."""
    return route_logits(product(x, gate), torch.where(image_rows.unsqueeze(1), bias_vl, bias), k, scale)


def expert(xq: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, row_weight: Tensor | None, limit: float) -> ExpertResult:
    """§3.2 on dequantised MXFP8 rows xq [T, D]; row_weight [T] is inside hh, None for the shared expert."""
    a, b = bf(product(xq, w1)), bf(product(xq, w3))
    gate, up = a.clamp_max(limit), b.clamp(-limit, limit)
    hh = gate / (1.0 + (-gate).exp()) * up
    if row_weight is not None:
        hh = hh * row_weight.unsqueeze(1)
    hhq = mxfp8(hh)
    return ExpertResult(a, b, hh, hhq, bf(product(mxfp8_value(hhq), w2)))


def moe(x: Tensor, image_rows: Tensor, layer: int, dims: Dims, weights: Weights, rec: Record) -> Tensor:
    """MoE_l(x), x [T, D] normed: bf(y_shared + sum of y_e in rank order)."""
    name = f"layers.{layer}.ffn"
    bias, bias_vl = weights.fp32(f"{name}.gate.bias"), weights.fp32(f"{name}.gate.bias_vl")
    gate = weights.bf16(f"{name}.gate.weight")
    routing = route(x, gate, bias, bias_vl, image_rows, dims.experts_per_token, dims.routed_scale)
    codes = mxfp8(x)
    xq = mxfp8_value(codes)
    shared_name = f"{name}.shared_experts"
    shared = expert(
        xq,
        weights.fp8(f"{shared_name}.w1"),
        weights.fp8(f"{shared_name}.w3"),
        weights.fp8(f"{shared_name}.w2"),
        None,
        dims.swiglu_limit,
    )
    rows, k = routing.ids.shape
    wide = (rows, k, dims.expert_width)
    part_a, part_b, part_hh = (torch.zeros(wide, dtype=F64) for _ in range(3))
    part_codes = torch.zeros(wide, dtype=torch.uint8)
    part_scales = torch.zeros((rows, k, dims.expert_width // 32), dtype=torch.uint8)
    part_y = torch.zeros((rows, k, dims.hidden), dtype=F64)
    for e in sorted(set(routing.ids.flatten().tolist())):
        row, slot = (routing.ids == e).nonzero(as_tuple=True)
        w1, w3, w2 = (weights.fp4(f"{name}.experts.{e}.{w}") for w in ("w1", "w3", "w2"))
        one = expert(xq[row], w1, w3, w2, routing.weights[row, slot], dims.swiglu_limit)
        part_a[row, slot], part_b[row, slot], part_hh[row, slot] = one.a, one.b, one.hh
        part_codes[row, slot], part_scales[row, slot] = one.hhq.codes, one.hhq.scales
        part_y[row, slot] = one.y
    total = shared.y
    for slot in range(k):
        total = total + part_y[:, slot]
    y = bf(total)
    parts = {"router_zlog": routing.zlog, "router_ids": routing.ids, "router_w": routing.weights}
    parts |= {"ffn_xq_codes": codes.codes, "ffn_xq_scales": codes.scales}
    parts |= {"shared_a": shared.a, "shared_b": shared.b, "shared_hh": shared.hh, "shared_y": shared.y}
    parts |= {"shared_hh_codes": shared.hhq.codes, "shared_hh_scales": shared.hhq.scales}
    parts |= {"expert_a": part_a, "expert_b": part_b, "expert_hh": part_hh, "expert_y": part_y}
    parts |= {"expert_hh_codes": part_codes, "expert_hh_scales": part_scales, "ffn_y": y}
    for key, value in parts.items():
        rec(key, value)
    return y
