"""The mixture of experts (spec section 3), on one rank: route, segment, two grouped products, sum."""
from __future__ import annotations

from typing import TYPE_CHECKING

from dinfc.ir.build import contract, emap, grouped_contract, quantize, segment, take
from dinfc.ir.graph import Value
from dinfc.ir.scalar import compare, index, select
from dinfc.ir.types import symbol

if TYPE_CHECKING:
    from dinfc.frontend.layer_kinds import LayerScope

SEGMENT_TILE = 8  # rows an expert's segment is padded to; padding rows are never read, so no bit depends on it
T = symbol("T")


def moe(s: LayerScope, x: Value, xq: Value) -> Value:
    """x bf16 `[T, D]` (for the router) and xq MXFP8 -> y bf16 `[T, D]`."""
    b, c = s.b, s.config
    k, experts, tile = c.num_experts_per_tok, c.n_routed_experts, SEGMENT_TILE
    z = contract(b, x, s.weight("ffn.gate"), "GB32", hint="router_z")
    ids, weights = b.op("gate_topk", [z, s.weight("ffn.gate.bias")], ("expert_ids", "expert_weights"), k=k,
                        scale=c.routed_scaling_factor)
    slot_row, pair, tile_expert = segment(b, ids, experts, tile)
    row = emap(b, lambda p: select(compare("ge", p, 0), p // k, -1), [pair], hint="source_row", bounds=(-1, T))
    slot = emap(b, lambda p: select(compare("ge", p, 0), p % k, -1), [pair], hint="source_slot", bounds=(-1, k))
    places = pair.tensor.shape[0]
    own = emap(b, lambda p: select(compare("ge", p, 0), index(0), -1), [pair], hint="own_row", bounds=(-1, places))
    gate_up = grouped_contract(b, xq, s.weight("ffn.experts.w13"), row, tile_expert, tile, hint="gate_up")
    weight = take(b, weights, [row, slot], hint="row_weight")
    hidden = b.one("swiglu_clamp", [gate_up, weight], "expert_hidden", limit=c.swiglu_limit)
    y = grouped_contract(b, quantize(b, hidden, "mxfp8<32>", "expert_hq"), s.weight("ffn.experts.w2"), own,
                         tile_expert, tile, hint="expert_y")
    shared = b.one("swiglu_clamp", [contract(b, xq, s.weight("ffn.shared.w13"), "G8", hint="shared_gate_up")],
                   "shared_hidden", limit=c.swiglu_limit)
    shared_y = contract(b, quantize(b, shared, "mxfp8<32>", "shared_hq"), s.weight("ffn.shared.w2"), "G8",
                        hint="shared_y")
    return b.one("expert_sum", [shared_y, y, slot_row], "ffn_y")
