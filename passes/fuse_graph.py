"""The dependence graph of a function for `fuse`: nodes, edges (values and the order of state versions), and the table
of rules that say whether two row ops may share a kernel.
"""
from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Module, Op, Value
from dinfc.ir.types import StateType, TensorType, dim_text

from .row_access import STRUCTURE, fusion_class, other_rows_read, row_dim
from .states import written_operands


@dataclass(eq=False)
class Node:
    """One op to be placed. `rows`: text of its row dim (row ops); `chunk`: number of its chunk group, 0 for none;
    `stage`: even for row kernels, odd for anchors."""

    op: Op
    number: int
    fusion: str
    rows: str = ""
    chunk: int = 0
    stage: int = 0
    incoming: list[Edge] = field(default_factory=list)
    outgoing: list[Edge] = field(default_factory=list)

    @property
    def is_row(self) -> bool:
        return self.fusion == "row"


@dataclass(frozen=True)
class Edge:
    """`consumer` must come after `producer`: it reads `value` as its operand number `operand`, or (operand -1) it
    overwrites the state `value` that the producer reads."""

    producer: Node
    consumer: Node
    value: Value
    operand: int


@dataclass(frozen=True)
class ShareRule:
    """Says why producer and consumer of an edge may not share a row kernel ("" where this rule has nothing against)."""

    name: str
    why_not: Callable[[Edge], str]


def both_are_row_ops(edge: Edge) -> str:
    for node in (edge.producer, edge.consumer):
        if not node.is_row:
            return f"{node.op.kind} has a kernel of its own (class {node.fusion})"
    return ""


def no_state_hazard(edge: Edge) -> str:
    if edge.operand < 0:
        return f"{edge.consumer.op.kind} overwrites %{edge.value.name}, which {edge.producer.op.kind} still reads"
    if isinstance(edge.value.type, StateType):
        return f"{edge.consumer.op.kind} reads %{edge.value.name} at rows that other rows write"
    return ""


def same_chunk_loop(edge: Edge) -> str:
    if edge.producer.chunk == edge.consumer.chunk:
        return ""
    return "one of them runs inside the row chunks of index scores, the other does not"


def same_rows(edge: Edge) -> str:
    if edge.producer.rows == edge.consumer.rows:
        return ""
    return f"rows differ: {edge.producer.rows} and {edge.consumer.rows}"


def own_row_only(edge: Edge) -> str:
    if not isinstance(edge.value.type, TensorType):
        return ""
    via = view_root(edge.consumer.op.operands[edge.operand])[1]
    return via or other_rows_read(edge.consumer.op, edge.operand)


SHARE_RULES = (
    ShareRule("both_are_row_ops", both_are_row_ops),
    ShareRule("no_state_hazard", no_state_hazard),
    ShareRule("same_chunk_loop", same_chunk_loop),
    ShareRule("same_rows", same_rows),
    ShareRule("own_row_only", own_row_only),
)


def why_not_shared(edge: Edge) -> str:
    """The first reason against one kernel for both ends, or ""."""
    return next((reason for rule in SHARE_RULES if (reason := rule.why_not(edge))), "")


def view_root(value: Value) -> tuple[Value, str]:
    """What a chain of views shows, and, where a view on the way changes the rows, the reason against fusing over it."""
    reason = ""
    while value.producer is not None and value.producer.kind == "view":
        source = value.producer.operands[0]
        if value.tensor.rank == 0 or dim_text(source.tensor.shape[0]) != dim_text(value.tensor.shape[0]):
            reason = f"the view %{value.name} changes the rows"
        value = source
    return value, reason


