"""Running a `map` in the reference interpreter: aligned operands, coordinates, the compiled body, claimed bounds."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .data import Data, as_tensor
from .graph import IRError, Op
from .ops.map import operand_dims
from .scalar import Expr
from .scalar_torch import Body, compile_expr
from .types import Dim


class MapKernel:
    """One `map` for one shape of its result."""

    def __init__(self, op: Op, shape: tuple[int, ...], dim: Callable[[Dim], int]) -> None:
        expr = op.attrs["expr"]
        assert isinstance(expr, Expr)
        self.name = op.result.name
        self.shape = torch.Size(shape)
        body, coords = compile_expr(expr, len(op.operands))
        self.body: Body = body
        self.coords = [_coordinate(d, shape) for d in coords]
        self.aligns = [_align(over, len(shape)) for over in operand_dims(op.attrs)]
        bounds = op.result.tensor.bounds
        self.bounds = None if bounds is None else (dim(bounds[0]), dim(bounds[1]))

    def __call__(self, args: list[Data]) -> Tensor:
        inputs = [as_tensor(x) if align is None else align(as_tensor(x))
                  for x, align in zip(args, self.aligns, strict=True)]
        out = self.body(*inputs, *self.coords)
        if out.shape != self.shape:
            out = out.expand(self.shape)
        if self.bounds is not None:
            check_bounds(out, *self.bounds, f"%{self.name}")
        return out


def check_bounds(value: Tensor, low: int, high: int, what: str) -> None:
    """Raises IRError where an integer lies outside of the [low, high) that its type claims."""
    if value.numel() == 0:
        return
    least, most = torch.aminmax(value)
    if int(least) < low or int(most) >= high:
        raise IRError(f"{what} has values from {int(least)} to {int(most)}, its type claims [{low}, {high})")


def _coordinate(d: int, shape: tuple[int, ...]) -> Tensor:
    return torch.arange(shape[d]).reshape(-1, *[1] * (len(shape) - 1 - d))


def _align(over: tuple[int, ...], rank: int) -> Callable[[Tensor], Tensor] | None:
    """Brings an operand's dims to their places in the result; None where broadcasting does it by itself."""
    order = sorted(range(len(over)), key=over.__getitem__)
    places = [over[i] for i in order]
    # Dims in front of the first one need no filler: broadcasting aligns at the right.
    gaps = [d for d in range(places[0], rank) if d not in places] if places else []
    first = places[0] if places else rank
    fillers = [d - first for d in gaps]
    permuted = order != list(range(len(over)))
    if not permuted and not fillers:
        return None

    def align(x: Tensor) -> Tensor:
        if permuted:
            x = x.permute(order)
        for position in fillers:
            x = x.unsqueeze(position)
        return x

    return align
