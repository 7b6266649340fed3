"""`state_write`: stores rows into a ring or into pages and gives the state's next version."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch

from ..data import Quantised, as_state, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import count, known_attrs, need_dim, need_elem, need_rank, need_state, tensor_bytes
from ..types import Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation


@register
class StateWrite(OpDef):
    """state, value `[M, width]`, slots `i32[M]` -> the state after the write.

    Row m goes to flat entry `slots[m]` (ring: slot * capacity + entry; pages: page * capacity + j); -1 stores nothing.
    Slots must be different and inside the state: the interpreter raises IRError otherwise.
    """

    kind = "state_write"
    fusion = "move"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs)
        count(operands, 3)
        state = need_state(operands[0], ("ring", "pages"), "operand")
        value, slots = operands[1:]
        rows, width = need_rank(value, 2, "value")
        need_elem(value, (state.elem,), "value")
        need_dim(width, state.width, "width of the value and of a record")
        need_elem(slots, ("i32",), "slots")
        need_dim(need_rank(slots, 1, "slots")[0], rows, "slots and rows of the value")
        return [state]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        state, slots = as_state(args[0]), as_tensor(args[2])
        rows = (slots != -1).nonzero()[:, 0]
        if rows.numel() == 0:
            return [state]
        value = args[1]
        assert not hasattr(value, "records")
        if rows.numel() != slots.numel():
            slots = slots[rows]
            if isinstance(value, Quantised):
                value = Quantised(value.codes[rows], value.scales[rows], value.codec)
            else:
                value = as_tensor(value)[rows]
        if int(slots.min()) < 0 or int(slots.max()) >= state.records:
            raise IRError(f"a slot is outside of the {state.records} records of %{op.operands[0].name}", op)
        if slots.numel() > 1 and torch.bincount(slots).max() > 1:
            raise IRError(f"two rows are stored in the same record of %{op.operands[0].name}", op)
        state.write(slots, value if isinstance(value, Quantised) else as_tensor(value))
        return [state]

    def factors(self, op: Op) -> str:
        return "S, M W, M -> S"

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        value, slots = op.operands[1:]
        return sympy.Integer(0), 2 * tensor_bytes(value.type) + tensor_bytes(slots.type)
