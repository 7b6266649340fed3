"""Expansion of calls: walks fused functions and lists kernel launches with the address of every argument."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dinfc.ir.graph import Function, Module, Op, Value
from dinfc.ir.plan import Launch, Loop, Ref
from dinfc.ir.types import StateType, TensorType

from .aliases import root_of
from .base import Context
from .chunks import ChunkRun, chunk_runs
from .frame import Offsets
from .states import previous_version

Refs = tuple[Ref, ...]


def add(a: Offsets, b: Offsets) -> Offsets:
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass
class Expander:
    """Launches and loops so far. `known` keeps equal refs as one object: a big model has few different places."""

    module: Module
    context: Context
    launches: list[Launch] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    known: dict[Ref, Ref] = field(default_factory=dict)
    constants: Mapping[str, int] = field(init=False)
    _runs: dict[str, list[ChunkRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = {name: i for i, name in enumerate(self.module.constants)}

    def ref(self, space: str, index: int = 0, offsets: Offsets = (0,)) -> Ref:
        """An address; offsets that do not depend on the bucket are kept once."""
        ref = Ref(space, index, offsets[:1] if len(set(offsets)) == 1 else offsets)
        return self.known.setdefault(ref, ref)

    def arena(self, places: Sequence[Offsets]) -> Refs:
        """Arena refs of the buffers of a value."""
        return tuple(self.ref("arena", 0, p) for p in places)

    def expand(self, function: Function, args: Sequence[Refs], own: Sequence[Refs | None], base: Offsets,
               origin: str) -> list[Refs]:
        """Appends the launches of a function whose frame starts at `base`; returns the refs of its results.

        `own`: the places that the caller has for results with storage of their own (None: they lie in the frame).
        """
        frame = self.context.frames[function.name]
        refs: dict[Value, Refs] = dict(zip(function.params, args, strict=True))
        given = {root_of(r, self.context.frames): places
                 for r, places in zip(function.results, own, strict=True) if places is not None}
        if function.name not in self._runs:
            self._runs[function.name] = chunk_runs(function, self.context.limits)
        runs = self._runs[function.name]
        for position, op in enumerate(function.ops):
            for result in op.results:
                if result in given:
                    refs[result] = given[result]
                elif result.name in frame.places:
                    refs[result] = self.arena([add(base, p) for p in frame.places[result.name]])
            if op.kind == "constant":
                refs[op.result] = (self.ref("constant", self.constants[str(op.attrs["name"])]),)
            elif op.kind == "view":
                refs[op.result] = refs[op.operands[0]]
            elif op.kind == "call":
                self.call(op, refs, add(base, frame.callee_base), origin)
            else:
                run = next((r for r in runs if position in r), None)
                self.launch(op, refs, origin, run, bool(run and run.first == position))
        return [refs[r] for r in function.results]

    def call(self, op: Op, refs: dict[Value, Refs], base: Offsets, origin: str) -> None:
        """Expands a callee; what it makes goes straight to the places of the call's results."""
        callee = self.module.functions[str(op.attrs["callee"])]
        places = self.context.frames[callee.name].results
        own = [refs[r] if p is not None and p.kind == "own" else None for r, p in zip(op.results, places, strict=True)]
        results = self.expand(callee, [refs[v] for v in op.operands], own, base, f"{origin}/{op.loc or callee.name}")
        refs.update(zip(op.results, results, strict=True))

    def launch(self, op: Op, refs: dict[Value, Refs], origin: str, run: ChunkRun | None, opens: bool) -> None:
        """One kernel call; arguments in the order of codegen.binding.region_buffers."""
        args = [r for v in op.operands for r in refs[v]]
        for result in op.results:
            if isinstance(result.type, StateType):
                refs[result] = refs[previous_version(op, result, self.module)]
            elif isinstance(result.type, TensorType):
                args += refs[result]
        number = len(self.launches)
        if run is not None and opens:
            self.loops.append(Loop(number, number + 1, run.rows, run.reason))
        elif run is not None:
            first = self.loops[-1]
            self.loops[-1] = Loop(first.first, number + 1, first.rows, first.reason)
        loop = len(self.loops) - 1 if run is not None else -1
        self.launches.append(Launch(str(op.attrs["kernel"]), tuple(args), loop, f"{origin}: %{op.results[0].name}"))
