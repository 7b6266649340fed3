"""Sample cases of ops, and what every op must satisfy on them.

A kind contributes cases with `@cases("kind")`, or with one row of a table such as the one in op_samples_table.py;
`all_cases()` loads every file tests/support/op_samples*.py and collects them. The harness
(tests/unit/test_ops_harness.py) walks the op registry, so an op without a case is a failing test.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from dinfc.ir import codecs
from dinfc.ir.data import INT_POISON, Data, Quantised, State
from dinfc.ir.graph import Attr, Builder, Function, Module, Op, Value
from dinfc.ir.interpret import Interpreter
from dinfc.ir.scalar import FLOATS
from dinfc.ir.types import Dim, StateType, Symbol, TensorType, dim_value, symbol

T, S = symbol("T"), symbol("S")
ROWS = 6  # value of T in every case
POISON_ROWS = 3  # rows appended by `with_poisoned_rows`
SYMBOLS = (Symbol("T", 1, 64), Symbol("S", 1, 8))

Args = dict[str, Data]


@dataclass(frozen=True)
class OpCase:
    """One op in a function `f` with the values it is run on.

    `row_parallel`: row t of every result depends on row t of the operands whose leading dim is T, and on whole other
    operands. `unread`: changes operand elements that the op must not read. `defined`: a mask of the elements of result
    n that have a meaning. `counted`: the cost's bytes are those of all operands and results.
    """

    name: str
    kind: str
    module: Module
    args: Args
    symbols: Mapping[str, int] = field(default_factory=lambda: {"T": ROWS, "S": 2})
    row_parallel: bool = True
    unread: Callable[[Args], None] | None = None
    defined: Callable[[Args, list[Data]], list[Tensor]] | None = None
    counted: bool = False

    @property
    def function(self) -> Function:
        return self.module.functions["f"]

    @property
    def op(self) -> Op:
        return next(op for op in self.function.ops if op.kind == self.kind)

    def run(self, args: Args | None = None, **symbols: int) -> list[Data]:
        """Results of the function; states are copied first."""
        values = {n: v.clone() if isinstance(v, State) else v for n, v in (args or self.args).items()}
        return Interpreter(self.module).run("f", values, {**self.symbols, **symbols})


Make = Callable[[], Sequence[OpCase]]
_MAKERS: dict[str, Make] = {}


def cases(kind: str) -> Callable[[Make], Make]:
    """Registers the function that makes the cases of an op kind."""

    def register(make: Make) -> Make:
        if kind in _MAKERS:
            raise ValueError(f"cases of {kind!r} are registered twice")
        _MAKERS[kind] = make
        return make

    return register


def all_cases() -> dict[str, list[OpCase]]:
    """Cases by kind."""
    for path in sorted(Path(__file__).parent.glob("op_samples*.py")):
        importlib.import_module(f"support.{path.stem}")  # it registers its cases
    return {kind: list(make()) for kind, make in sorted(_MAKERS.items())}


def case(kind: str, name: str, params: Sequence[Value], build: Callable[[Builder, dict[str, Value]], object],
         given: Mapping[str, Data] | None = None, **options: object) -> OpCase:
    """A case whose function has `params` and is filled by `build`; values not `given` are random by their types."""
    function = Function("f", list(params))
    module = Module({"f": function}, {s.name: s for s in SYMBOLS})
    built = build(Builder(function, module), {p.name: p for p in params})
    function.results = [built] if isinstance(built, Value) else list(built)  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(len(name) + 31 * len(kind))
    symbols = {"T": ROWS, "S": 2}
    args = {p.name: (given or {}).get(p.name, random_value(p.type, symbols, generator)) for p in params}
    return OpCase(name, kind, module, args, **options)  # type: ignore[arg-type]


def one_op(kind: str, name: str, params: Sequence[Value], attrs: Mapping[str, Attr] = {},
           given: Mapping[str, Data] | None = None, **options: object) -> OpCase:
    """A case that is one op with the parameters as its operands."""
    return case(kind, name, params, lambda b, p: b.op(kind, list(p.values()), **attrs), given, **options)


def value(name: str, elem: str, *shape: Dim, bounds: tuple[Dim, Dim] | None = None) -> Value:
    return Value(name, TensorType(elem, shape, bounds))


def random_value(type_: TensorType | StateType, symbols: Mapping[str, int], generator: torch.Generator) -> Data:
    """A value of a type: normal numbers, integers inside of the bounds (or 0..3), states of 4 slots or pages."""
    if isinstance(type_, StateType):
        state = State.make(type_, 4)
        shape = (state.records, type_.width)
        filled = _random_tensor(type_.elem, shape, None, generator)
        state.write(torch.arange(state.records), filled)
        return state
    shape = tuple(dim_value(d, dict(symbols)) for d in type_.shape)
    bounds = None if type_.bounds is None else (
        dim_value(type_.bounds[0], dict(symbols)), dim_value(type_.bounds[1], dict(symbols)))
    return _random_tensor(type_.elem, shape, bounds, generator)


def _random_tensor(elem: str, shape: tuple[int, ...], bounds: tuple[int, int] | None,
                   generator: torch.Generator) -> Tensor | Quantised:
    type_ = TensorType(elem, shape)
    if type_.codec is not None and type_.codec.rows > 1:
        codes = torch.randint(0, 120, shape, generator=generator).to(torch.uint8)
        rows = (*shape[:-2], -(-shape[-2] // type_.codec.rows), shape[-1] // type_.codec.group)
        return Quantised(codes, torch.randint(120, 130, rows, generator=generator).to(torch.uint8), type_.codec)
    if type_.codec is not None:
        x = codecs.round_bf16(torch.randn(shape, generator=generator, dtype=torch.float64))
        return Quantised(*codecs.encode(x, type_.codec), type_.codec)
    if elem in FLOATS:
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return codecs.round_bf16(x) if elem == "bf16" else x
    if elem == "bool":
        return torch.randint(0, 2, shape, generator=generator).bool()
    low, high = bounds or (0, 4)
    return torch.randint(low, high, shape, generator=generator)


def is_row_param(param: Value) -> bool:
    """Whether a parameter has one row per row of the step."""
    return isinstance(param.type, TensorType) and bool(param.type.shape) and param.type.shape[0] == T


def map_tensors(data: Data, change: Callable[[Tensor], Tensor]) -> Data:
    """The same kind of value with its tensors changed."""
    if isinstance(data, Quantised):
        return Quantised(change(data.codes), change(data.scales), data.codec)
    assert isinstance(data, Tensor)
    return change(data)


def row_alone(case_: OpCase, row: int) -> list[Data]:
    """The results with `row` as the only row of the step."""
    args = {p.name: map_tensors(case_.args[p.name], lambda x: x[row:row + 1]) if is_row_param(p)
            else case_.args[p.name] for p in case_.function.params}
    return case_.run(args, T=1)


def with_poisoned_rows(case_: OpCase) -> list[Data]:
    """The results with rows of NaN, 0xFF bytes and far integers behind the real ones."""
    def extended(param: Value) -> Data:
        def extend(x: Tensor) -> Tensor:
            fill = poison_of(x, param.tensor.bounds, case_.symbols)
            return torch.cat([x, torch.full((POISON_ROWS, *x.shape[1:]), fill, dtype=x.dtype)])

        return map_tensors(case_.args[param.name], extend)

    args = {p.name: extended(p) if is_row_param(p) else case_.args[p.name] for p in case_.function.params}
    return case_.run(args, T=ROWS + POISON_ROWS)


def poison_of(x: Tensor, bounds: tuple[Dim, Dim] | None, symbols: Mapping[str, int]) -> float:
    """What unwritten memory might hold; an integer with bounds is the largest that its type allows."""
    if bounds is not None:
        return dim_value(bounds[1], dict(symbols)) - 1
    if x.dtype == torch.uint8:
        return 0xFF
    if x.dtype == torch.bool:
        return 1
    return float("nan") if x.dtype.is_floating_point else INT_POISON


def tensors(data: Data) -> list[Tensor]:
    """The tensors of a value: numbers, or codes and scales."""
    if isinstance(data, State):
        return [data.data] if data.scales is None else [data.data, data.scales]
    return [data.codes, data.scales] if isinstance(data, Quantised) else [data]


def same(a: Tensor, b: Tensor, exact: bool = True) -> bool:
    """Equal elementwise, NaN equal to NaN; unless `exact`, floats may differ in the last bits of fp64."""
    if a.shape != b.shape:
        return False
    if not a.dtype.is_floating_point or exact:
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)
