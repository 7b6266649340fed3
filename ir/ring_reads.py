"""Read inside write, for rings: every position that a step may read from a ring is one that earlier steps left there.

A module that says how far a sequence may be set back (`info backtrack = B`: a step starts up to B - 1 positions before
the end of the last one) is checked as a whole, `prepare` and the entries that take its results by name. The places of a
read and of the write are taken from the scalar expressions that compute them:

    read    select(wanted < 0, -1, select(wanted >= start, current, (slot * C + wanted % C) | source))
            with wanted = pos + constants and coordinates, so pos - wanted has a largest value, the reach
    write   select(pos >= end - kept, slot * C + pos % C, -1)

A step leaves the last `kept` positions; the next one starts at least at end - (B - 1) and reads from there `reach` back
at most, so kept >= reach + B - 1 is what must hold (design section 4a).
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .graph import Function, IRError, Module, Op, Value
from .ops.map import operand_dims
from .scalar import Expr
from .types import StateType

PASS_THROUGH = ("view", "slice", "concat", "relayout")
SOURCE_SHIFT = 30
Places = frozenset[Value]  # the values whose elements an index is made of
Affine = tuple[Mapping[Expr, int], int]  # coefficients of leaves, constant
Condition = tuple[Expr, bool]


@dataclass(frozen=True)
class RingRead:
    """An op that reads a ring as source `source` of an encoded index made of `places`."""

    op: Op
    function: Function
    ring: Value
    source: int
    places: Places


@dataclass(frozen=True)
class RingWrite:
    op: Op
    function: Function
    places: Places


@dataclass(frozen=True)
class Reach:
    """What one expression says: positions are at most `reach` before `base`; an entry is slot * capacity + position."""

    op: Op
    base: Value
    slot: Value
    capacity: int
    reach: int
    conditions: tuple[Condition, ...]
    position: Affine


@dataclass
class _Walk:
    """All accesses of rings, with index operands traced back through calls, regions and moves."""

    module: Module
    known: dict[Value, Places] = field(default_factory=dict)
    buffer: dict[Value, Value] = field(default_factory=dict)  # state value -> parameter of the entry
    reads: list[RingRead] = field(default_factory=list)
    writes: dict[str, list[RingWrite]] = field(default_factory=dict)

    def walk(self, function: Function, entry: Function) -> list[Places]:
        """Visits the ops of a function whose parameters are known; what its results are made of."""
        for op in function.ops:
            self._visit(op, entry)
        return [self._places(r) for r in function.results]

    def _places(self, value: Value) -> Places:
        return self.known.get(value, frozenset({value}))

    def _visit(self, op: Op, entry: Function) -> None:
        body = op.regions[0] if op.regions else self.module.functions.get(str(op.attrs.get("callee")))
        if body is not None:
            for param, value in zip(body.params, op.operands, strict=False):
                self._bind(param, value)
            for result, inner, places in zip(op.results, body.results, self.walk(body, entry), strict=False):
                self.known[result] = places
                if inner in self.buffer:
                    self.buffer[result] = self.buffer[inner]
            return
        if op.kind in PASS_THROUGH:
            self.known[op.result] = frozenset().union(*(self._places(v) for v in op.operands))
        elif op.kind == "state_write":
            self.buffer[op.result] = state = self._state(op.operands[0])
            if _is_ring(state):
                self.writes.setdefault(state.name, []).append(RingWrite(op, entry, self._places(op.operands[2])))
        elif op.kind in ("gather_rows", "sparse_attend"):
            index, first = (op.operands[0], 1) if op.kind == "gather_rows" else (op.operands[1], 2)
            stores = op.operands[1:] if first == 1 else [op.operands[2], op.operands[3], *op.operands[5:]]
            for source, store in enumerate(stores):
                if _is_ring(store):
                    number = source if len(stores) > 1 else -1
                    self.reads.append(RingRead(op, entry, self._state(store), number, self._places(index)))

    def _bind(self, param: Value, value: Value) -> None:
        if isinstance(param.type, StateType):
            self.buffer[param] = self._state(value)
        else:
            self.known[param] = self._places(value)

    def _state(self, value: Value) -> Value:
        return self.buffer.get(value, value)


def _is_ring(value: Value) -> bool:
    return isinstance(value.type, StateType) and value.type.kind == "ring"


def ring_problems(module: Module) -> Iterator[tuple[str, Function, Op]]:
    """What cannot be proven, each with the entry and the op of the read. Empty for a module without `backtrack`."""
    backtrack, prepare = module.info.get("backtrack"), module.functions.get("prepare")
    if not isinstance(backtrack, int) or prepare is None:
        return
    walk = _Walk(module)
    made = dict(zip((r.name for r in prepare.results), walk.walk(prepare, prepare), strict=True))
    called = {str(op.attrs.get("callee")) for f in module.functions.values() for op in f.ops if op.kind == "call"}
    for function in module.functions.values():
        if function is not prepare and function.name not in called:
            walk.known |= {p: made[p.name] for p in function.params if p.name in made}
            walk.walk(function, function)
    for read in walk.reads:
        try:
            _prove(read, walk, backtrack)
        except IRError as error:
            yield f"ring %{read.ring.name}: {error.args[0]}", read.function, read.op


def _prove(read: RingRead, walk: _Walk, backtrack: int) -> None:
    """Raises IRError where the read may touch a position that no step left in the ring."""
    state = read.ring.type
    assert isinstance(state, StateType)
    if read.source < 0:
        raise IRError("it is read by entry, so nothing is known of the positions")
    writes = walk.writes.get(read.ring.name, [])
    if len(writes) != 1:
        raise IRError(f"it is written {len(writes)} times a step, once is needed")
    reads = [r for place in read.places for r in _reaches(place, walk, read.source << SOURCE_SHIFT)]
    stores = [r for place in writes[0].places for r in _reaches(place, walk, None)]
    if not reads:
        raise IRError("no expression of a ring place is found in the index of this read")
    if len(stores) != 1:
        raise IRError("no expression of a ring place is found in the slots of its write")
    store = stores[0]
    for place in (*reads, store):
        if place.capacity != state.capacity:
            raise IRError(f"it has {state.capacity} entries, the place is computed for {place.capacity}")
        if (place.base, place.slot) != (store.base, store.slot):
            raise IRError("the position or slot that is read is not the one that is written")
    kept = _kept(store)
    if kept > state.capacity:
        raise IRError(f"{kept} rows of a step would be stored in its {state.capacity} entries")
    for place in reads:
        _check_guards(place, walk)
        needed = place.reach + backtrack - 1
        if kept < needed:
            raise IRError(f"a row reads {place.reach} positions back, and a sequence may be set back by "
                          f"{backtrack - 1}: {needed} positions are needed, {kept} are kept")


def _reaches(place: Value, walk: _Walk, source: int | None) -> Iterator[Reach]:
    """Ring places in the `map` that makes an index; `source`: the bits that mark them, None for plain slots."""
    op = place.producer
    if op is None or op.kind != "map":
        return
    expr = op.attrs["expr"]
    assert isinstance(expr, Expr)
    for node, conditions in _paths(expr, ()):
        if source is not None:
            if not (node.op == "or" and node.args[1] == Expr("const", (), "i32", source)):
                continue
            node = node.args[0]
        if node.op == "add" and node.args[1].op == "mod" and node.args[0].op == "mul":
            yield _reach(op, node, conditions, walk)


def _paths(node: Expr, conditions: tuple[Condition, ...]) -> Iterator[tuple[Expr, tuple[Condition, ...]]]:
    """The values that selects choose from, each with what holds where it is chosen."""
    if node.op == "select":
        yield from _paths(node.args[1], (*conditions, (node.args[0], True)))
        yield from _paths(node.args[2], (*conditions, (node.args[0], False)))
    else:
        yield node, conditions


def _reach(op: Op, node: Expr, conditions: tuple[Condition, ...], walk: _Walk) -> Reach:
    """`node` = slot * C + wanted % C. Raises IRError where it does not have this form."""
    (slot, size), (wanted, modulus) = node.args[0].args, node.args[1].args
    if slot.op != "arg" or size.op != "const" or size != modulus or not isinstance(size.attr, int):
        raise IRError("a place is not slot * entries + position % entries")
    position = affine(wanted)
    bases = [leaf for leaf, factor in position[0].items() if leaf.op == "arg" and factor == 1]
    if len(bases) != 1 or any(leaf.op == "arg" and leaf != bases[0] for leaf in position[0]):
        raise IRError("a position is not the row's own plus constants and coordinates")
    reach = -position[1]
    for leaf, factor in position[0].items():
        if leaf.op == "index":
            extent = op.result.tensor.shape[int(leaf.attr or 0)]
            if not isinstance(extent, int):
                raise IRError("a position depends on the number of the row")
            reach += max(0, -factor * (extent - 1))
    return Reach(op, _operand(op, bases[0], walk), _operand(op, slot, walk), size.attr, reach, conditions, position)


def _operand(op: Op, leaf: Expr, walk: _Walk) -> Value:
    """The value that an `arg` leaf stands for, one element a row. Raises IRError for one of several values."""
    number = int(leaf.attr or 0)
    places = walk.known.get(op.operands[number], frozenset({op.operands[number]}))
    if len(places) != 1 or operand_dims(op.attrs)[number] != (0,):
        raise IRError("a position or slot is not one number a row")
    return next(iter(places))


def _check_guards(place: Reach, walk: _Walk) -> None:
    """Raises IRError unless 0 <= position < start holds where the ring is read."""
    if not any(not held and c.op == "lt" and affine(c.args[0]) == place.position and c.args[1].attr == 0
               for c, held in place.conditions):
        raise IRError("it is read without a check that the position is not negative")
    if not any(not held and c.op == "ge" and affine(c.args[0]) == place.position
               and _is_start(place.op, c.args[1], walk) for c, held in place.conditions):
        raise IRError("it is read without a check that the position is before this step")


def _is_start(op: Op, node: Expr, walk: _Walk) -> bool:
    """Whether a leaf is the position of the first row of the row's sequence: the step field `start`, by sequence."""
    if node.op != "arg":
        return False
    taken = _operand(op, node, walk).producer
    if taken is None or taken.kind != "take":
        return False
    table = taken.operands[0]
    return all(v.name == "start" and v.producer is None for v in walk.known.get(table, frozenset({table})))


