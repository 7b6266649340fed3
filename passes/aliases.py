"""Which values share a buffer after `fuse`: views, call results that the callee hands through, versions of a state."""
from __future__ import annotations

from collections.abc import Mapping

from dinfc.ir.graph import Function, IRError, Op, Value
from dinfc.ir.types import TensorType

from .frame import Frame, ResultPlace


def root_of(value: Value, frames: Mapping[str, Frame]) -> Value:
    """The parameter, constant, region result or call result whose buffers hold a tensor value."""
    while (op := value.producer) is not None:
        if op.kind == "view":
            value = op.operands[0]
        elif op.kind == "call" and (source := _handed_through(op, value, frames)) is not None:
            value = source
        else:
            break
    return value


def _handed_through(op: Op, value: Value, frames: Mapping[str, Frame]) -> Value | None:
    place = frames[str(op.attrs["callee"])].results[op.results.index(value)]
    if place is not None and place.kind == "param":
        return op.operands[place.index]
    if place is not None and place.kind == "result":
        return op.results[place.index]
    return None


def result_places(function: Function, frames: Mapping[str, Frame]) -> tuple[ResultPlace | None, ...]:
    """Where the function's tensor results lie (None for states). Raises IRError for one that is a constant table."""
    seen: dict[Value, int] = {}
    out: list[ResultPlace | None] = []
    for number, result in enumerate(function.results):
        if not isinstance(result.type, TensorType):
            out.append(None)
            continue
        root = root_of(result, frames)
        if root.producer is None:
            out.append(ResultPlace("param", function.params.index(root)))
        elif root.producer.kind == "constant":
            raise IRError(f"@{function.name} returns the constant %{result.name}; its users can name it themselves")
        elif root in seen:
            out.append(ResultPlace("result", seen[root]))
        else:
            seen[root] = number
            out.append(ResultPlace("own"))
    return tuple(out)
