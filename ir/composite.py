"""Base class of composite ops: the decomposition is the definition, so every other rule is derived from it."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import sympy

from .graph import Attr, Builder, Function, Module, Op, OpDef, Value, definition
from .opkit import count, opaque
from .types import Type


class Composite(OpDef):
    """An op defined by `build`; its type rule, cost and reference are those of the primitives that `build` makes.

    `takes`: least and most operands, so that `build` may unpack them.
    """

    composite = True
    takes: ClassVar[tuple[int, int]] = (1, 1)

    def build(self, b: Builder, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Value]:
        """Appends the defining primitives and returns the results. Raises IRError where operands do not fit."""
        raise NotImplementedError

    def scratch(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> Function:
        """The decomposition as a function of its own. Raises IRError where operands or attributes do not fit."""
        count(operands, *self.takes)
        function = Function(self.kind, [Value(f"a{i}", v.type) for i, v in enumerate(operands)])
        function.results = self.build(Builder(function, Module()), function.params, attrs)
        return function

    def infer(self, operands: Sequence[Value], attrs: Mapping[str, Attr]) -> list[Type]:
        return [r.type for r in self.scratch(operands, attrs).results]

    def decompose(self, b: Builder, op: Op) -> list[Value]:
        return self.build(b, op.operands, op.attrs)

    def factors(self, op: Op) -> str:
        return opaque(op)

    def cost(self, op: Op) -> tuple[sympy.Expr, sympy.Expr]:
        flops, moved = sympy.Integer(0), sympy.Integer(0)
        for inner in self.scratch(op.operands, op.attrs).ops:
            f, m = definition(inner.kind).cost(inner)
            flops, moved = flops + f, moved + m
        return flops, moved
