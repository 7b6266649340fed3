"""`segment`: stable grouping of (row, slot) pairs by expert, each group padded to whole tiles (design section 4a)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..data import as_tensor
from ..graph import Attr, Op, OpDef, Value, register
from ..opkit import count, elements, int_attr, known_attrs, need_elem, need_rank, traffic
from ..types import Dim, TensorType, Type, simplify_dim

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


def tile_count(pairs: Dim, experts: int, tile: int) -> Dim:
    """Tiles that always suffice: ceiling((pairs + experts * (tile - 1)) / tile)."""
    return simplify_dim(sympy.ceiling((sympy.sympify(pairs) + experts * (tile - 1)) / sympy.Integer(tile)))


@register
class Segment(OpDef):
    """ids `i32[T, K]` -> slot_row `i32[T, K]`, pair `i32[P]`, tile_expert `i32[P/tile]`.

    Pair t*K+k of expert e gets a place in the groups of `e`, in row order; groups follow each other by expert, each
    padded to a multiple of `tile` places. slot_row: place of (t, k), -1 where its id is no expert; pair: t*K+k of a
    place, -1 where it is padding; tile_expert: expert of a tile, -1 where it is unused.
    """

    kind = "segment"
    fusion = "scan"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "experts", "tile")
        count(operands, 1)
        need_elem(operands[0], ("i32",), "ids")
        rows, slots = need_rank(operands[0], 2, "ids")
        experts, tile = int_attr(attrs, "experts", least=1), int_attr(attrs, "tile", least=1)
        pairs = simplify_dim(sympy.sympify(rows) * slots)
        tiles = tile_count(pairs, experts, tile)
        places = simplify_dim(tile * sympy.sympify(tiles))
        return [TensorType("i32", (rows, slots), (-1, places)), TensorType("i32", (places,), (-1, pairs)),
                TensorType("i32", (tiles,), (-1, experts))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        ids, experts, tile = as_tensor(args[0]), int_attr(op.attrs, "experts"), int_attr(op.attrs, "tile")
        tiles = ev.dim(op.results[2].tensor.shape[0])
        flat = ids.reshape(-1)
        known = ((flat >= 0) & (flat < experts)).nonzero()[:, 0]
        expert, order = flat[known].sort(stable=True)
        sizes = torch.bincount(expert, minlength=experts)
        used = (sizes + tile - 1) // tile
        first_place, first_pair = (used.cumsum(0) - used) * tile, sizes.cumsum(0) - sizes
        place = first_place[expert] + torch.arange(expert.numel()) - first_pair[expert]
        pair = torch.full((tiles * tile,), -1, dtype=torch.int64)
        pair[place] = known[order]
        slot_row = torch.full_like(flat, -1)
        slot_row[known[order]] = place
        tile_expert = torch.full((tiles,), -1, dtype=torch.int64)
        owners = torch.searchsorted(used.cumsum(0), torch.arange(int(used.sum())), right=True)
        tile_expert[: owners.numel()] = owners
        return [slot_row.view(ids.shape), pair, tile_expert]

    def factors(self, op: Op) -> str:
        return "T K -> T K, P, Q"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        return 4 * elements(op.operands[0].tensor.shape), traffic(op)
