"""`plan_memory`: where every value of a step lies, for every bucket (design section 4a, *Calls*).

A function's values lie in its frame, reused as their lifetimes allow. A called function's frame starts at one common
base inside the caller's; its results are written straight into the caller's frame. Views are aliases. What an entry
leaves to later ones (the metadata of `prepare`, the rows that `head` reads) lies in front of the arena.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, IRError, Module, Op, Value
from dinfc.ir.types import TensorType, dim_text, symbol

from .aliases import result_places, root_of
from .base import Context, Level, Pass
from .chunks import ChunkRun, chunk_runs
from .frame import Arena, Frame, Offsets, ResultPlace
from .placement import Block, place
from .storage import Sizes, aligned
from .weights import ENTRIES, kept_results

ROWS = "T"


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Lays out a frame for every function and the arena of a step."""

    name: ClassVar[str] = "plan_memory"
    requires: ClassVar[Level] = Level.fused
    guarantees: ClassVar[Level] = Level.placed

    def run(self, module: Module, context: Context) -> Module:
        planner = FramePlanner(module, context)
        for name in module.functions:
            planner.frame(name)
        context.frames = planner.frames
        context.arena = plan_arena(module, planner)
        for bucket, total in zip(context.limits.buckets, context.arena.bytes, strict=True):
            context.note(self.name, f"{total} bytes of scratch for {bucket} rows")
        return module


def bucket_values(module: Module, context: Context) -> tuple[dict[str, int], ...]:
    """What the symbols take in each bucket: T its rows, every other symbol its upper bound."""
    upper = {s.name: s.upper for s in module.symbols.values()}
    upper |= {"S": context.limits.max_seqs, "R": context.max_logit_rows}
    buckets = context.limits.buckets or (context.limits.max_tokens,)
    return tuple({**upper, ROWS: rows} for rows in buckets)


def plan_arena(module: Module, planner: FramePlanner) -> Arena:
    """What outlives its entry first, then the frames of all entries from one base: they run one after the other."""
    zero = (0,) * planner.buckets
    metadata: dict[str, tuple[Offsets, ...]] = {}
    end = zero
    for name, type_ in kept_results(module).items():
        metadata[name], end = stack_pieces(planner.sizes.pieces(type_), end)
    frames = [planner.frames[n].bytes for n in ENTRIES if n in planner.frames]
    largest = tuple(map(max, zip(*frames, strict=True))) if frames else zero
    return Arena(metadata, end, tuple(a + b for a, b in zip(end, largest, strict=True)))


def stack_pieces(pieces: Sequence[Offsets], start: Offsets) -> tuple[tuple[Offsets, ...], Offsets]:
    """Offsets of buffers laid one after the other from `start`, each aligned, and the end."""
    offsets = []
    for size in pieces:
        offsets.append(start)
        start = tuple(at + aligned(n) for at, n in zip(start, size, strict=True))
    return tuple(offsets), start