def inline_ops(function: Function) -> set[Op]:
    """Slices of parameters that do not depend on the step (parts of a weight vector), read by row ops only.

    They are no kernels: every reader repeats them, as it does views.
    """
    found: set[Op] = set()
    for op in function.ops:
        if op.kind == "slice" and isinstance(op.operands[0].type, TensorType):
            root = view_root(op.operands[0])[0]
            fixed = all(isinstance(d, int) for d in root.tensor.shape) and root.tensor.layout == ""
            if fixed and (root.producer is None or root.producer in found):
                found.add(op)
    kept = {view_root(r)[0].producer for r in function.results if isinstance(r.type, TensorType)}
    for op in reversed(function.ops):
        for number, operand in enumerate(op.operands):
            source = view_root(operand)[0].producer
            if source in found and op.kind not in STRUCTURE and op not in found and not _reads_own_row(op, number):
                kept.add(source)
        if op in kept and op in found:  # its own source has to be stored too
            kept.add(view_root(op.operands[0])[0].producer)
    return found - {op for op in kept if op is not None}


def _reads_own_row(op: Op, operand: int) -> bool:
    """Whether a row op reads this operand element by element, not as a table."""
    table = (op.kind == "take" and operand == 0) or (op.kind == "gather_rows" and operand > 0)
    return fusion_class(op) == "row" and not table and op.kind not in ("repeat", "state_write")


def build_graph(function: Function, module: Module) -> list[Node]:
    """Nodes in program order with their edges; views, constants and slices of weights are seen through.

    Raises IRError for malformed ops. Chunk groups are not set yet.
    """
    by_op: dict[Op, Node] = {}
    inline = inline_ops(function)
    for number, op in enumerate(function.ops):
        if op.kind not in STRUCTURE and op not in inline:
            fusion = fusion_class(op)
            by_op[op] = Node(op, number, fusion, dim_text(row_dim(op)) if fusion == "row" else "")
    readers: dict[Value, list[tuple[Node, int]]] = {}
    writers: dict[Value, list[Node]] = {}
    for op, node in by_op.items():
        written = written_operands(op, module)
        for number, operand in enumerate(op.operands):
            root = view_root(operand)[0]
            if root.producer in by_op:
                _connect(Edge(by_op[root.producer], node, root, number))
            if isinstance(root.type, StateType):
                if number in written:
                    writers.setdefault(root, []).append(node)
                else:
                    readers.setdefault(root, []).append((node, number))
    for state, nodes in writers.items():
        for writer in nodes:
            for reader, _ in readers.get(state, ()):
                if reader is not writer:
                    _connect(Edge(reader, writer, state, -1))
    return list(by_op.values())


def _connect(edge: Edge) -> None:
    edge.consumer.incoming.append(edge)
    edge.producer.outgoing.append(edge)


def assign_stages(function: Function, nodes: list[Node]) -> list[Node]:
    """Gives every node the earliest stage that its edges allow; returns the nodes in a topological order.

    Row kernels have even stages, anchors odd ones; an edge whose ends may not share a kernel raises the stage to the
    next one of the consumer's parity. Raises DinfcError E-IR-021 for a cycle (a state read after its overwriting).
    """
    waiting = {node: len(node.incoming) for node in nodes}
    ready = [(node.number, i) for i, node in enumerate(nodes) if not node.incoming]
    index: Mapping[Node, int] = {node: i for i, node in enumerate(nodes)}
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)[1]]
        order.append(node)
        node.stage = max((_earliest(e) for e in node.incoming), default=0 if node.is_row else 1)
        for edge in node.outgoing:
            waiting[edge.consumer] -= 1
            if not waiting[edge.consumer]:
                heapq.heappush(ready, (edge.consumer.number, index[edge.consumer]))
    if len(order) < len(nodes):
        stuck = next(node for node in nodes if waiting[node])
        state = next((e.value.name for e in stuck.incoming if e.operand < 0), stuck.op.operands[0].name)
        raise DinfcError("E-IR-021", place=f"@{function.name}", state=state, op=stuck.op.kind)
    return order


def _earliest(edge: Edge) -> int:
    """The earliest stage of the consumer that this edge allows."""
    stage = edge.producer.stage
    if not why_not_shared(edge):
        return stage
    parity = 0 if edge.consumer.is_row else 1
    return stage + 1 if (stage + 1) % 2 == parity else stage + 2
