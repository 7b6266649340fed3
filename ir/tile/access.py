"""What is known at a place of a program, and which elements were touched on the way there: whether iterations that may
run at the same time get in each other's way, and whether an element was written before it is read.

*Races.* Every access inside an independent loop (grid, `parallel`, `vector`) to a buffer declared outside of it is kept
as a `Touch`: per dim `step * v + fixed + [low, high]`, where v is the loop variable, `fixed` is equal in all iterations
and the interval covers everything else. Two touches, at least one of them a write, must lie apart in some dim whenever
their iterations differ. One exception, a contract of the step's input: the entries of an integer parameter that tells
where records of a state go are different, so stores whose indices give back the entry (`Key`) do not meet.

*Initialisation.* A `Box` is a block of elements that was written on every path to here, or on those where some
conditions hold. A loop stretches the boxes of its body along its variable; a branch adds a condition; boxes under
opposite conditions become one without it. A read must lie inside a box without conditions.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..scalar import Expr, substitute, var, walk
from .linear import Form, Knowledge, atom_form, number
from .program import Buffer, Copy, Dot, Fill, For, If, Let, Reduce, Stmt, Store, statements


@dataclass(frozen=True)
class Span:
    """One dim of an access: `width` elements from `start`."""

    start: Form
    width: Form


Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Reach:
    """One dim of an access as seen from a loop: step * v + fixed + [low, high]; None is unbounded. `exact`: c where the
    index is v / c and v is a multiple of c."""

    step: int
    fixed: Form
    low: int | None
    high: int | None
    exact: int = 0


@dataclass(frozen=True)
class Key:
    """Indices that tell entries e of a list apart: dim `dims[-1]` is step * e + [low, high] (divisor 0), or `dims[0]`
    is e / divisor and `dims[1]` is step * (e % divisor) + [low, high]."""

    entry: Expr
    divisor: int
    dims: tuple[int, ...]
    step: int
    low: int
    high: int


@dataclass(frozen=True)
class Touch:
    """An access inside an independent loop. `only`: the one iteration in which it happens, where that is known; `keys`:
    the entries of lists, one an iteration, that its indices tell apart."""

    statement: Stmt | None
    write: bool
    dims: tuple[Reach, ...]
    only: int | None
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Loop:
    """A loop around a place; `touches` by buffer where its iterations are independent, else None."""

    var: str
    touches: dict[str, list[Touch]] | None


def touch(statement: Stmt | None, write: bool, spans: Spans, loop: str, inside: Callable[[Expr], bool],
          entry: Callable[[Expr], Expr | None], known: Knowledge) -> Touch:
    """The access as the loop sees it.

    `inside(atom)`: whether an atom may differ from one iteration to the next (the loop variable aside); `entry(atom)`:
    the element of a list that an atom is, None for any other atom.
    """
    dims, movings = [], []
    for span in spans:
        step = span.start.coefficient(var(loop))
        rest = span.start.without(var(loop))
        moving = Form(tuple((a, f) for a, f in rest.terms if inside(a)))
        low = known.constant_bound(moving, -1)
        high = known.constant_bound(moving + span.width.plus(-1), 1)
        dims.append(Reach(step, rest - moving, low, high, _exact(moving, loop, known)))
        movings.append(moving)

    def listed(atom: Expr) -> Expr | None:
        found = entry(atom)
        if found is None or len(found.args) != 1:
            return None
        at = known.form(found.args[0])
        alone = at.coefficient(var(loop)) and not any(inside(a) for a, _ in at.without(var(loop)).terms)
        return found if alone else None

    return Touch(statement, write, tuple(dims), _only(loop, known), tuple(_keys(spans, dims, movings, listed, known)))


def _keys(spans: Spans, dims: Sequence[Reach], movings: Sequence[Form], listed: Callable[[Expr], Expr | None],
          known: Knowledge) -> Iterator[Key]:
    for d, moving in enumerate(movings):
        for atom, factor in moving.terms:
            divisor = 0
            where: tuple[int, ...] = (d,)
            found = listed(atom)
            if found is None and atom.op == "mod" and isinstance(atom.args[1].attr, int):
                quotient = Expr("idiv", atom.args, atom.dtype)
                other = next((n for n, m in enumerate(movings) if m.terms == ((quotient, 1),)), None)
                if other is not None:
                    found, divisor, where = listed(atom.args[0]), atom.args[1].attr, (other, d)
            rest = moving.without(atom) + dims[d].fixed
            low, high = known.constant_bound(rest, -1), known.constant_bound(rest + spans[d].width.plus(-1), 1)
            if found is not None and low is not None and high is not None and not dims[d].step:
                yield Key(found, divisor, where, factor, low, high)


def _exact(moving: Form, loop: str, known: Knowledge) -> int:
    """c where the moving part is v / c, and v % c is known to be 0."""
    if len(moving.terms) != 1 or moving.terms[0][1] != 1:
        return 0
    atom = moving.terms[0][0]
    if atom.op != "idiv" or atom.args[0] != var(loop) or atom.args[1].op != "const":
        return 0
    divisor = atom.args[1].attr
    remainder = known.form(Expr("mod", atom.args, atom.dtype))
    return divisor if isinstance(divisor, int) and divisor > 0 and known.never_positive(remainder) else 0


def _only(loop: str, known: Knowledge) -> int | None:
    me = known.form(var(loop))
    low, high = known.constant_bound(me, -1), known.constant_bound(me, 1)
    return low if low is not None and low == high else None


def clash(touches: Sequence[Touch], contract: bool) -> tuple[Touch, Touch] | None:
    """Two touches that may meet in different iterations. `contract`: entries of one list are different."""
    writes = [t for t in touches if t.write]
    for number_, a in enumerate(touches):
        for b in (writes if not a.write else touches[number_:]):
            if a.only is not None and a.only == b.only:
                continue
            if contract and any(_other_entry(x, y, a, b) for x in a.keys for y in b.keys):
                continue
            if not any(_apart(x, y) for x, y in zip(_beside(a, b), _beside(b, a), strict=True)):
                return (a, b) if a.write else (b, a)
    return None


def _other_entry(x: Key, y: Key, a: Touch, b: Touch) -> bool:
    """Whether two accesses are apart because the entries of one list are."""
    same = (x.entry, x.divisor, x.dims, x.step) == (y.entry, y.divisor, y.dims, y.step)
    if not same or max(x.high - y.low, y.high - x.low) >= abs(x.step):
        return False
    return not x.divisor or _equal(a.dims[x.dims[0]].fixed, b.dims[y.dims[0]].fixed)


def _beside(a: Touch, b: Touch) -> tuple[Reach, ...]:
    """The dims of `a`; of one iteration only, they may be written with any step: here with that of `b`."""
    if a.only is None:
        return a.dims
    return tuple(Reach(y.step, x.fixed.plus((x.step - y.step) * a.only), x.low, x.high)
                 for x, y in zip(a.dims, b.dims, strict=True))


def _apart(x: Reach, y: Reach) -> bool:
    """Whether two accesses in different iterations differ in this dim."""
    if x.step != y.step:
        return False
    shift = x.fixed - y.fixed
    if shift.terms:
        return False
    if x.exact and x.exact == y.exact and not x.step and not shift.constant:
        return True
    if x.low is None or x.high is None or y.low is None or y.high is None:
        return False
    low, high = shift.constant + x.low - y.high, shift.constant + x.high - y.low
    if x.step:
        return -abs(x.step) < low and high < abs(x.step)
    return low > 0 or high < 0


# -- initialisation

Guards = frozenset[tuple[Expr, bool]]  # conditions and whether they hold
MAX_GUARDED = 24  # boxes of one buffer that are kept with conditions


@dataclass(frozen=True)
class Box:
    """Elements [low, high) of every dim, written where all guards hold; a guard may speak of an element's own index in
    dim d as `#d`."""

    dims: tuple[tuple[Form, Form], ...]
    guards: Guards = frozenset()


Boxes = tuple[Box, ...]


def box_of(spans: Spans) -> Box:
    return Box(tuple((s.start, s.start + s.width) for s in spans))


def whole(extents: Sequence[Form]) -> Spans:
    """Every element of a buffer."""
    return tuple(Span(number(0), e) for e in extents)


def literals(cond: Expr, holds: bool) -> Guards:
    """A condition as conditions that hold or do not."""
    if cond.op == "lnot":
        return literals(cond.args[0], not holds)
    if (cond.op == "land" and holds) or (cond.op == "lor" and not holds):
        return literals(cond.args[0], holds) | literals(cond.args[1], holds)
    return frozenset({(cond, holds)})


def guarded(boxes: Boxes, cond: Expr, holds: bool) -> Boxes:
    """The same boxes under one more condition. One that contradicts itself is never written."""
    new = literals(cond, holds)
    return tuple(Box(b.dims, b.guards | new) for b in boxes if not any((c, not h) in b.guards for c, h in new))


def add_box(boxes: Boxes, new: Box, known: Knowledge) -> Boxes:
    """With the new box, joined to one that it continues in a single dim, or that is written where it is not."""
    for old in boxes:
        if old.guards <= new.guards and _holds(old, new, known):
            return boxes
    for at, old in enumerate(boxes):
        joined = _join(old, new)
        if joined is not None:
            return add_box((*boxes[:at], *boxes[at + 1:]), joined, known)
    for old in boxes:
        rest = _resolved(old.guards, new.guards)
        if rest is not None and _same(old, new):
            smaller = tuple(b for b in boxes if not (rest <= b.guards and _same(b, new)))
            return add_box(smaller, Box(new.dims, rest), known)
    if new.guards and sum(1 for b in boxes if b.guards) >= MAX_GUARDED:
        return boxes
    return (*boxes, new)


def _resolved(a: Guards, b: Guards) -> Guards | None:
    """The guards of "a or b" where they differ in one condition (and one of them may have more); else None."""
    for cond, holds in a:
        if (cond, not holds) in b:
            x, y = a - {(cond, holds)}, b - {(cond, not holds)}
            return y if x <= y else x if y <= x else None
    return None


def _join(a: Box, b: Box) -> Box | None:
    different = [d for d, (x, y) in enumerate(zip(a.dims, b.dims, strict=True))
                 if not (_equal(x[0], y[0]) and _equal(x[1], y[1]))]
    if len(different) != 1 or a.guards != b.guards:
        return None
    (d,) = different
    (la, ha), (lb, hb) = a.dims[d], b.dims[d]
    if _equal(ha, lb):
        return Box((*a.dims[:d], (la, hb), *a.dims[d + 1:]), a.guards)
    if _equal(hb, la):
        return Box((*a.dims[:d], (lb, ha), *a.dims[d + 1:]), a.guards)
    return None


def _equal(a: Form, b: Form) -> bool:
    difference = a - b
    return not difference.terms and difference.constant == 0


def _same(a: Box, b: Box) -> bool:
    return all(_equal(x[0], y[0]) and _equal(x[1], y[1]) for x, y in zip(a.dims, b.dims, strict=True))


def _holds(outer: Box, inner: Box, known: Knowledge) -> bool:
    return all(known.never_positive(lo - li) and known.never_positive(hi - ho)
               for (lo, ho), (li, hi) in zip(outer.dims, inner.dims, strict=True))


def covered(boxes: Boxes, spans: Spans, known: Knowledge) -> bool:
    """Whether all these elements lie in one box that was written whatever the data."""
    wanted = box_of(spans)
    return any(not b.guards and _holds(b, wanted, known) for b in boxes)


def both(then: Boxes, otherwise: Boxes, known: Knowledge) -> Boxes:
    """What was written on either of two paths."""
    kept: Boxes = ()
    for mine, others in ((then, otherwise), (otherwise, then)):
        for b in mine:
            if b not in kept and any(o.guards <= b.guards and _holds(o, b, known) for o in others):
                kept = (*kept, b)
    return kept


def lasting(boxes: Boxes, ended: Callable[[Expr], bool]) -> Boxes:
    """Boxes that do not depend on names that end here, nor (their extent) on memory."""
    return tuple(b for b in boxes if not (_stale(b, ended) or any(ended(n) for c, _ in b.guards for n in walk(c))))


def _stale(b: Box, ended: Callable[[Expr], bool]) -> bool:
    return any(n.op == "load" or ended(n) for low, high in b.dims for form in (low, high)
               for a, _ in form.terms for n in walk(a))


def stretch(box: Box, loop: str, extent: Form, runs: bool) -> Box | None:
    """What a whole loop wrote, given what one iteration did. `runs`: there is at least one iteration. None where the
    elements do not follow each other."""
    dims, along = [], []
    for d, (low, high) in enumerate(box.dims):
        step = low.coefficient(var(loop))
        width = high - low
        if step:
            if width.terms or width.constant != abs(step):
                return None
            along.append(d)
            first, last = low.without(var(loop)), high.without(var(loop))
            travel = extent.plus(-1) * step
            low, high = (first, last + travel) if step > 0 else (first + travel, last)
        dims.append((low, high))
    if len(along) > 1 or not (along or runs):
        return None
    guards = box.guards
    if any(n == var(loop) for c, _ in guards for n in walk(c)):
        if not along or not _equal(box.dims[along[0]][0], atom_form(var(loop))):
            return None
        own = var(f"#{along[0]}")
        guards = frozenset((substitute(c, lambda n: own if n == var(loop) else None), h) for c, h in guards)
    return Box(tuple(dims), guards)


def untouched(boxes: Boxes, stored: frozenset[str]) -> Boxes:
    """Boxes whose guards do not rest on buffers that are stored to."""
    return tuple(b for b in boxes if not any(n.op == "load" and n.attr in stored for c, _ in b.guards for n in walk(c)))


# -- places of a program


@dataclass
class Scope:
    """What is known at a place: buffers and names in sight, inequalities, loops around, elements written so far."""

    buffers: dict[str, Buffer]
    names: dict[str, str]  # dtypes
    known: Knowledge
    loops: tuple[Loop, ...] = ()  # outermost first
    level: dict[str, int] = field(default_factory=dict)  # buffer or name -> number of loops around it, its own included
    entries: dict[str, Expr] = field(default_factory=dict)  # name -> the element of an input that it is
    written: dict[str, Boxes] = field(default_factory=dict)

    def copy(self) -> Scope:
        return Scope(dict(self.buffers), dict(self.names), self.known.copy(), self.loops, dict(self.level),
                     dict(self.entries), dict(self.written))

    def assuming(self, cond: Expr, holds: bool = True) -> Scope:
        """For expressions below a condition: declares nothing."""
        inner = replace(self, known=self.known.copy())
        inner.known.assume(cond, holds)
        return inner

    def extents(self, buffer: Buffer) -> list[Form]:
        return [self.known.form(d) for d in buffer.shape]

    def entry(self, atom: Expr) -> Expr | None:
        """The element of an integer input that an expression is, itself or by name."""
        if atom.op == "load" and self.buffers[str(atom.attr)].mode == "in" and (
                self.buffers[str(atom.attr)].space == "global"):
            return atom
        return self.entries.get(str(atom.attr)) if atom.op == "var" else None

    def ended(self, node: Expr) -> bool:
        """Whether a node is a name that this place does not know (`#d` are no names)."""
        return node.op == "var" and node.attr not in self.names and not str(node.attr).startswith("#")

    def add_boxes(self, name: str, boxes: Boxes) -> None:
        for box in boxes:
            self.written[name] = add_box(self.written.get(name, ()), box, self.known)

    def forget_boxes(self, stored: frozenset[str]) -> None:
        """These buffers changed: conditions on them say nothing any more."""
        for name, boxes in self.written.items():
            if any(b.guards for b in boxes):
                self.written[name] = untouched(boxes, stored)

    def record(self, name: str, spans: Spans, write: bool, s: Stmt | None) -> None:
        """An access to a buffer, for every independent loop that lies inside of its declaration."""
        for number_, loop in enumerate(self.loops):
            if loop.touches is None or name not in loop.touches or self.level[name] > number_:
                continue

            def inside(atom: Expr, depth: int = number_) -> bool:
                return any(x.op == "load" or (x.op == "var" and self.level.get(str(x.attr), 0) > depth)
                           for x in walk(atom))

            loop.touches[name].append(touch(s, write, spans, loop.var, inside, self.entry, self.known))


# -- tiles of products


def dot_operands(s: Dot) -> list[tuple[str, tuple[Expr, ...], tuple[int, ...], bool]]:
    """Operands of a product: buffer, offsets, elements along its last dims, and whether its first tile dim counts rows.

    Raises KeyError for an unknown layout.
    """
    a_k = s.k // 2 if s.a_codec == "e2m1" else s.k
    b_k, b_n = (s.k // 2, s.n // 2) if s.b_codec == "e2m1" else (s.k, s.n)
    blocks = -(-s.n // 16)
    widths = {"nk": (s.n, b_k), "kn": (s.k, b_n), "n16k": (blocks, s.k, 16), "n16k4": (blocks, s.k, 8)}[s.b_layout]
    out = [(s.a, s.a_at, (s.m, a_k), True), (s.b, s.b_at, widths, False)]
    groups = max(1, s.k // s.group)
    if s.a_scale is not None:
        out.append((s.a_scale, s.a_scale_at or (), (s.m, groups), True))
    if s.b_scale is not None:
        out.append((s.b_scale, s.b_scale_at or (), (-(-s.n // s.b_scale_rows), groups), False))
    return out


# -- what a statement holds


def expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself holds (not those of statements inside it)."""
    found: tuple[Expr | None, ...] = ()
    if isinstance(s, For):
        found = (s.extent,)
    elif isinstance(s, Let | Fill):
        found = (s.value,)
    elif isinstance(s, Store):
        found = (*s.indices, s.value, s.where)
    elif isinstance(s, If):
        found = (s.cond,)
    elif isinstance(s, Copy):
        found = (*s.offsets, *s.limits)
    elif isinstance(s, Reduce):
        found = (s.extent, s.value, s.start, s.times)
    elif isinstance(s, Dot):
        found = (*s.a_at, *s.b_at, *(s.a_scale_at or ()), *(s.b_scale_at or ()), s.rows)
    yield from (e for e in found if e is not None)


def stored_buffers(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers that statements of a block store to."""
    out: set[str] = set()
    for s in statements(body):
        if isinstance(s, Store | Fill):
            out.add(s.buffer)
        elif isinstance(s, Copy):
            out.add(s.dst)
        elif isinstance(s, Dot):
            out.add(s.acc)
    return frozenset(out)


def loaded_buffers(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers that statements of a block read."""
    out: set[str] = set()
    for s in statements(body):
        out |= {str(n.attr) for e in expressions(s) for n in walk(e) if n.op == "load"}
        if isinstance(s, Copy):
            out |= {s.src, *(() if s.rows is None else (s.rows,))}
        elif isinstance(s, Dot):
            out |= {s.acc, s.a, s.b, *(x for x in (s.a_scale, s.b_scale) if x is not None)}
    return frozenset(out)
