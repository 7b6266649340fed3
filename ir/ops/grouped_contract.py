"""`grouped_contract`: rows grouped by expert times their expert's matrix (spec 3.2, design section 4a)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..codecs import round_bf16
from ..data import as_tensor, numbers
from ..graph import Attr, Op, OpDef, Order, Value, register
from ..opkit import count, int_attr, known_attrs, need_dim, need_elem, need_rank, product_cost, text_attr, traffic
from ..types import TensorType, Type, simplify_dim
from .contract import check_class

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class GroupedContract(OpDef):
    """a `[M, K]`, b `[E, N, K]`, rows `i32[P]`, tile_expert `i32[P/tile]` -> `bf16[P, N]`.

    Row p is row `rows[p]` of a times expert `tile_expert[p/tile]`. Rows without a source row or an expert (-1, or
    outside of a or b) are undefined: NaN in the interpreter, not stored by kernels.
    """

    kind = "grouped_contract"
    fusion = "grouped_matmul"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "cls", "tile", "order")
        count(operands, 4)
        a, b, rows, tile_expert = operands
        elem = check_class(a, b, attrs, ("G4",))
        text_attr(attrs, "order", "")
        need_rank(a, 2, "A")
        need_rank(b, 3, "B")
        need_dim(a.tensor.shape[1], b.tensor.shape[2], "K of A and K of B")
        need_elem(rows, ("i32",), "rows")
        need_elem(tile_expert, ("i32",), "tile_expert")
        (places,), (tiles,) = need_rank(rows, 1, "rows"), need_rank(tile_expert, 1, "tile_expert")
        need_dim(places, simplify_dim(sympy.sympify(tiles) * int_attr(attrs, "tile", least=1)), "rows and tiles * tile")
        return [TensorType(elem, (places, b.tensor.shape[1]))]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        a, b = numbers(args[0]), numbers(args[1])
        rows = as_tensor(args[2])
        experts = as_tensor(args[3]).repeat_interleave(int_attr(op.attrs, "tile"))
        exists = (rows >= 0) & (rows < a.shape[0]) & (experts >= 0) & (experts < b.shape[0])
        out = torch.full((rows.shape[0], b.shape[1]), torch.nan, dtype=torch.float64)
        for expert in sorted(set(experts[exists].tolist())):
            places = (exists & (experts == expert)).nonzero()[:, 0]
            out[places] = round_bf16(a[rows[places]] @ b[expert].T)
        return [out]

    def factors(self, op: Op) -> str:
        return "M K, E n K, P, Q -> P n"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Counts every place and every expert's weights: the worst case, which a plan must provide for."""
        places, n = op.result.tensor.shape
        return product_cost(places, n, op.operands[0].tensor.shape[1]), traffic(op)

    def order(self, op: Op) -> Order | None:
        return Order(op.operands[0].tensor.shape[1], "contract")
