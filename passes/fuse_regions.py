"""Builds the `region` ops of `fuse`: operands, body, results, and the attributes that schedules and the planner read.

| attribute | meaning |
|---|---|
| `anchor` | class of the schedule: row, matmul, grouped_matmul, attend, score, select, segment, scan, collective |
| `kernel` | name of the kernel: a readable hint here, the tile program's name after `schedule` |
| `chunk` | names of operands and results that hold the rows of one chunk only (chunks.py) |
| `guard` | row regions over sorted expert rows: the operand `pair`; a row whose entry is -1 is skipped |
"""
from __future__ import annotations

from collections.abc import Sequence

from dinfc.ir.graph import Attr, Function, Op, Value
from dinfc.ir.types import StateType, TensorType, dim_text

from .fuse_graph import inline_ops, view_root
from .row_access import INTEGERS, fusion_class, row_dim
from .walk import clone_function, fresh

DULL = ("map", "view", "slice", "concat")  # kinds that say little in the name of a kernel


def build_regions(function: Function, clusters: Sequence[Sequence[Op]], chunked: set[Value]) -> None:
    """Replaces the function's ops by one region a cluster (calls stay as they are), in the given order, with the
    constants in front and views where they are first needed."""
    builder = _Regions(function, chunked)
    builder.emit_constants()
    for ops in clusters:
        builder.emit(ops)
    results = [builder.outer(r) for r in function.results]
    function.ops, function.results = builder.ops, results


class _Regions:
    def __init__(self, function: Function, chunked: set[Value]) -> None:
        self.function, self.chunked = function, chunked
        self.ops: list[Op] = []
        self.outside: dict[Value, Value] = {p: p for p in function.params}
        self.inline = inline_ops(function)
        self.needed = _needed_values(function)
        self.names: dict[str, int] = {}
        self.pairs = {dim_text(op.results[1].tensor.shape[0]): op.results[1]
                      for op in function.ops if op.kind == "segment"}

    def emit_constants(self) -> None:
        for op in self.function.ops:
            if op.kind == "constant":
                self.append(Op("constant", [], dict(op.attrs), loc=op.loc), op.results)

    def emit(self, ops: Sequence[Op]) -> None:
        """One cluster: a call as it is, anything else as a region."""
        first = ops[0]
        if first.kind == "call":
            operands = [self.outer(v) for v in first.operands]
            self.append(Op("call", operands, dict(first.attrs), loc=first.loc), first.results)
            return
        anchor = fusion_class(first)
        body = _Body(ops, self.inline)
        for op in ops:
            body.add(op)
        attrs: dict[str, Attr] = {"anchor": anchor, "kernel": self.kernel_hint(ops, anchor)}
        results = [r for op in ops for r in op.results
                   if isinstance(r.type, StateType) or any(user not in body.members for user in self.needed.get(r, ()))]
        guard = self.pairs.get(dim_text(row_dim(first))) if anchor == "row" else None
        if guard is not None and not all(isinstance(r.type, TensorType) and r.type.elem in INTEGERS for r in results):
            body.param(guard)
            attrs["guard"] = guard.name
        names = tuple(v.name for v in (*body.operands, *results) if v in self.chunked)
        if names:
            attrs["chunk"] = names
        operands = [self.outer(v) for v in body.operands]
        inner = body.function(str(attrs["kernel"]), results)
        self.append(Op("region", operands, attrs, regions=[inner], loc=first.loc), results)

    def append(self, op: Op, results: Sequence[Value]) -> None:
        """Adds an op to the new function; its results stand for `results` and keep their names."""
        op.results = [fresh(r, self.outside) for r in results]
        for result in op.results:
            result.producer = op
        self.ops.append(op)

    def outer(self, value: Value) -> Value:
        """The new function's value for one of the old function; a view becomes an alias at this point."""
        if value not in self.outside:
            view = value.producer
            assert view is not None and view.kind == "view", f"%{value.name} is used before its kernel"
            self.append(Op("view", [self.outer(view.operands[0])], dict(view.attrs), loc=view.loc), view.results)
        return self.outside[value]

    def kernel_hint(self, ops: Sequence[Op], anchor: str) -> str:
        """Function, what the kernel mainly does, and a number where that is not unique."""
        words = [ops[0].kind]
        if anchor == "row":
            origins = [op.loc.rsplit("/", 1)[-1] for op in ops]
            said = [w if w.isidentifier() else op.kind for op, w in zip(ops, origins, strict=True)]
            words = [w for w in dict.fromkeys(said) if w not in DULL][:3] or [ops[-1].results[0].name]
        hint = "_".join([self.function.name, *words]).replace(".", "_")
        count = self.names[hint] = self.names.get(hint, 0) + 1
        return hint if count == 1 else f"{hint}_{count}"


class _Body:
    """The inside of one region: operands become parameters; views of inner values and slices of weights are repeated
    inside."""

    def __init__(self, ops: Sequence[Op], inline: set[Op]) -> None:
        self.members, self.inline = set(ops) | inline, inline
        self.operands: list[Value] = []
        self.params: list[Value] = []
        self.inside: dict[Value, Value] = {}
        self.ops: list[Op] = []

    def param(self, value: Value) -> Value:
        """The parameter for an outside value; the same for every use."""
        if value not in self.inside:
            self.operands.append(value)
            self.params.append(fresh(value, self.inside))
        return self.inside[value]

    def value(self, value: Value) -> Value:
        if value in self.inside:
            return self.inside[value]
        root = view_root(value)[0]
        if value.producer in self.inline or (value is not root and root.producer in self.members):
            assert value.producer is not None
            self.add(value.producer)
            return self.inside[value]
        return self.param(value)

    def add(self, op: Op) -> None:
        new = Op(op.kind, [self.value(v) for v in op.operands], dict(op.attrs),
                 regions=[clone_function(r) for r in op.regions], loc=op.loc)
        new.results = [fresh(r, self.inside) for r in op.results]
        for result in new.results:
            result.producer = new
        self.ops.append(new)

    def function(self, name: str, results: Sequence[Value]) -> Function:
        return Function(name, self.params, self.ops, [self.inside[r] for r in results])


def _needed_values(function: Function) -> dict[Value, list[Op | None]]:
    """For every value that is no view, who needs it: ops (through views), None for the function's own results."""
    needed: dict[Value, list[Op | None]] = {}
    for op in function.ops:
        if op.kind != "view":
            for operand in op.operands:
                needed.setdefault(view_root(operand)[0], []).append(op)
    for result in function.results:
        needed.setdefault(view_root(result)[0], []).append(None)
    return needed
