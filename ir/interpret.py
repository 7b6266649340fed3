"""Reference interpreter of tensor IR, mode R64 (spec 0.3): the oracle of everything below it.

A function is prepared once: states are checked (`state_order`), composites are replaced by their decomposition, values
get numbered places. Running it walks a flat list of steps. Uninitialised memory reads as NaN.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .codecs import round_bf16
from .data import Data, Quantised, State
from .graph import Builder, Function, IRError, Module, Op, Value, definition
from .interpret_map import MapKernel, check_bounds
from .scalar import FLOATS
from .scalar_torch import wrap
from .state_order import Effects, state_effects
from .types import Dim, StateType, TensorType, dim_text, dim_value

__all__ = ["Data", "Evaluation", "Interpreter", "Quantised", "State"]

Evaluate = Callable[["Evaluation", Op, list[Data]], list[Data]]


@dataclass(frozen=True)
class _Step:
    """One op: places of its operands and results, and of values that nobody reads afterwards."""

    evaluate: Evaluate
    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True)
class _Prepared:
    places: int
    params: tuple[int, ...]
    steps: tuple[_Step, ...]
    results: tuple[int, ...]


class Evaluation:
    """What ops may ask for while they are evaluated, for one assignment of the symbols."""

    def __init__(self, interpreter: Interpreter, symbols: Mapping[str, int]) -> None:
        self.interpreter = interpreter
        self.symbols = dict(symbols)
        self._dims: dict[Dim, int] = {}
        self._maps: dict[Op, MapKernel] = {}

    def dim(self, dim: Dim) -> int:
        """The number that a dim has. Raises IRError for a symbol without a value."""
        if isinstance(dim, int):
            return dim
        if dim not in self._dims:
            try:
                self._dims[dim] = dim_value(dim, self.symbols)
            except TypeError:
                raise IRError(f"dimension {dim_text(dim)} needs a value for each of its symbols") from None
        return self._dims[dim]

    def shape(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.dim(d) for d in dims)

    def map(self, op: Op, args: list[Data]) -> Tensor:
        """Evaluates a `map`; its body is compiled on first use."""
        kernel = self._maps.get(op)
        if kernel is None:
            kernel = self._maps[op] = MapKernel(op, self.shape(op.result.tensor.shape), self.dim)
        return kernel(args)

    def wrap_i32(self, x: Tensor) -> Tensor:
        return wrap(x, "i32")

    def constant(self, name: str) -> Data:
        return self.interpreter.constant(name, self)

    def call(self, callee: str, args: list[Data]) -> list[Data]:
        return self.run_body(self.interpreter.function(callee), args)

    def run_body(self, function: Function, args: list[Data]) -> list[Data]:
        """Runs a function or the body of a region on values of its params."""
        prepared = self.interpreter.prepare(function)
        places: list[Data | None] = [None] * prepared.places
        for place, value in zip(prepared.params, args, strict=True):
            places[place] = value
        for step in prepared.steps:
            inputs = [places[i] for i in step.inputs]
            outputs = step.evaluate(self, step.op, inputs)  # type: ignore[arg-type]
            for place, value in zip(step.outputs, outputs, strict=True):
                places[place] = value
            for place in step.dead:
                places[place] = None
        return [places[i] for i in prepared.results]  # type: ignore[misc]


class Interpreter:
    """Runs the functions of a module.

    `weights`: values of parameters by name, used wherever a run does not give that parameter. Tensors may have any
    dtype: they are converted as `ir/data.py` says.
    """

    def __init__(self, module: Module, weights: Mapping[str, Data] | None = None) -> None:
        self.module = module
        self.weights = dict(weights or {})
        self._converted: dict[str, Data] = {}
        self._prepared: dict[Function, _Prepared] = {}
        self._constants: dict[str, Data] = {}
        self._effects: dict[str, Effects] = {}
        self._evaluations: dict[tuple[tuple[str, int], ...], Evaluation] = {}

    def run(self, function_name: str, args: Mapping[str, Data] | Sequence[Data],
            symbols: Mapping[str, int]) -> list[Data]:
        """Results of a function, in order.

        `args`: by parameter name, or a list for the parameters that `weights` does not have, in order. States are
        changed in place. Raises IRError where an argument is missing or does not have its parameter's type, or where a
        claimed integer bound turns out wrong.
        """
        function = self.function(function_name)
        if not isinstance(args, Mapping):
            names = [p.name for p in function.params if p.name not in self.weights]
            if len(names) != len(args):
                raise IRError(f"@{function_name} takes {len(names)} arguments besides weights, got {len(args)}")
            args = dict(zip(names, args, strict=True))
        unknown = set(args) - {p.name for p in function.params}
        if unknown:
            raise IRError(f"@{function_name} has no parameter %{min(unknown)}")
        evaluation = self.evaluation(symbols)
        return evaluation.run_body(function, [self._argument(p, args, evaluation) for p in function.params])

    def evaluation(self, symbols: Mapping[str, int]) -> Evaluation:
        key = tuple(sorted(symbols.items()))
        if key not in self._evaluations:
            self._evaluations[key] = Evaluation(self, symbols)
        return self._evaluations[key]

    def function(self, name: str) -> Function:
        if name not in self.module.functions:
            raise IRError(f"the module has no function @{name}")
        return self.module.functions[name]

    def constant(self, name: str, evaluation: Evaluation) -> Data:
        """The table of a module constant, made once."""
        if name not in self._constants:
            table = self.module.constants.get(name)
            if table is None:
                raise IRError(f"the module has no constant {name!r}")
            if table.type.codec is not None:
                raise IRError(f"constant {name!r} is {table.type}: tables are plain tensors")
            dtype = torch.float64 if table.type.elem in FLOATS else torch.int64
            value = torch.tensor(table.make(), dtype=dtype).reshape(evaluation.shape(table.type.shape))
            self._constants[name] = convert(value, table.type)
        return self._constants[name]

    def prepare(self, function: Function) -> _Prepared:
        prepared = self._prepared.get(function)
        if prepared is None:
            state_effects(function, self.module, self._effects)
            prepared = self._prepared[function] = self._plan(function)
        return prepared

    def _plan(self, function: Function) -> _Prepared:
        place = {value: n for n, value in enumerate(function.params)}
        last: dict[Value, int] = {}
        for number, op in enumerate(function.ops):
            for result in op.results:
                place[result] = len(place)
            last.update(dict.fromkeys([*op.operands, *op.results], number))
        last.update(dict.fromkeys(function.results, len(function.ops)))
        dead: dict[int, list[int]] = {}
        for value, number in last.items():
            dead.setdefault(number, []).append(place[value])
        steps = [
            _Step(self._evaluate(op), op, tuple(place[v] for v in op.operands), tuple(place[v] for v in op.results),
                  tuple(dead.get(number, ())))
            for number, op in enumerate(function.ops)
        ]
        return _Prepared(len(place), tuple(place[p] for p in function.params), tuple(steps),
                         tuple(place[r] for r in function.results))

    def _evaluate(self, op: Op) -> Evaluate:
        rule = definition(op.kind)
        if not rule.composite:
            return rule.evaluate
        body = decomposed(op, self.module)
        return lambda evaluation, _, args: evaluation.run_body(body, args)

    def _argument(self, param: Value, args: Mapping[str, Data], evaluation: Evaluation) -> Data:
        if param.name in args:
            value = convert(args[param.name], param.type)
        elif param.name in self._converted:
            return self._converted[param.name]
        elif param.name in self.weights:
            value = self._converted[param.name] = convert(self.weights[param.name], param.type)
        else:
            raise IRError(f"parameter %{param.name} has no value")
        if isinstance(param.type, TensorType):
            check_tensor(param.name, value, param.type, evaluation)
        elif not isinstance(value, State) or value.type != param.type:
            have = value.type if isinstance(value, State) else type(value).__name__
            raise IRError(f"parameter %{param.name} must be {param.type}, got {have}")
        return value


def decomposed(op: Op, module: Module) -> Function:
    """The function that defines a composite op: its operands are the params. Raises IRError where the decomposition
    does not give the types of the op's type rule."""
    params = [Value(f"operand{n}", v.type) for n, v in enumerate(op.operands)]
    function = Function(op.kind, params)
    shell = Op(op.kind, list(params), dict(op.attrs), [Value(r.name, r.type) for r in op.results], op.regions, op.loc)
    function.results = definition(op.kind).decompose(Builder(function, module), shell)
    for have, want in zip(function.results, op.results, strict=True):
        if have.type != want.type:
            raise IRError(f"the decomposition gives {have.type} for %{want.name}, the type rule {want.type}", op)
    return function


