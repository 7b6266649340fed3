"""One op on given numbers, through the reference interpreter."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dinfc.ir.data import Data, Quantised, State
from dinfc.ir.graph import Attr, Builder, Function, Module, Value
from dinfc.ir.interpret import Interpreter
from dinfc.ir.types import StateType, TensorType

Operand = tuple[str, object] | Quantised | State  # (element, numbers as nested lists or a tensor)


def run_op(kind: str, *operands: Operand, **attrs: Attr) -> list[Data]:
    """Results of the op `kind` on operands whose dims are all numbers."""
    params, args = [], {}
    for number, operand in enumerate(operands):
        type_, data = typed(operand)
        params.append(Value(f"a{number}", type_))
        args[f"a{number}"] = data
    function = Function("f", params)
    function.results = Builder(function).op(kind, params, **attrs)
    return Interpreter(Module({"f": function})).run("f", args, {})


def typed(operand: Operand) -> tuple[TensorType | StateType, Data]:
    if isinstance(operand, State):
        return operand.type, operand
    if isinstance(operand, Quantised):
        return TensorType(operand.codec.name, tuple(operand.codes.shape)), operand
    elem, numbers = operand
    data = numbers if isinstance(numbers, Tensor) else torch.tensor(numbers)
    return TensorType(elem, tuple(data.shape)), data


def run_one(kind: str, *operands: Operand, **attrs: Attr) -> Tensor:
    """The single result, a plain tensor."""
    (result,) = run_op(kind, *operands, **attrs)
    assert isinstance(result, Tensor)
    return result


def quantised(codec: str, values: Sequence[float] | Tensor) -> Quantised:
    """bf16 numbers `[.., n]` through the op `quantize`."""
    data = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.float64)
    (result,) = run_op("quantize", ("bf16", data), codec=codec)
    assert isinstance(result, Quantised)
    return result
