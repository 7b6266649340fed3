"""Order of state accesses: a state value is one version, and a write ends the life of the version it replaces.

The interpreter and every target change states in place, so nobody may read a version after the write that replaced it.
"""
from __future__ import annotations

from collections.abc import Mapping

from .graph import Function, IRError, Module, Op, Value
from .types import StateType


def written_params(function: Function, module: Module, open_: frozenset[str] = frozenset()) -> tuple[bool, ...]:
    """For each param: whether it is a state that the function (or one that it calls) writes.

    Raises IRError for functions that call themselves.
    """
    if function.name in open_:
        raise IRError(f"@{function.name} calls itself")
    replaced = set(replacements(function, module, open_ | {function.name}))
    return tuple(p in replaced for p in function.params)


def replacements(function: Function, module: Module, open_: frozenset[str] = frozenset()) -> Mapping[Value, Op]:
    """State versions that an op of the function replaces -> that op. Raises IRError where one is replaced twice."""
    out: dict[Value, Op] = {}
    for op in function.ops:
        for value in replaced_by(op, module, open_):
            if value in out:
                raise IRError(f"state %{value.name} is written twice: the second write must take the version that the "
                              "first one gives", op)
            out[value] = op
    return out


def replaced_by(op: Op, module: Module, open_: frozenset[str] = frozenset()) -> list[Value]:
    """State operands of which the op makes a new version."""
    if op.kind == "state_write":
        return op.operands[:1]
    if op.kind == "call":
        callee = module.functions.get(str(op.attrs.get("callee")))
        if callee is None:
            raise IRError(f"there is no function @{op.attrs.get('callee')}", op)
        writes = written_params(callee, module, open_)
        return [v for v, w in zip(op.operands, writes, strict=False) if w]
    if op.regions and any(isinstance(v.type, StateType) for v in op.operands):
        inner = set(replacements(op.regions[0], module, open_))
        return [v for v, p in zip(op.operands, op.regions[0].params, strict=False) if p in inner]
    return []


def check_states(function: Function, module: Module) -> None:
    """Raises IRError (naming the op) for a version that is written twice, passed twice to an op that writes it, read
    after its write, or returned although it was replaced; and where the last version of a state is not returned."""
    replaced: dict[Value, Op] = {}
    for op in function.ops:
        for value in op.operands:
            if value in replaced:
                raise IRError(f"state %{value.name} is used after it was written; use the version that the write gives",
                              op)
        for value in replaced_by(op, module, frozenset({function.name})):
            if op.operands.count(value) > 1:
                raise IRError(f"state %{value.name} is passed twice to an op that writes it", op)
            replaced[value] = op
    returned = set(function.results)
    for value, op in replaced.items():
        if value in returned:
            raise IRError(f"@{function.name} returns state %{value.name}, which was written: return its last version",
                          op)
    for op in replaced.values():
        for result in op.results:
            if isinstance(result.type, StateType) and result not in replaced and result not in returned:
                raise IRError(f"the last version of a state, %{result.name}, is not returned from @{function.name}", op)
