"""Which states an op writes and where a version lies: the ground of anti-dependencies and of aliased results."""
from __future__ import annotations

from dinfc.ir.graph import IRError, Module, Op, Value
from dinfc.ir.state_order import op_effects


def written_operands(op: Op, module: Module) -> frozenset[int]:
    """Numbers of the operands whose state this op writes."""
    return op_effects(op, module, {}, frozenset()).written


def previous_version(op: Op, result: Value, module: Module) -> Value:
    """The operand whose buffer holds the state `result` of `op`. Raises IRError where there is none."""
    source = op_effects(op, module, {}, frozenset()).sources[op.results.index(result)]
    if source is None:
        raise IRError(f"%{result.name} is not a version of any state that the op is given", op)
    return op.operands[source]
