"""`assign_layouts`: storage order of weights as the target's kernels read them, and the functions that make it.

A weight's layout is what its consumers ask for, through calls; where two ask for different ones, the model has to name
two weights. A view shows row-major storage only, so the model names a weight in the shape that its product reads. For
every distinct (shape, codec, layout) of a checkpoint tensor a function `load.*` holds the `relayout`; row-major weights
are the file's bytes and need none.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Module, Op, Value
from dinfc.ir.types import TensorType, dim_text

from .base import Context, Level, Pass
from .walk import users
from .weights import entry_weights, part_place, recipe_of

LOAD = "load."


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """Sets `layout` in the types of weights and of everything that shows them; adds the `load.*` functions."""

    name: ClassVar[str] = "assign_layouts"
    requires: ClassVar[Level] = Level.fused
    guarantees: ClassVar[Level] = Level.laid_out

    def run(self, module: Module, context: Context) -> Module:
        walk = _Layouts(module, context)
        for function, weight in entry_weights(module):
            layout = walk.wanted(function, weight)
            if layout:
                walk.set(function, weight, layout)
                context.fired[self.name, layout] += 1
                for part in recipe_of(weight, context.recipes).parts:
                    add_load_function(module, part_place(weight, part).type)
        return module


class _Layouts:
    """Uses of weights, followed through calls, views and region bodies."""

    def __init__(self, module: Module, context: Context) -> None:
        self.module, self.target = module, context.target
        self.users: dict[Function, dict[Value, list[Op]]] = {}
        self.known: dict[Value, str] = {}

    def users_of(self, function: Function, value: Value) -> list[Op]:
        if function not in self.users:
            self.users[function] = users(function)
        return self.users[function].get(value, [])

    def wanted(self, function: Function, value: Value) -> str:
        """The layout that all uses of the value agree on. Raises DinfcError E-PLAN-013 where they do not."""
        if value not in self.known:
            asked: dict[str, str] = {}  # layout -> the use that asks for it
            for op in self.users_of(function, value):
                for number in (i for i, v in enumerate(op.operands) if v is value):
                    asked.setdefault(self.asked_by(function, op, number), f"{op.kind} of @{function.name}")
            if len(asked) > 1:
                (first, first_use), (second, second_use) = list(asked.items())[:2]
                raise DinfcError("E-PLAN-013", weight=value.name, first=first or "row-major", first_use=first_use,
                                 second=second or "row-major", second_use=second_use)
            self.known[value] = next(iter(asked), "")
        return self.known[value]

    def asked_by(self, function: Function, op: Op, number: int) -> str:
        if op.kind == "call":
            callee = self.module.functions[str(op.attrs["callee"])]
            return self.wanted(callee, callee.params[number])
        if op.kind == "region":
            body = op.regions[0]
            return self.wanted(body, body.params[number])
        if op.kind == "view":
            if layout := self.wanted(function, op.result):
                raise DinfcError("E-PLAN-013", weight=op.operands[0].name, first=layout, second="row-major",
                                 first_use=f"its view %{op.result.name}", second_use="view, which keeps the order")
            return ""
        return self.target.weight_layout(op.kind, number, op.operands[number].tensor)

    def set(self, function: Function, value: Value, layout: str) -> None:
        """Writes the layout into the value's type and follows its uses."""
        if value.tensor.layout == layout:
            return
        value.type = value.tensor.with_(layout=layout)
        for op in self.users_of(function, value):
            for number in (i for i, v in enumerate(op.operands) if v is value):
                if op.kind == "call":
                    callee = self.module.functions[str(op.attrs["callee"])]
                    self.set(callee, callee.params[number], layout)
                elif op.kind == "region":
                    self.set(op.regions[0], op.regions[0].params[number], layout)


def add_load_function(module: Module, type_: TensorType) -> None:
    """The function that stores one row-major checkpoint tensor in `type_`'s layout, unless it is there already."""
    name = load_name(type_)
    if name in module.functions:
        return
    plain = type_.with_(layout="")
    inner = Value("part", plain)
    relayout = Op("relayout", [inner], {"layout": type_.layout})
    relayout.results = [Value("packed", type_, relayout)]
    param = Value("part", plain)
    kernel = name.replace(".", "_")
    region = Op("region", [param], {"anchor": "move", "kernel": kernel},
                regions=[Function(kernel, [inner], [relayout], relayout.results)])
    region.results = [Value("packed", type_, region)]
    module.functions[name] = Function(name, [param], [region], list(region.results))


def load_name(type_: TensorType) -> str:
    """`load.wfp8_1280x5120_n16k`: codec, shape and layout of what the function makes."""
    elem = type_.elem.split("<")[0]
    return f"{LOAD}{elem}_{'x'.join(dim_text(d) for d in type_.shape)}_{type_.layout}"
