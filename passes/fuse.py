"""`fuse`: every function becomes a list of regions, one kernel each (design section 7, *Fusion*).

Ops with an anchor class (matrix products, attention, scores, selection, segments) become a region each. Row ops are
merged: all row ops of one stage that run over the same rows share a kernel. Stages follow from the dependences and
from the rules of `fuse_graph.SHARE_RULES`; views and constants are no kernels.
"""
from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import ClassVar

from dinfc.diagnostics import DinfcError
from dinfc.ir.graph import Function, Module, Value
from dinfc.ir.types import StateType, TensorType, dim_text

from .base import Context, Level, Pass
from .chunks import mark_chunk_groups
from .fuse_graph import Edge, Node, assign_stages, build_graph, view_root, why_not_shared
from .fuse_regions import build_regions
from .row_access import INTEGERS
from .storage import row_bytes


@dataclass(eq=False)
class Cluster:
    """Ops that become one kernel, in program order."""

    nodes: list[Node]
    after: set[Cluster] = field(default_factory=set)

    @property
    def key(self) -> tuple[int, int]:
        return self.nodes[0].stage, self.nodes[0].number

    @property
    def chunk(self) -> int:
        return self.nodes[0].chunk

    @property
    def fusion(self) -> str:
        return self.nodes[0].fusion


@dataclass(frozen=True)
class Fuse(Pass):
    """Groups ops into regions. `max_ops`: most ops of a row region (0: no limit)."""

    name: ClassVar[str] = "fuse"
    requires: ClassVar[Level] = Level.pinned
    guarantees: ClassVar[Level] = Level.fused
    max_ops: int = 0

    def run(self, module: Module, context: Context) -> Module:
        for function in module.functions.values():
            if all(op.kind in ("region", "call", "view", "constant") for op in function.ops):
                continue
            nodes = build_graph(function, module)
            chunked = mark_chunk_groups(function, nodes)
            order = assign_stages(function, nodes)
            context.fired[self.name, "sink_row_op"] += sink_row_ops(function, order)
            clusters = order_clusters(function, form_clusters(function, nodes, self.max_ops))
            build_regions(function, [[n.op for n in c.nodes] for c in clusters], chunked)
            for cluster in clusters:
                context.fired[self.name, cluster.fusion] += 1
            context.note(self.name, f"@{function.name}: {len(nodes)} ops in {len(clusters)} kernels")
        return module


def why_not(function: Function, module: Module, producer: Value, consumer: Value) -> str:
    """Why the ops that make two values of a function (before `fuse`) do not share a kernel; "" if they do."""
    nodes = build_graph(function, module)
    mark_chunk_groups(function, nodes)
    assign_stages(function, nodes)
    made_by = {r: node for node in nodes for r in node.op.results}
    first, second = made_by[view_root(producer)[0]], made_by[view_root(consumer)[0]]
    for edge in second.incoming:
        if edge.producer is first and (reason := why_not_shared(edge)):
            return reason
    if first.stage != second.stage:
        late = next((e for e in second.incoming if e.producer.stage >= first.stage and why_not_shared(e)), None)
        reason = f": {why_not_shared(late)}" if late else ""
        return f"they are {abs(second.stage - first.stage)} stages apart{reason}"
    return "" if first.rows == second.rows else f"rows differ: {first.rows} and {second.rows}"


def sink_row_ops(function: Function, order: list[Node]) -> int:
    """Moves row ops down to the first kernel that uses them where that stores fewer bytes a row; returns how many.

    An op whose users all sit in later kernels would be stored only to be read again; computed there, it needs no
    memory, unless more bytes of operands then have to be stored. Ops on states stay where their order was settled.
    """
    results = {view_root(r)[0] for r in function.results}
    moved = 0
    for node in reversed(order):
        if not node.is_row or any(isinstance(v.type, StateType) for v in (*node.op.operands, *node.op.results)):
            continue
        if not node.outgoing or any(r in results for r in node.op.results):
            continue
        stage = node.outgoing[0].consumer.stage
        if stage <= node.stage or any(e.consumer.stage != stage or why_not_shared(e) for e in node.outgoing):
            continue  # it has to be stored for some user anyway
        saved = sum(row_bytes(r) for r in node.op.results)
        stored = dict.fromkeys(e.value for e in node.incoming if _newly_stored(e, results))
        if saved >= sum(row_bytes(v) for v in stored):
            node.stage = stage
            moved += 1
    return moved


