"""`plan_launches`: calls become one list of kernel launches with the address of every argument; the plan is complete.

Entries (`prepare`, `forward`, `head`) become ranges of the list, row-chunk loops ranges inside them; weights become
buffers in the order of the entries' parameters, with the load steps that fill them.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Module, Value
from dinfc.ir.plan import STEP_FIELDS, LoadStep, Output, Plan, Ref, StateBuffer, step_lengths
from dinfc.ir.types import StateType, TensorType

from .assign_layouts import load_name
from .base import Context, Level, Pass
from .expand import Expander, Refs
from .plan_report import memory_report
from .weights import PREPARE, entries, entry_weights, part_place, recipe_of, weight_buffers

PAGES = "pages"  # the one page pool that all sections share
I32_BYTES = 4


@dataclass(frozen=True)
class PlanLaunches(Pass):
    """Produces the plan: launches, loops, entries, states, weights, load steps, outputs and the memory report."""

    name: ClassVar[str] = "plan_launches"
    requires: ClassVar[Level] = Level.placed
    guarantees: ClassVar[Level] = Level.planned

    def run(self, module: Module, context: Context) -> Module:
        plan = context.plan = _Assembly(module, context).plan
        for loop in plan.loops:
            context.note(self.name, f"launches {loop.first} to {loop.last - 1} repeat: {loop.reason}")
        return module


class _Assembly:
    """Builds the plan; raises DinfcError E-PLAN-012 for a parameter of an entry that nothing provides."""

    def __init__(self, module: Module, context: Context) -> None:
        assert context.arena is not None  # level `placed`
        self.module, self.context, self.arena = module, context, context.arena
        self.plan = Plan(context.limits, context.max_logit_rows, self.arena.bytes, programs=context.programs)
        self.plan.constants = list(module.constants)
        self.expander = Expander(module, context)
        self.states: dict[str, int] = {}
        self.given: dict[str, Refs] = step_fields(context, self.expander)
        self.add_weights()
        for function in entries(module):
            self.add_entry(function)
        self.plan.launches, self.plan.loops = self.expander.launches, self.expander.loops
        self.plan.memory = memory_report(module, context, self.plan)

    def add_weights(self) -> None:
        """Buffers and load steps of every weight parameter."""
        for _, weight in entry_weights(self.module):
            first = len(self.plan.weights)
            buffers = weight_buffers(weight)
            self.plan.weights += buffers
            self.given[weight.name] = tuple(self.expander.ref("weight", first + i) for i in range(len(buffers)))
            self.plan.load += self.load_steps(weight, first)

    def load_steps(self, weight: Value, first: int) -> list[LoadStep]:
        """One step a part. A part of a weight with a layout goes through the kernel of its load function."""
        steps = []
        for part in recipe_of(weight, self.context.recipes).parts:
            place = part_place(weight, part)
            kernel = ""
            if weight.tensor.layout:
                kernel = str(self.module.functions[load_name(place.type)].ops[0].attrs["kernel"])
            sources = (part.source, part.scale) if part.scale else (part.source,)
            targets = tuple((first + i, offset) for i, offset in enumerate(place.offsets))
            steps.append(LoadStep(kernel, sources, targets))
        return steps

    def add_entry(self, function: Function) -> None:
        """Expands one entry; its results become arguments of later ones, those of all but `prepare` outputs."""
        args = [self.argument(function, p) for p in function.params]
        first = len(self.expander.launches)
        own = [self.expander.arena(self.arena.metadata[r.name]) if r.name in self.arena.metadata else None
               for r in function.results]
        results = self.expander.expand(function, args, own, self.arena.base, function.name)
        self.plan.entries[function.name] = first, len(self.expander.launches)
        for result, refs in zip(function.results, results, strict=True):
            if not isinstance(result.type, TensorType):
                continue
            self.given[result.name] = refs
            if function.name != PREPARE:
                self.plan.outputs.append(Output(result.name, result.type.elem, result.type.shape, self.every(refs[0])))

    def every(self, ref: Ref) -> tuple[int, ...]:
        """The offsets of a ref, one for every bucket."""
        return ref.offsets * len(self.arena.bytes) if len(ref.offsets) == 1 else ref.offsets

    def argument(self, function: Function, param: Value) -> Refs:
        if isinstance(param.type, StateType):
            offset = param.type.offset if param.type.kind == "pages" else 0
            return (self.expander.ref("state", self.state(param.name, param.type), (offset,)),)
        if param.name not in self.given:
            raise DinfcError("E-PLAN-012", place=f"@{function.name}", param=param.name)
        return self.given[param.name]

    def state(self, name: str, type_: StateType) -> int:
        """Number of the buffer of a state parameter: its own ring, or the shared page pool."""
        key = PAGES if type_.kind == "pages" else name
        if key not in self.states:
            self.states[key] = len(self.plan.states)
            unit = type_.page_bytes if type_.kind == "pages" else type_.capacity * type_.record_bytes
            dtype = "u8" if type_.kind == "pages" or type_.codec else type_.elem
            self.plan.states.append(StateBuffer(key, type_.kind, unit, dtype))
        return self.states[key]


def step_fields(context: Context, expander: Expander) -> dict[str, Refs]:
    """Refs of the fields of the step input: one int32 block in the order of STEP_FIELDS, each at its maximum length."""
    out: dict[str, Refs] = {}
    at = 0
    lengths = step_lengths(context.limits, context.max_logit_rows)
    for name in STEP_FIELDS:
        out[name] = (expander.ref("step", 0, (at,)),)
        at += I32_BYTES * lengths[name]
    return out
