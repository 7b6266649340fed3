"""Small tools over functions that every pass needs: nested ops, users, replacement, cloning."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dinfc.ir.graph import Function, IRError, Module, Op, Value


def nested_ops(function: Function) -> Iterator[Op]:
    """All ops of a function, those inside regions after the op that holds them."""
    for op in function.ops:
        yield op
        for region in op.regions:
            yield from nested_ops(region)


def bodies(function: Function) -> Iterator[Function]:
    """The function and every region body below it, parents first."""
    yield function
    for op in function.ops:
        for region in op.regions:
            yield from bodies(region)


def users(function: Function) -> dict[Value, list[Op]]:
    """Ops that use each value, in program order; an op that uses it twice is listed once."""
    out: dict[Value, list[Op]] = {}
    for op in function.ops:
        for value in dict.fromkeys(op.operands):
            out.setdefault(value, []).append(op)
    return out


def remap(values: Iterable[Value], replaced: Mapping[Value, Value]) -> list[Value]:
    """The values, each replaced until it has no replacement."""
    out = []
    for value in values:
        while value in replaced:
            value = replaced[value]
        out.append(value)
    return out


def clone_function(function: Function, name: str | None = None) -> Function:
    """A deep copy with new values of the same names."""
    values: dict[Value, Value] = {}
    params = [fresh(p, values) for p in function.params]
    out = Function(name or function.name, params)
    for op in function.ops:
        out.ops.append(clone_op(op, values))
    out.results = [values[r] for r in function.results]
    return out


def clone_op(op: Op, values: dict[Value, Value]) -> Op:
    """A copy of one op whose operands are translated by `values`; its results are added there."""
    try:
        operands = [values[v] for v in op.operands]
    except KeyError as error:
        raise IRError(f"%{error.args[0].name} is used before it is made", op) from None
    new = Op(op.kind, operands, dict(op.attrs), regions=[clone_function(r) for r in op.regions], loc=op.loc)
    for result in op.results:
        fresh(result, values).producer = new
    new.results = [values[r] for r in op.results]
    return new


def fresh(value: Value, values: dict[Value, Value]) -> Value:
    """A new value of the same name and type, recorded in `values`."""
    values[value] = Value(value.name, value.type)
    return values[value]


def clone_module(module: Module) -> Module:
    """A copy whose functions may be edited; symbols and constants are shared, they are immutable."""
    return Module({name: clone_function(f) for name, f in module.functions.items()}, dict(module.symbols),
                  dict(module.constants), dict(module.info))