def _newly_stored(edge: Edge, results: set[Value]) -> bool:
    """True if the operand lives inside one kernel now, and would have to be stored if its consumer moved down."""
    producer = edge.producer
    if not producer.is_row or producer.stage != edge.consumer.stage or edge.value in results:
        return False
    return all(e.consumer.stage == producer.stage for e in producer.outgoing if e.value is edge.value)


def form_clusters(function: Function, nodes: list[Node], max_ops: int) -> list[Cluster]:
    """One cluster an anchor; row ops by (stage, rows, chunk group), cut into pieces of `max_ops` in program order."""
    clusters: list[Cluster] = []
    bookkeeping = place_bookkeeping(function, nodes)
    open_: dict[tuple[int, str, int, bool], Cluster] = {}
    member: dict[Node, Cluster] = {}
    for node in nodes:
        key = (node.stage, node.rows, node.chunk, node in bookkeeping)
        cluster = open_.get(key) if node.is_row else None
        if cluster is None or (max_ops and len(cluster.nodes) >= max_ops):
            cluster = Cluster([])
            clusters.append(cluster)
            if node.is_row:
                open_[key] = cluster
        cluster.nodes.append(node)
        member[node] = cluster
    for node in nodes:
        for edge in node.incoming:
            if member[edge.producer] is not member[node]:
                member[node].after.add(member[edge.producer])
    return clusters


def place_bookkeeping(function: Function, nodes: list[Node]) -> set[Node]:
    """Row ops over sorted expert rows that make integers for other kernels, and what these need of the same stage.

    Such integers (which row a place holds, -1 for padding) must exist for padding places too, while the data of padding
    is never computed: the two cannot share a kernel that skips padding (attribute `guard`).
    """
    places = {dim_text(op.results[1].tensor.shape[0]) for op in function.ops if op.kind == "segment"}
    results = {view_root(r)[0] for r in function.results}
    found: set[Node] = set()
    for node in reversed(nodes):
        if not node.is_row or node.rows not in places:
            continue
        leaves = any(e.consumer.stage != node.stage or not e.consumer.is_row for e in node.outgoing) or any(
            r in results for r in node.op.results)
        integers = all(isinstance(r.type, TensorType) and r.type.elem in INTEGERS for r in node.op.results)
        if (leaves and integers) or any(e.consumer in found and e.consumer.stage == node.stage for e in node.outgoing):
            found.add(node)
    return found


def order_clusters(function: Function, clusters: list[Cluster]) -> list[Cluster]:
    """Clusters by stage, but those of one chunk group next to each other: they will share a loop.

    A group is placed as a whole once everything it needs is there. Raises DinfcError E-PLAN-010 where a kernel would
    have to run both after and before parts of a group.
    """
    units: dict[object, list[Cluster]] = {}
    for cluster in sorted(clusters, key=lambda c: c.key):
        units.setdefault(cluster.chunk or cluster, []).append(cluster)
    unit_of = {cluster: name for name, members in units.items() for cluster in members}
    needs = {name: {unit_of[b] for c in members for b in c.after} - {name} for name, members in units.items()}
    users: dict[object, list[object]] = {}
    for name, before in needs.items():
        for b in before:
            users.setdefault(b, []).append(name)
    index = {name: i for i, name in enumerate(units)}
    ready = [(units[name][0].key, index[name], name) for name in units if not needs[name]]
    heapq.heapify(ready)
    out: list[Cluster] = []
    while ready:
        _, _, name = heapq.heappop(ready)
        out += units[name]
        for user in users.get(name, ()):
            needs[user].discard(name)
            if not needs[user]:
                heapq.heappush(ready, (units[user][0].key, index[user], user))
    if len(out) < len(clusters):
        stuck = next(c for c in clusters if c.chunk and c not in out)
        raise DinfcError("E-PLAN-010", place=f"@{function.name}", value=stuck.nodes[0].op.result.name)
    return out


