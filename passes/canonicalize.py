"""`canonicalize`: views of views, identities, constant maps, common subexpressions, dead code."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dinfc.ir.graph import Builder, Function, Module, Op, Value
from dinfc.ir.scalar import Expr, cast, substitute
from dinfc.ir.types import StateType, dim_text

from .base import Context, Pass
from .rules import Rule, apply_rules
from .walk import bodies, remap

# Ops that stay although nobody reads them, and of which two equal ones are still two.
EFFECTS = frozenset({"state_write", "call", "random"})


def _same_type(op: Op) -> str:
    return "" if op.result.type == op.operands[0].type else f"it changes {op.operands[0].type} to {op.result.type}"


def _views_a_view(op: Op) -> str:
    producer = op.operands[0].producer
    return "" if producer is not None and producer.kind == "view" else "its operand is not made by a view"


def _single_operand(op: Op) -> str:
    return "" if len(op.operands) == 1 and not _same_type(op) else f"it joins {len(op.operands)} operands"


def _copies_operand(op: Op) -> str:
    """A map that only hands its operand through: same shape, same element, no expansion."""
    if len(op.operands) != 1:
        return f"it reads {len(op.operands)} operands"
    expr = op.attrs.get("expr")
    if not isinstance(expr, Expr) or expr.op != "arg":
        return "its expression computes something"
    dims = op.attrs.get("dims")
    if dims != (tuple(range(op.operands[0].tensor.rank)),):
        return "it permutes or expands dims"
    return _same_type(op)


def _reads_constant_map(op: Op) -> str:
    if not isinstance(op.attrs.get("expr"), Expr):
        return "it has no expression"
    return "" if any(_splat(v) is not None for v in op.operands) else "no operand is a map of a constant"


def _splat(value: Value) -> Expr | None:
    """The constant that every element of `value` has, or None."""
    producer = value.producer
    if producer is None or producer.kind != "map":
        return None
    expr = producer.attrs.get("expr")
    return expr if isinstance(expr, Expr) and expr.op == "const" else None


def drop_identity(op: Op, b: Builder) -> Value:
    return op.operands[0]


def drop_identity_map(op: Op, b: Builder) -> Value:
    return op.operands[0]


def drop_single_concat(op: Op, b: Builder) -> Value:
    return op.operands[0]


def merge_views(op: Op, b: Builder) -> Value:
    inner = op.operands[0].producer
    assert inner is not None
    return b.one("view", [inner.operands[0]], op.result.name, **op.attrs)


def inline_constant_map(op: Op, b: Builder) -> Value:
    """Puts the constant of a splat operand into the expression and drops the operand."""
    expr, dims = op.attrs["expr"], op.attrs["dims"]
    assert isinstance(expr, Expr) and isinstance(dims, tuple)
    kept = [i for i, v in enumerate(op.operands) if _splat(v) is None]
    position = {old: new for new, old in enumerate(kept)}

    def leaf(node: Expr) -> Expr | None:
        if node.op != "arg" or not isinstance(node.attr, int):
            return None
        constant = _splat(op.operands[node.attr])
        if constant is not None:
            return cast(constant, node.dtype)
        return Expr("arg", (), node.dtype, position[node.attr])

    # The output dims are written out: the operand that covered one of them may be gone.
    shape = tuple(d if isinstance(d, int) else dim_text(d) for d in op.result.tensor.shape)
    attrs = {**op.attrs, "expr": substitute(expr, leaf), "dims": tuple(dims[i] for i in kept), "shape": shape}
    return b.one("map", [op.operands[i] for i in kept], op.result.name, **attrs)


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Fewer ops for the same values: identities and equal ops go, dead code goes, effects stay."""

    name: ClassVar[str] = "canonicalize"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(("view", "slice", "relayout"), _same_type, drop_identity),
        Rule(("concat",), _single_operand, drop_single_concat),
        Rule(("map",), _copies_operand, drop_identity_map),
        Rule(("view",), _views_a_view, merge_views),
        Rule(("map",), _reads_constant_map, inline_constant_map),
    )
    max_rounds: int = 8

    def run(self, module: Module, context: Context) -> Module:
        for function in module.functions.values():
            for body in bodies(function):
                for _ in range(self.max_rounds):
                    changed = apply_rules(body, module, self.rules, self.name, context)
                    changed |= share_equal_ops(body, context)
                    if not changed:
                        break
            remove_dead_code(function, context)
        return module


def share_equal_ops(function: Function, context: Context) -> bool:
    """Common subexpressions: the first of several equal ops stands for all (ops with effects or bodies excepted)."""
    seen: dict[object, Op] = {}
    replaced: dict[Value, Value] = {}
    kept = []
    for op in function.ops:
        op.operands = remap(op.operands, replaced)
        if op.kind in EFFECTS or op.regions:
            kept.append(op)
            continue
        # By text, since 0.0 == -0.0 and 1 == True as values.
        key = (op.kind, tuple(id(v) for v in op.operands), repr(sorted(op.attrs.items(), key=lambda item: item[0])))
        first = seen.setdefault(key, op)
        if first is op:
            kept.append(op)
            continue
        replaced.update(zip(op.results, first.results, strict=True))
        context.fired[Canonicalize.name, "share_equal_ops"] += 1
    function.ops = kept
    function.results = remap(function.results, replaced)
    return bool(replaced)


def remove_dead_code(function: Function, context: Context) -> None:
    """Removes ops whose results nobody needs. A state write is kept: what it stores is read by a later step."""
    for body in bodies(function):
        live = set(body.results)
        kept = []
        for op in reversed(body.ops):
            if any(r in live for r in op.results) or has_effect(op):
                live.update(op.operands)
                kept.append(op)
            else:
                context.fired[Canonicalize.name, "remove_dead_code"] += 1
        body.ops = kept[::-1]


def has_effect(op: Op) -> bool:
    """True if the op, or an op inside it, changes a state or draws random bits; calls are taken to do so."""
    if op.kind in EFFECTS or any(isinstance(r.type, StateType) for r in op.results):
        return True
    return any(has_effect(inner) for region in op.regions for inner in region.ops)