def _kept(store: Reach) -> int:
    """Positions that a step leaves, from the condition pos >= end - kept of the write."""
    if store.reach != 0:
        raise IRError("a row is stored at another position than its own")
    for condition, held in store.conditions:
        if held and condition.op == "ge" and affine(condition.args[0]) == store.position:
            leaves, constant = affine(condition.args[1])
            if len(leaves) == 1 and next(iter(leaves.values())) == 1:
                return -constant
    raise IRError("all rows of a step are stored, more than it has entries")


def affine(node: Expr) -> Affine:
    """An integer expression as leaves times constants plus a constant; what is neither is a leaf of its own."""
    if node.op == "const" and isinstance(node.attr, int):
        return {}, node.attr
    if node.op in ("add", "sub"):
        sign = 1 if node.op == "add" else -1
        (left, a), (right, b) = affine(node.args[0]), affine(node.args[1])
        total = {leaf: left.get(leaf, 0) + sign * right.get(leaf, 0) for leaf in [*left, *right]}
        return {leaf: factor for leaf, factor in total.items() if factor}, a + sign * b
    if node.op == "mul" and node.args[1].op == "const" and isinstance(node.args[1].attr, int):
        leaves, constant = affine(node.args[0])
        factor = node.args[1].attr
        return {leaf: f * factor for leaf, f in leaves.items() if f * factor}, constant * factor
    return {node: 1}, 0
