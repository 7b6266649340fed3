"""`pin_reductions`: every reduction gets the order that the target pins for its kind and extent (design section 8)."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dinfc.ir.graph import Function, IRError, Module, Op, Order, definition
from dinfc.ir.protocols import Target
from dinfc.ir.scalar import FLOATS

from .base import Context, Level, Pass
from .walk import nested_ops


@dataclass(frozen=True)
class PinReductions(Pass):
    """Sets the attribute `order` of every op that reduces, from the target and the reduced extent alone.

    Nothing that depends on the batch (rows, bucket, tile shape) enters, so equal rows are reduced in equal order.
    """

    name: ClassVar[str] = "pin_reductions"
    requires: ClassVar[Level] = Level.primitive
    guarantees: ClassVar[Level] = Level.pinned

    def run(self, module: Module, context: Context) -> Module:
        for function in module.functions.values():
            for op, order in reductions(function):
                op.attrs["order"] = pinned_order(op, order, context.target)
                context.fired[self.name, order.kind] += 1
        return module


def reductions(function: Function) -> Iterator[tuple[Op, Order]]:
    """Ops of the function that reduce, nested ones included, with what they reduce."""
    for op in nested_ops(function):
        if op.kind == "region":
            continue
        order = definition(op.kind).order(op)
        if order is not None:
            yield op, order


def pinned_order(op: Op, order: Order, target: Target) -> str:
    """The order text for one op. Raises IRError where floats are reduced over an extent that depends on the step."""
    if isinstance(order.extent, int):
        return target.reduction_order(order.kind, order.extent)
    if op.result.tensor.elem in FLOATS:
        raise IRError(f"{op.kind} reduces over {order.extent}, which is not known when compiling: its order could "
                      "depend on the batch", op)
    return target.reduction_order(order.kind, None)  # exact in integers, whatever the order


def changed_orders(module: Module, target: Target) -> list[str]:
    """Reductions whose order is not what the target pins, as text; the pipeline asks after every later pass."""
    out = []
    for function in module.functions.values():
        for op, order in reductions(function):
            wanted = pinned_order(op, order, target)
            if op.attrs.get("order") != wanted:
                out.append(f"@{function.name}: %{op.result.name} = {op.kind} has order {op.attrs.get('order')!r}, "
                           f"pinned is {wanted!r}")
    return out
