"""Tensor IR: values, ops, functions, modules, the builder and the registry of op definitions (design section 4)."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .scalar import Expr
from .types import Symbol, TensorType, Type

if TYPE_CHECKING:
    import sympy

    from .interpret import Data, Evaluation

Attr = int | float | str | bool | None | Expr | tuple["Attr", ...]


class IRError(Exception):
    """A type or structure error; the verifier adds the place inside the printed IR."""

    def __init__(self, message: str, op: Op | None = None) -> None:
        super().__init__(message)
        self.op = op

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.op is None or text.startswith(self.op.kind) else f"{self.op.kind}: {text}"


@dataclass(eq=False)
class Value:
    """One SSA value; identity is the object, `name` is unique inside its function."""

    name: str
    type: Type
    producer: Op | None = None

    def __repr__(self) -> str:
        """Short: values and ops refer to one another, so showing all fields would show the whole graph many times."""
        return f"%{self.name}: {self.type}"

    @property
    def tensor(self) -> TensorType:
        """The type, for values that must be tensors. Raises IRError for a state."""
        if not isinstance(self.type, TensorType):
            raise IRError(f"%{self.name} is a state, a tensor is needed")
        return self.type


@dataclass(eq=False)
class Op:
    """One statement: `results = kind(operands) {attrs}`; `regions` holds the bodies of `repeat`."""

    kind: str
    operands: list[Value]
    attrs: dict[str, Attr]
    results: list[Value] = field(default_factory=list)
    regions: list[Function] = field(default_factory=list)
    loc: str = ""

    def __repr__(self) -> str:
        results, operands = ((", ".join(f"%{v.name}" for v in vs)) for vs in (self.results, self.operands))
        return f"<{results} = {self.kind}({operands})>"

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(eq=False)
class Function:
    """A list of ops over parameters. Parameter names with a dot are weight slots, e.g. `attn.wq_a`."""

    name: str
    params: list[Value]
    ops: list[Op] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<func @{self.name}, {len(self.ops)} ops>"


@dataclass
class Constant:
    """A constant table: values as nested fp64 or exact integers, evaluated on demand (`make` gives a flat list)."""

    name: str
    type: TensorType
    make: Callable[[], Sequence[float] | Sequence[int]]


@dataclass
class Module:
    """Functions by name plus the symbols they use, constants, and facts for the planner (`info`)."""

    functions: dict[str, Function] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    info: dict[str, int | str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<module {', '.join('@' + name for name in self.functions)}>"


@dataclass(frozen=True)
class Order:
    """Where an op reduces: its extent and what kind of order it needs (filled in by `pin_reductions`)."""

    extent: object
    kind: str  # contract | reduce | attend | score


class OpDef:
    """Everything the compiler knows of one op kind; subclasses live one a file in `ir/ops/` and are registered.

    `kind`: the printed name. `fusion`: anchor class of design section 7 (row, matmul, grouped_matmul, attend, score,
    select, scan, move), or "" for structure ops. `composite`: the op is defined by `decompose`.
    """

    kind: str = ""
    fusion: str = "row"
    composite: bool = False

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        """Result types. Raises IRError where operands or attributes do not fit."""
        raise NotImplementedError

    def evaluate(self, ev: Evaluation, op: Op, args: list[Data]) -> list[Data]:
        """Reference evaluation in torch, mode R64 (spec 0.3)."""
        raise NotImplementedError

    def decompose(self, b: Builder, op: Op) -> list[Value]:
        """Composites only: builds the defining primitives and returns the values of the op's results."""
        raise NotImplementedError

    def factors(self, op: Op) -> str:
        """Sharding rule: einsum-like factors, e.g. `"t i, t i -> t i"`; dims that must not be split are in capitals."""
        raise NotImplementedError

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        """(flops, bytes) as expressions of the symbols."""
        raise NotImplementedError

    def order(self, op: Op) -> Order | None:
        """The reduction that this op performs, or None."""
        return None


REGISTRY: dict[str, OpDef] = {}


def register(cls: type[OpDef]) -> type[OpDef]:
    """Class decorator: adds one instance to the registry. Raises ValueError on a name clash."""
    if cls.kind in REGISTRY:
        raise ValueError(f"op {cls.kind!r} is registered twice")
    REGISTRY[cls.kind] = cls()
    return cls


def definition(kind: str) -> OpDef:
    """The definition of an op kind; loads the op files on first use. Raises IRError for an unknown kind."""
    if kind not in REGISTRY:
        from . import ops  # noqa: F401 (registers them; they import this module)
    try:
        return REGISTRY[kind]
    except KeyError:
        raise IRError(f"unknown op {kind!r}") from None


class Builder:
    """Appends ops to a function; every op is inferred (and so type checked) when it is built."""

    def __init__(self, function: Function, module: Module | None = None) -> None:
        self.function = function
        self.module = module
        self.names: set[str] = {p.name for p in function.params}
        for op in function.ops:
            self.names |= {r.name for r in op.results}
        self.loc = ""
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A name not used in this function: the hint, or the hint with a number."""
        if hint and hint not in self.names:
            self.names.add(hint)
            return hint
        n = self._next.get(hint, 0)
        while f"{hint or 'v'}_{n}" in self.names:
            n += 1
        self._next[hint] = n + 1
        name = f"{hint or 'v'}_{n}"
        self.names.add(name)
        return name

    def op(self, kind: str, operands: Sequence[Value], hint: str | Sequence[str] = "",
           regions: Sequence[Function] = (), result_types: Sequence[Type] | None = None, **attrs: Attr) -> list[Value]:
        """Appends one op and returns its results. `result_types`: only for ops whose types no rule can infer (call)."""
        node = Op(kind, list(operands), dict(attrs), regions=list(regions), loc=self.loc)
        try:
            types = definition(kind).infer(node.operands, node.attrs) if result_types is None else list(result_types)
        except IRError as error:
            error.op = error.op or node
            raise
        hints = [hint] * len(types) if isinstance(hint, str) else list(hint)
        node.results = [Value(self.fresh(h or kind), t, node) for h, t in zip(hints, types, strict=True)]
        self.function.ops.append(node)
        return node.results

    def one(self, kind: str, operands: Sequence[Value], hint: str = "", **attrs: Attr) -> Value:
        """Appends an op with a single result."""
        (result,) = self.op(kind, operands, hint, (), None, **attrs)
        return result
