"""Row chunks of index scores (design section 4a): the score matrix never exists for all rows of a step.

An `index_score` opens a chunk group. Its result and everything row-class that derives from it hold the rows of one
chunk only; a `topk` closes the group: its result covers all rows. The launches of a group repeat for row chunks.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Op, Value
from dinfc.ir.types import Limits, TensorType

from .fuse_graph import Node, view_root

SCORE_BYTES = 2  # index scores are bf16


@dataclass(frozen=True)
class ChunkRun:
    """Regions [first, last) of a function repeat for chunks of `rows` rows; a score row has `width` columns."""

    first: int
    last: int
    width: int
    rows: int

    def __contains__(self, position: int) -> bool:
        return self.first <= position < self.last

    @property
    def reason(self) -> str:
        return f"{self.rows} rows x {self.width} scores of {SCORE_BYTES} bytes stay within limits.score_bytes"


def chunk_rows(limits: Limits, width: int) -> int:
    """Rows of a chunk: the score budget over two bytes a score (at least one row, at most those of a step).

    The value does not depend on the step, so a row's launches are the same whatever is in the batch.
    """
    return max(1, min(limits.max_tokens, limits.score_bytes // (SCORE_BYTES * width)))


def mark_chunk_groups(function: Function, nodes: list[Node]) -> set[Value]:
    """Numbers the chunk groups in `node.chunk` and returns the values that hold one chunk (views of them included).

    Raises DinfcError E-PLAN-011 where a chunked value leaves its group other than through a topk.
    """
    by_op: Mapping[Op, Node] = {node.op: node for node in nodes}
    group: dict[Value, int] = {}
    count = 0
    for op in function.ops:
        sources = {group[v] for v in op.operands if v in group}
        if op.kind == "view":
            if sources:
                group[op.result] = group[op.operands[0]]
                if reason := view_root(op.result)[1]:
                    raise _escapes(function, op, op.operands[0], reason)
            continue
        if op.kind != "index_score" and not sources:
            continue
        node = by_op[op]
        if op.kind == "index_score":
            count += 1
            group[op.result] = node.chunk = count
            continue
        value = next(v for v in op.operands if v in group)
        if len(sources) > 1:
            raise _escapes(function, op, value, "it joins two score matrices")
        node.chunk = min(sources)
        if node.is_row:
            for result in op.results:
                if not isinstance(result.type, TensorType):
                    raise _escapes(function, op, value, "it stores scores in a state")
                group[result] = node.chunk
        elif node.fusion != "select":
            raise _escapes(function, op, value, f"{op.kind} needs the scores of all rows at once")
    for result in function.results:
        if result in group:
            raise DinfcError("E-PLAN-011", place=f"@{function.name}", value=result.name, op="return",
                             reason="a function cannot return it")
    return set(group)


def _escapes(function: Function, op: Op, value: Value, reason: str) -> DinfcError:
    return DinfcError("E-PLAN-011", place=f"@{function.name}", value=value.name, op=op.kind, reason=reason)


def chunk_runs(function: Function, limits: Limits) -> list[ChunkRun]:
    """The chunk loops of a fused function, in order.

    Raises DinfcError E-PLAN-010 if another kernel stands between the kernels of one group.
    """
    runs: list[ChunkRun] = []
    closed: dict[Value, str] = {}  # chunked values of finished runs
    start, width = -1, 0
    live: set[Value] = set()
    for position, op in enumerate([*function.ops, None]):
        chunked = op is not None and op.kind == "region" and bool(op.attrs.get("chunk"))
        opens = chunked and op is not None and any(inner.kind == "index_score" for inner in op.regions[0].ops)
        if op is not None and op.kind in ("view", "constant"):
            if live & set(op.operands):
                live.update(op.results)
            continue
        if start >= 0 and (opens or not chunked):
            runs.append(ChunkRun(start, _after(function, position), width, chunk_rows(limits, width)))
            closed.update({v: v.name for v in live})
            start, live = -1, set()
        if op is None or not chunked:
            continue
        if late := next((v for v in op.operands if v in closed), None):
            raise DinfcError("E-PLAN-010", place=f"@{function.name}", value=late.name)
        if opens:
            start = position
            score = next(inner for inner in op.regions[0].ops if inner.kind == "index_score")
            width_attr = score.attrs["width"]
            assert isinstance(width_attr, int)
            width = width_attr
        if start < 0:
            raise DinfcError("E-PLAN-010", place=f"@{function.name}", value=op.operands[0].name)
        names = op.attrs["chunk"]
        assert isinstance(names, tuple)
        live.update(v for v in (*op.operands, *op.results) if v.name in names)
    return runs


def _after(function: Function, position: int) -> int:
    """The end of a run that stops before op `position`: trailing views and constants are no launches."""
    while position and function.ops[position - 1].kind in ("view", "constant"):
        position -= 1
    return position
