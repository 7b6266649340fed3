"""`decompose`: composites become the primitives that define them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dinfc.ir.graph import Builder, Function, IRError, Module, Value, definition

from .base import Context, Level, Pass
from .walk import remap

MAX_NESTING = 16  # composites of composites; a deeper nest means that a definition contains itself


@dataclass(frozen=True)
class Decompose(Pass):
    """Replaces every composite op by its decomposition, which is its definition; new ops say in `loc` what they came
    from."""

    name: ClassVar[str] = "decompose"
    guarantees: ClassVar[Level] = Level.primitive

    def run(self, module: Module, context: Context) -> Module:
        for function in module.functions.values():
            _decompose_body(function, module, context)
        return module


def _decompose_body(function: Function, module: Module, context: Context) -> None:
    for _ in range(MAX_NESTING):
        if not _decompose_once(function, module, context):
            break
    else:
        raise IRError(f"composites of @{function.name} are nested more than {MAX_NESTING} deep")
    for op in function.ops:
        for region in op.regions:
            _decompose_body(region, module, context)


def _decompose_once(function: Function, module: Module, context: Context) -> bool:
    """One level of composites; True if there was one."""
    old, function.ops = function.ops, []
    builder = Builder(function, module)
    builder.names |= {r.name for op in old for r in op.results}
    replaced: dict[Value, Value] = {}
    found = False
    for op in old:
        op.operands = remap(op.operands, replaced)
        rule = definition(op.kind)
        if not rule.composite:
            function.ops.append(op)
            continue
        found = True
        builder.loc = f"{op.loc}/{op.kind}" if op.loc else op.kind
        before = len(function.ops)
        values = rule.decompose(builder, op)
        made = {r for new in function.ops[before:] for r in new.results}
        for result, value in zip(op.results, values, strict=True):
            if value.type != result.type:
                raise IRError(f"the decomposition of {op.kind} gives {value.type}, its type rule {result.type}", op)
            if value in made:
                value.name = result.name  # stable names: the value keeps the composite's name
                made.discard(value)
            replaced[result] = value
        context.fired[Decompose.name, op.kind] += 1
    function.results = remap(function.results, replaced)
    return found
