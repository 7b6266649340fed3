"""What each level of lowering means, checked on the IR itself: the verifier of a pass's `requires` and `guarantees`."""
from __future__ import annotations

from collections.abc import Callable

from dinfc.ir.graph import Module, Op, Value, definition
from dinfc.ir.types import TensorType

from .base import Context, Level
from .pin_reductions import reductions
from .walk import nested_ops
from .weights import entries

STRUCTURE = ("region", "call", "view", "constant")


def missing(module: Module, level: Level, context: Context) -> str:
    """Why the module lacks what this level adds, in words; "" if it has it (lower levels are not asked again)."""
    check = _CHECKS.get(level)
    return check(module, context) if check else ""


def _no_composites(module: Module, context: Context) -> str:
    for op in _ops(module):
        if op.kind != "region" and definition(op.kind).composite:
            return f"{op.kind} (%{op.result.name}) is a composite"
    return ""


def _orders(module: Module, context: Context) -> str:
    for function in module.functions.values():
        for op, _ in reductions(function):
            if not isinstance(op.attrs.get("order"), str):
                return f"{op.kind} (%{op.result.name}) has no reduction order"
    return ""


def _regions(module: Module, context: Context) -> str:
    for function in module.functions.values():
        for op in function.ops:
            if op.kind not in STRUCTURE:
                return f"{op.kind} (%{op.result.name}) of @{function.name} is in no region"
    return ""


def _layouts(module: Module, context: Context) -> str:
    for function in module.functions.values():
        for op in function.ops:
            if op.kind != "call":
                continue
            callee = module.functions[str(op.attrs["callee"])]
            for value, param in zip(op.operands, callee.params, strict=True):
                if _layout(value) != _layout(param):
                    return f"@{function.name} passes %{value.name}: {value.type} as %{param.name}: {param.type}"
    return ""


def _layout(value: Value) -> str:
    return value.type.layout if isinstance(value.type, TensorType) else ""


def _kernels(module: Module, context: Context) -> str:
    for op in _ops(module):
        if op.kind == "region" and op.attrs.get("kernel") not in context.programs:
            return f"region {op.attrs.get('kernel')} has no tile program"
    return ""


def _frames(module: Module, context: Context) -> str:
    absent = [name for name in module.functions if name not in context.frames]
    if context.arena is None:
        return "the arena is not laid out"
    return f"@{absent[0]} has no frame" if absent else ""


def _plan(module: Module, context: Context) -> str:
    if context.plan is None:
        return "there is no plan"
    absent = [f.name for f in entries(module) if f.name not in context.plan.entries]
    return f"@{absent[0]} is not in the plan" if absent else ""


_CHECKS: dict[Level, Callable[[Module, Context], str]] = {
    Level.primitive: _no_composites,
    Level.pinned: _orders,
    Level.fused: _regions,
    Level.laid_out: _layouts,
    Level.scheduled: _kernels,
    Level.placed: _frames,
    Level.planned: _plan,
}


def _ops(module: Module) -> list[Op]:
    return [op for function in module.functions.values() for op in nested_ops(function)]


