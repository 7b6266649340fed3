"""Which states an op or a function writes: the answer behind every anti-dependency and every aliased result."""
from __future__ import annotations

from dinfc.ir.graph import Function, IRError, Module, Op, Value


def state_source(value: Value, module: Module) -> Value:
    """The function parameter whose buffer this state version lies in.

    Versions are followed through `state_write`, `region` and `call`. Raises IRError where a version has no source.
    """
    while value.producer is not None:
        value = previous_version(value.producer, value, module)
    return value


def previous_version(op: Op, result: Value, module: Module) -> Value:
    """The operand whose buffer holds the state `result` of `op`."""
    if op.kind == "state_write":
        return op.operands[0]
    if op.kind == "region":
        body = op.regions[0]
        inner = state_source(body.results[op.results.index(result)], module)
        return op.operands[body.params.index(inner)]
    if op.kind == "call":
        callee = module.functions[str(op.attrs["callee"])]
        inner = state_source(callee.results[op.results.index(result)], module)
        return op.operands[callee.params.index(inner)]
    raise IRError(f"{op.kind} cannot make a version of a state", op)


def written_operands(op: Op, module: Module) -> set[int]:
    """Numbers of the operands whose state this op writes."""
    if op.kind == "state_write":
        return {0}
    if op.kind == "region":
        return _written_params(op.regions[0], module)
    if op.kind == "call":
        return _written_params(module.functions[str(op.attrs["callee"])], module)
    return set()


def _written_params(function: Function, module: Module) -> set[int]:
    """Parameters that some op of the function writes, whether or not the new version is returned."""
    return {
        function.params.index(state_source(op.operands[number], module))
        for op in function.ops for number in written_operands(op, module)
    }
