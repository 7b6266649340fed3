"""A shadow run of a plan: every byte of the arena remembers which value it holds.

The launch list is walked beside an independent expansion of the functions (values by identity, no memory): each launch
must find, at the addresses of its operands, exactly the values that the program says, and then leaves its own.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dinfc.ir.graph import Function, Module, Op, Value
from dinfc.ir.plan import Plan, Ref
from dinfc.ir.types import TensorType, dim_value
from dinfc.passes.base import Context
from dinfc.passes.storage import pieces

BYTES = {"f32": 4, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "u32": 4, "bool": 1}


@dataclass(frozen=True)
class Made:
    """One value of one expansion: `token` tells instances of a function apart."""

    token: int
    name: str


@dataclass
class Step:
    """What a launch reads and writes, as (value, bytes of each buffer), in argument order."""

    op: Op
    reads: list[tuple[Made, list[int]]]
    writes: list[tuple[Made, list[int]]]


class Shadow:
    def __init__(self, module: Module, context: Context, bucket: int) -> None:
        plan = context.plan
        assert plan is not None
        self.module, self.plan, self.bucket = module, plan, bucket
        self.rows = context.limits.buckets[bucket]
        self.symbols = {"T": self.rows, "S": context.limits.max_seqs, "R": context.max_logit_rows}
        self.counter = 0

    def sizes(self, value: Value, op: Op, rows: int) -> list[int]:
        """Bytes of each buffer of a value as the kernel of `op` sees it."""
        assert isinstance(value.type, TensorType)
        names = op.attrs.get("chunk") or ()
        assert isinstance(names, tuple)
        out = []
        for piece in pieces(value.type):
            shape = [dim_value(d, self.symbols) for d in piece.shape]
            if value.name in names:
                shape[0] = min(rows, self.rows)
            size = BYTES[piece.dtype]
            for n in shape:
                size *= n
            out.append(size)
        return out

    def steps(self, function: Function, args: list[Made]) -> tuple[list[Step], list[Made]]:
        """The launches of a function by value, and its results."""
        self.counter += 1
        token, known, out = self.counter, dict(zip(function.params, args, strict=True)), []
        for op in function.ops:
            if op.kind == "view":
                known[op.result] = known[op.operands[0]]
            elif op.kind == "call":
                callee = self.module.functions[str(op.attrs["callee"])]
                inner, results = self.steps(callee, [known[v] for v in op.operands])
                out += inner
                known.update(zip(op.results, results, strict=True))
            else:
                known.update({r: Made(token, r.name) for r in op.results})
                if op.kind == "region":
                    rows = self.plan.loops[0].rows if op.attrs.get("chunk") else 0  # all loops here have equal chunks
                    out.append(Step(op, [(known[v], self.sizes(v, op, rows)) for v in tensors(op.operands)],
                                    [(known[v], self.sizes(v, op, rows)) for v in tensors(op.results)]))
        return out, [known[r] for r in function.results]

    def run(self) -> int:
        """Runs `prepare`, then `forward`; returns the number of launches checked. AssertionError names the clash."""
        made: dict[str, Made] = {}
        steps: list[Step] = []
        for entry in ("prepare", "forward"):
            function = self.module.functions[entry]
            args = [made.get(p.name, Made(0, p.name)) for p in function.params]
            inner, results = self.steps(function, args)
            steps += inner
            made.update({r.name: m for r, m in zip(function.results, results, strict=True)})
        assert len(steps) == len(self.plan.launches)
        memory: dict[int, Made | None] = {}
        done: set[int] = set()
        for number in execution(self.plan):
            launch, step = self.plan.launches[number], steps[number]
            again = number in done
            done.add(number)
            refs = [r for r in launch.args if r.space != "state"]
            reads, writes = flat(step.reads), flat(step.writes)
            assert len(refs) == len(reads) + len(writes), launch.origin
            for ref, (value, size) in zip(refs, reads, strict=False):
                if ref.space == "arena":
                    assert {memory.get(i) for i in self.span(ref, size)} == {value}, f"{launch.origin} reads {value}"
            spans = [self.span(r, n) for r, (_, n) in zip(refs, reads + writes, strict=True) if r.space == "arena"]
            for i, ref in enumerate(refs[len(reads):]):
                value, size = writes[i]
                assert ref.space == "arena", launch.origin
                mine = self.span(ref, size)
                clashes = [s for s in spans if s != mine and s.start < mine.stop and mine.start < s.stop]
                assert not clashes, f"{launch.origin} writes over its operands"
                chunked = step.op.attrs.get("chunk") or ()
                assert isinstance(chunked, tuple)
                if again and value.name not in chunked:  # rows of earlier chunks must have survived
                    assert {memory.get(i) for i in mine} == {value}, f"{launch.origin} lost rows of {value}"
                memory.update(dict.fromkeys(mine, value))
        return len(steps)

    def span(self, ref: Ref, size: int) -> range:
        offset = ref.offsets[self.bucket] if len(ref.offsets) > 1 else ref.offsets[0]
        assert offset + size <= self.plan.arena_bytes[self.bucket]
        return range(offset, offset + size)


def tensors(values: list[Value]) -> list[Value]:
    return [v for v in values if isinstance(v.type, TensorType)]


def flat(values: list[tuple[Made, list[int]]]) -> list[tuple[Made, int]]:
    return [(made, size) for made, sizes in values for size in sizes]


def execution(plan: Plan) -> Iterator[int]:
    """Launch numbers in the order of a step in which every chunk loop runs twice."""
    number = 0
    while number < len(plan.launches):
        loop = next((x for x in plan.loops if x.first == number), None)
        if loop is None:
            yield number
            number += 1
        else:
            for _ in range(2):
                yield from range(loop.first, loop.last)
            number = loop.last