class FramePlanner:
    """Frames by function, callees before callers."""

    def __init__(self, module: Module, context: Context) -> None:
        self.module, self.context = module, context
        values = bucket_values(module, context)
        self.sizes = Sizes(values)
        self.buckets = len(values)
        self.rows = self.sizes.dim(symbol(ROWS))
        self.frames: dict[str, Frame] = {}
        self._open: list[str] = []
        self._kept = kept_results(module)
        self._called = {str(op.attrs["callee"]) for f in module.functions.values() for op in f.ops if op.kind == "call"}

    def frame(self, name: str) -> Frame:
        """The frame of a function. Raises IRError for functions that call each other in a circle."""
        if name not in self.frames:
            if name in self._open:
                raise IRError(f"functions call each other in a circle: {' -> '.join([*self._open, name])}")
            self._open.append(name)
            self.frames[name] = self._plan(self.module.functions[name])
            self._open.pop()
        return self.frames[name]

    def _plan(self, function: Function) -> Frame:
        callees = [self.frame(str(op.attrs["callee"])) if op.kind == "call" else None for op in function.ops]
        results = result_places(function, self.frames)
        given = self._given_by_caller(function, results)
        runs = chunk_runs(function, self.context.limits)
        lifetimes = self._lifetimes(function, runs)
        stored = [v for v in lifetimes if v not in given]
        pieces = {v: self._bytes(v, function, runs) for v in stored}
        calls = [i for i, callee in enumerate(callees) if callee]
        frame_bytes = [max((c.bytes[b] for c in callees if c), default=0) for b in range(self.buckets)]
        layouts = []
        for b in range(self.buckets):
            blocks = [Block(v.name, sum(aligned(p[b]) for p in pieces[v]), *lifetimes[v]) for v in stored]
            blocks += [Block("callees", frame_bytes[b], calls[0], calls[-1])] if calls else []
            layouts.append(place(blocks))
        starts = {v: tuple(layout.offsets[i] for layout in layouts) for i, v in enumerate(stored)}
        places = {v.name: stack_pieces(pieces[v], starts[v])[0] for v in stored}
        base = tuple(layout.offsets[-1] for layout in layouts) if calls else (0,) * self.buckets
        sizes = {v.name: tuple(map(sum, zip(*pieces[v], strict=True))) for v in stored}
        return Frame(function.name, places, base, tuple(layout.total for layout in layouts), results, sizes)

    def _given_by_caller(self, function: Function, results: Sequence[ResultPlace | None]) -> set[Value]:
        """Values that do not lie in the frame: own results of called functions, of entries if later entries read them,
        and of load functions."""
        everything = function.name in self._called or function.name.startswith("load.")
        outlives = self._kept if function.name in ENTRIES else {}
        return {root_of(r, self.frames) for r, p in zip(function.results, results, strict=True)
                if p is not None and p.kind == "own" and (everything or r.name in outlives)}

    def _lifetimes(self, function: Function, runs: Sequence[ChunkRun]) -> dict[Value, tuple[int, int]]:
        """First and last op of every value that needs storage, in order of definition.

        Inside a chunk loop a value that outlives one iteration is in use during the whole loop: later iterations read
        it again, or have written only their own rows yet.
        """
        life: dict[Value, tuple[int, int]] = {}
        chunked: set[Value] = set()
        for position, op in enumerate(function.ops):
            names = op.attrs.get("chunk") or ()
            assert isinstance(names, tuple)
            run = next((r for r in runs if position in r), None)
            for value in op.results:
                stored = op.kind in ("region", "call") and isinstance(value.type, TensorType)
                if stored and root_of(value, self.frames) is value:
                    life[value] = (position, position)
                    chunked |= {value} if value.name in names else set()
            for value in {root_of(v, self.frames) for v in self._tensors(op)} & life.keys():
                first, last = life[value]
                if run and value not in chunked:
                    first, last = min(first, run.first) if first >= run.first else first, max(last, run.last - 1)
                life[value] = first, max(last, position)
        for result in function.results:
            root = root_of(result, self.frames) if isinstance(result.type, TensorType) else result
            if root in life:
                life[root] = life[root][0], len(function.ops)
        return life

    @staticmethod
    def _tensors(op: Op) -> list[Value]:
        return [v for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)]

    def _bytes(self, value: Value, function: Function, runs: Sequence[ChunkRun]) -> tuple[Offsets, ...]:
        """Bytes of each buffer of a value in every bucket; a chunked value has the rows of one chunk."""
        op = value.producer
        assert op is not None and isinstance(value.type, TensorType)
        names = op.attrs.get("chunk") or ()
        assert isinstance(names, tuple)
        if value.name not in names:
            return self.sizes.pieces(value.type)
        if dim_text(value.type.shape[0]) != ROWS:
            raise DinfcError("E-PLAN-011", place=f"@{function.name}", value=value.name, op=op.kind,
                             reason=f"its rows are {dim_text(value.type.shape[0])}, not {ROWS}")
        position = function.ops.index(op)
        rows = next(r.rows for r in runs if position in r)
        one_row = self.sizes.pieces(replace(value.type, shape=(1, *value.type.shape[1:])))
        return tuple(tuple(n * min(rows, t) for n, t in zip(p, self.rows, strict=True)) for p in one_row)

