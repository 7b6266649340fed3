"""`gather_rows`: rows by index from one source, or from several by encoded index (design section 4a)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy
import torch
from torch import Tensor

from ..codecs import unit_scale
from ..data import Quantised, State, as_tensor
from ..graph import Attr, IRError, Op, OpDef, Value, register
from ..opkit import count, known_attrs, need_elem, need_shape, number_attr, opaque, tensor_bytes, with_fill
from ..types import Dim, StateType, TensorType, Type

if TYPE_CHECKING:
    from ..data import Data
    from ..interpret import Evaluation

SOURCE_SHIFT = 30  # an encoded index is source << 30 | offset, held in an i32 (source 2 makes it negative)
OFFSET_MASK = (1 << SOURCE_SHIFT) - 1


def record(source: Value) -> tuple[str, tuple[Dim, ...]]:
    """(element, shape of a row) of a source: a tensor `[N, ...]` or a state."""
    if isinstance(source.type, StateType):
        return source.type.elem, (source.type.width,)
    if source.type.rank == 0:
        raise IRError(f"source %{source.name} has no rows")
    return source.type.elem, source.type.shape[1:]


@register
class GatherRows(OpDef):
    """index `i32[T]` or `[T, k]`, sources -> `[T, (k,) ...]`.

    One source: the index is a row. Several: source = (index >> 30) & 3, offset = index & (2^30 - 1). A row that does
    not lie in its source (negative, past the end, source unknown) is `fill` (default 0); of a codec value it is code 0
    with scale 1. A source is a tensor `[N, ...]`, a ring (flat entries) or pages (records page * capacity + j).
    """

    kind = "gather_rows"
    fusion = "move"

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        known_attrs(attrs, "fill")
        count(operands, 2, 5)
        index, sources = operands[0], operands[1:]
        need_elem(index, ("i32",), "index")
        if index.tensor.rank not in (1, 2):
            raise IRError(f"index %{index.name} must have 1 or 2 dims, it is {index.tensor}")
        elem, row = record(sources[0])
        for source in sources[1:]:
            other, shape = record(source)
            if other != elem or len(shape) != len(row):
                raise IRError(f"sources differ: rows of %{sources[0].name} are {elem} {row}, "
                              f"of %{source.name} {other} {shape}")
            if isinstance(source.type, TensorType):
                need_shape(source, (source.type.shape[0], *row), "source")
        fill = number_attr(attrs, "fill", 0)
        bounds = None
        if len(sources) == 1 and isinstance(sources[0].type, TensorType):
            if sources[0].type.codec is not None and fill != 0:
                raise IRError(f"a row of {elem} can only be filled with 0, not {fill}")
            bounds = with_fill(sources[0].type.bounds, fill)
        return [TensorType(elem, (*index.tensor.shape, *row), bounds)]

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        index, sources = as_tensor(args[0]), args[1:]
        fill = number_attr(op.attrs, "fill", 0)
        if len(sources) == 1:
            return [pick(sources[0], index, _inside(sources[0], index), fill)]
        number, offset = (index >> SOURCE_SHIFT) & 3, index & OFFSET_MASK
        out: Data | None = None
        for n, source in enumerate(sources):
            here = (number == n) & _inside(source, offset)
            rows = pick(source, offset, here, fill)
            out = rows if out is None else _merge(out, rows, here)
        assert out is not None
        return [out]

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """Reads the index and one row per index, writes the result."""
        return sympy.Integer(0), tensor_bytes(op.operands[0].type) + 2 * tensor_bytes(op.result.type)


def _rows(source: Data) -> int:
    return source.records if isinstance(source, State) else source.shape[0]


def _inside(source: Data, index: Tensor) -> Tensor:
    return (index >= 0) & (index < _rows(source))


def pick(source: Data, index: Tensor, here: Tensor, fill: float) -> Tensor | Quantised:
    """Rows `index` of the source where `here`, filled elsewhere; only rows that exist are touched."""
    if _rows(source) == 0:
        index, source = index.clamp(0, 0), _one_row(source)
    safe = torch.where(here, index, 0)
    if isinstance(source, State):
        rows = source.read(safe)
    elif isinstance(source, Quantised):
        rows = Quantised(source.codes[safe], source.scales[safe], source.codec)
    else:
        rows = source[safe]
    if bool(here.all()):
        return rows
    if isinstance(rows, Quantised):
        codes = _masked(rows.codes, here, 0)
        return Quantised(codes, _masked(rows.scales, here, unit_scale(rows.codec)), rows.codec)
    return _masked(rows, here, fill)


def _one_row(source: Data) -> Tensor | Quantised:
    """A row that is never used, so that a source without rows can be indexed."""
    if isinstance(source, State):
        source = source.read(torch.zeros(0, dtype=torch.int64))
    if isinstance(source, Quantised):
        return Quantised(source.codes.new_zeros((1, *source.codes.shape[1:])),
                         source.scales.new_zeros((1, *source.scales.shape[1:])), source.codec)
    return source.new_zeros((1, *source.shape[1:]))


def _masked(rows: Tensor, here: Tensor, fill: float) -> Tensor:
    mask = here.reshape(*here.shape, *[1] * (rows.dim() - here.dim()))
    return torch.where(mask, rows, torch.tensor(fill, dtype=rows.dtype))


def _merge(old: Data, new: Tensor | Quantised, here: Tensor) -> Tensor | Quantised:
    """Rows of `new` where `here`, else of `old`."""
    if isinstance(new, Quantised):
        assert isinstance(old, Quantised)
        mask = here.unsqueeze(-1)
        return Quantised(torch.where(mask, new.codes, old.codes), torch.where(mask, new.scales, old.scales), new.codec)
    return torch.where(here.reshape(*here.shape, *[1] * (new.dim() - here.dim())), new, as_tensor(old))