def convert(value: Data, type_: TensorType | StateType) -> Data:
    """A tensor of any dtype as the interpreter holds it; other values as they are."""
    if not isinstance(value, Tensor) or not isinstance(type_, TensorType):
        return value
    if type_.elem == "bool":
        return value.to(torch.bool)
    if type_.elem == "bf16" and value.dtype != torch.bfloat16:
        return round_bf16(value.to(torch.float64))
    return value.to(torch.float64 if type_.elem in FLOATS else torch.int64)


def check_tensor(name: str, value: Data, type_: TensorType, evaluation: Evaluation) -> None:
    """Raises IRError unless an argument has its parameter's element, shape and bounds."""
    if isinstance(value, State) or isinstance(value, Quantised) != (type_.codec is not None):
        raise IRError(f"parameter %{name} must be {type_}, got {type(value).__name__}")
    if isinstance(value, Quantised) and value.codec != type_.codec:
        raise IRError(f"parameter %{name} must be {type_}, got {value.codec.name}")
    shape = evaluation.shape(type_.shape)
    if tuple(value.shape) != shape:
        raise IRError(f"parameter %{name} must have shape {list(shape)} ({type_}), it has {list(value.shape)}")
    if type_.bounds is not None and isinstance(value, Tensor):
        check_bounds(value, evaluation.dim(type_.bounds[0]), evaluation.dim(type_.bounds[1]), f"parameter %{name}")
