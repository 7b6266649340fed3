"""Linear forms over the integers of a tile program, and proofs that one is never positive.

A form is `sum(coefficient * atom) + constant`; atoms are loop variables, program scalars, and expressions that are not
linear themselves (loads, quotients, minima ..). Bounds of atoms are forms again, so that `t < T` or `j < rows` can be
used whatever T is. A proof replaces atoms by their bounds until only constants are left, if need be after adding a
known inequality.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..scalar import Expr, const, var, walk

MAX_STEPS = 120  # of one proof
MAX_NESTING = 4  # expressions inside expressions whose bounds are asked for


@dataclass(frozen=True)
class Form:
    """`terms`: (atom, coefficient) without zeros, in a fixed order."""

    terms: tuple[tuple[Expr, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Form) -> Form:
        total = dict(self.terms)
        for atom, factor in other.terms:
            total[atom] = total.get(atom, 0) + factor
        return Form(tuple((a, f) for a, f in total.items() if f), self.constant + other.constant)

    def __mul__(self, factor: int) -> Form:
        if factor == 0:
            return Form()
        return Form(tuple((a, f * factor) for a, f in self.terms), self.constant * factor)

    def __sub__(self, other: Form) -> Form:
        return self + other * -1

    def plus(self, n: int) -> Form:
        return Form(self.terms, self.constant + n)

    def coefficient(self, atom: Expr) -> int:
        return next((f for a, f in self.terms if a == atom), 0)

    def without(self, atom: Expr) -> Form:
        return Form(tuple((a, f) for a, f in self.terms if a != atom), self.constant)


Bounds = tuple[tuple[Form, ...], tuple[Form, ...]]  # lower bounds, upper bounds (each one holds)
UNKNOWN: Bounds = ((), ())


def number(n: int) -> Form:
    return Form((), n)


def atom_form(atom: Expr) -> Form:
    return Form(((atom, 1),), 0)


@dataclass
class Knowledge:
    """What holds at a place of a program.

    `names`: forms of bound names that are linear in others; `bounds`: of variables; `facts`: forms that are <= 0;
    `contents`: bounds of the elements of integer buffers.
    """

    names: dict[str, Form] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    facts: list[Form] = field(default_factory=list)
    contents: Mapping[str, Bounds] = field(default_factory=dict)
    extra: dict[Expr, Bounds] = field(default_factory=dict)
    nesting: int = 0

    def copy(self) -> Knowledge:
        return Knowledge(dict(self.names), dict(self.bounds), list(self.facts), self.contents, dict(self.extra))

    def form(self, e: Expr) -> Form:
        """The linear form of an integer expression."""
        if e.op == "const":
            assert isinstance(e.attr, int)
            return number(e.attr)
        if e.op == "var":
            return self.names.get(str(e.attr), atom_form(e))
        if e.op in ("add", "sub"):
            a, b = self.form(e.args[0]), self.form(e.args[1])
            return a + b if e.op == "add" else a - b
        if e.op == "neg":
            return self.form(e.args[0]) * -1
        if e.op == "mul":
            a, b = self.form(e.args[0]), self.form(e.args[1])
            if not b.terms:
                return a * b.constant
            if not a.terms:
                return b * a.constant
        if e.op == "cast" and e.dtype in ("i32", "i64") and e.args[0].dtype not in ("f32", "bf16"):
            return self.form(e.args[0])
        if e.op == "shl" and e.args[1].op == "const":
            shift = e.args[1].attr
            assert isinstance(shift, int)
            return self.form(e.args[0]) * (1 << shift)
        if e.op == "idiv" and e.args[1].op == "const":
            quotient = self._exact_quotient(e)
            if quotient is not None:
                return quotient
        return atom_form(e)

    def _exact_quotient(self, e: Expr) -> Form | None:
        """(c * x + r) / c is x where 0 <= r < c."""
        divisor = e.args[1].attr
        assert isinstance(divisor, int)
        inner = self.form(e.args[0])
        whole = Form(tuple((a, f // divisor) for a, f in inner.terms if f % divisor == 0), inner.constant // divisor)
        rest = inner - whole * divisor
        if not rest.terms:
            return whole if whole.terms else None
        if whole.terms and self._proves(rest * -1) and self._proves(rest.plus(1 - divisor)):
            return whole
        return None

    def assume(self, cond: Expr, holds: bool = True) -> None:
        """Adds what a condition says. Conditions that say nothing linear are ignored."""
        if cond.op == "lnot":
            self.assume(cond.args[0], not holds)
        elif (cond.op == "land" and holds) or (cond.op == "lor" and not holds):
            self.assume(cond.args[0], holds)
            self.assume(cond.args[1], holds)
        elif cond.op in ("lt", "le", "gt", "ge", "eq") and cond.args[0].dtype in ("i32", "i64"):
            a, b = self.form(cond.args[0]), self.form(cond.args[1])
            op = cond.op
            if not holds:
                op = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": ""}[op]
            if op in ("gt", "ge"):
                a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
            if op in ("lt", "le", "eq"):
                self.learn((a - b).plus(1 if op == "lt" else 0))
            if op == "eq":
                self.learn(b - a)

    def learn(self, fact: Form) -> None:
        """`fact` <= 0; what it says of a single atom becomes a bound of that atom."""
        self.facts.append(fact)
        for atom, factor in fact.terms:
            if abs(factor) == 1 and _rank(atom) and all(_rank(a) == 0 for a, _ in fact.terms if a != atom):
                bound = fact.without(atom) * -factor
                low, high = self.extra.get(atom, UNKNOWN)
                self.extra[atom] = ((*low, bound), high) if factor < 0 else (low, (*high, bound))

    def forget(self, mentions: Callable[[Expr], bool]) -> None:
        """Drops everything that rests on an atom for which `mentions` is true of some node."""
        def stale(form: Form) -> bool:
            return any(mentions(node) for atom, _ in form.terms for node in walk(atom))

        self.facts = [f for f in self.facts if not stale(f)]
        self.names = {n: f for n, f in self.names.items() if not stale(f)}
        self.bounds = {n: _kept(bounds, stale) for n, bounds in self.bounds.items()}
        self.extra = {atom: _kept(bounds, stale) for atom, bounds in self.extra.items()
                      if not any(mentions(node) for node in walk(atom))}

    def bind(self, name: str, form: Form | None, bounds: Bounds) -> None:
        """A new meaning of a name; what was known of an older one is gone."""
        self.forget(lambda node: node.op == "var" and node.attr == name)
        self.names.pop(name, None)
        if form is not None and all(a.op == "var" for a, _ in form.terms):
            self.names[name] = form
        self.bounds[name] = bounds

    def range(self, e: Expr) -> Bounds:
        """Bounds of an integer expression, from its structure."""
        form = self.form(e)
        if form.terms != ((e, 1),):
            return (form,), (form,)
        return self.atom_bounds(e)

    def atom_bounds(self, atom: Expr) -> Bounds:
        """Bounds of an atom in terms of others."""
        extra_low, extra_high = self.extra.get(atom, UNKNOWN)
        low, high = self._own_bounds(atom)
        return (*extra_low, *low), (*extra_high, *high)

    def _own_bounds(self, atom: Expr) -> Bounds:
        if atom.op == "var":
            return self.bounds.get(str(atom.attr), UNKNOWN)
        if self.nesting >= MAX_NESTING:
            return UNKNOWN
        self.nesting += 1
        try:
            return self._node_bounds(atom)
        finally:
            self.nesting -= 1

    def _node_bounds(self, atom: Expr) -> Bounds:
        op = atom.op
        if op == "load":
            return self.contents.get(str(atom.attr), UNKNOWN)
        if op == "mod" and atom.args[1].op == "const" and isinstance(atom.args[1].attr, int) and atom.args[1].attr > 0:
            return (number(0),), (number(atom.args[1].attr - 1),)
        if op == "and":
            masks = [a.attr for a in atom.args if a.op == "const" and isinstance(a.attr, int) and a.attr >= 0]
            if masks:
                return (number(0),), (number(min(masks)),)
        if op in ("idiv", "shr") and atom.args[1].op == "const":
            return self._quotient_bounds(atom)
        if op in ("min", "max"):
            (la, ua), (lb, ub) = self.range(atom.args[0]), self.range(atom.args[1])
            if op == "min":
                return self._both(la, lb, -1), (*ua, *ub)
            return (*la, *lb), self._both(ua, ub, 1)
        if op == "select":
            yes, no = self.copy(), self.copy()
            yes.assume(atom.args[0])
            no.assume(atom.args[0], False)
            (la, ua), (lb, ub) = yes.range(atom.args[1]), no.range(atom.args[2])
            return yes._both(la, lb, -1), yes._both(ua, ub, 1)
        if atom.dtype == "u8":
            return (number(0),), (number(255),)
        return UNKNOWN

    def _quotient_bounds(self, atom: Expr) -> Bounds:
        divisor = atom.args[1].attr
        assert isinstance(divisor, int)
        if atom.op == "shr":
            divisor = 1 << divisor
        low, high = self.range(atom.args[0])
        lows = [f for b in low if (f := self.constant_bound(b, -1)) is not None]
        out_low = tuple(number(n // divisor) for n in lows)
        out_high: list[Form] = []
        for b in high:
            n = self.constant_bound(b, 1)
            if n is not None:
                out_high.append(number(n // divisor))
            elif all(f % divisor == 0 for _, f in b.terms):
                out_high.append(Form(tuple((a, f // divisor) for a, f in b.terms), b.constant // divisor))
        if low and any(self._proves(b * -1) for b in low):
            out_low = (*out_low, number(0))
            out_high += high  # a quotient of something >= 0 is no larger than it
        return out_low, tuple(out_high)

    def _both(self, a: tuple[Form, ...], b: tuple[Form, ...], sign: int) -> tuple[Form, ...]:
        """Bounds that hold for either of two values: the weaker ones of each pair (sign 1: upper bounds)."""
        out = []
        for x in a:
            for y in b:
                if self._proves((x - y) * sign):
                    out.append(y)
                elif self._proves((y - x) * sign):
                    out.append(x)
        return tuple(dict.fromkeys(out))

    def constant_bound(self, form: Form, sign: int) -> int | None:
        """A constant upper (sign 1) or lower (sign -1) bound of a form, None where there is none."""
        best = self._upper(form * sign, [MAX_STEPS], ())
        return None if best is None else best * sign

    def never_positive(self, form: Form) -> bool:
        """Whether form <= 0 is proven: directly, or as a consequence of one or two known inequalities."""
        if self._proves(form):
            return True
        atoms = {a for a, _ in form.terms}
        near = [f for f in self.facts if any(a in atoms for a, _ in f.terms)]
        if any(self._proves(form - f) for f in near):
            return True
        return any(self._proves(form - f - g) for f in near for g in self.facts if g is not f)

    def _proves(self, form: Form) -> bool:
        best = self._upper(form, [MAX_STEPS], (), 0)
        return best is not None and best <= 0

    def _upper(self, form: Form, budget: list[int], seen: tuple[Expr, ...], goal: int | None = None) -> int | None:
        """The smallest constant upper bound found by replacing atoms by their bounds, in any order; None for none.

        `goal`: stops at the first bound that is as small. An atom is replaced once, program scalars last.
        """
        if not form.terms:
            return form.constant
        budget[0] -= 1
        if budget[0] < 0:
            return None
        rank = max(_rank(a) for a, _ in form.terms)
        candidates = [(a, f) for a, f in form.terms if a not in seen and (_rank(a) > 0 or rank == 0)]
        best: int | None = None
        # Names bound later come later in a form; their bounds speak of the earlier ones, so they go first.
        for atom, factor in reversed(candidates[-3:] if rank else candidates[:1]):
            low, high = self.atom_bounds(atom)
            for bound in high if factor > 0 else low:
                found = self._upper(form.without(atom) + bound * factor, budget, (*seen, atom), goal)
                if found is not None and (best is None or found < best):
                    best = found
                    if goal is not None and best <= goal:
                        return best
        return best


def _kept(bounds: Bounds, stale: Callable[[Form], bool]) -> Bounds:
    low, high = bounds
    return tuple(f for f in low if not stale(f)), tuple(f for f in high if not stale(f))


SCALAR_NAMES = ("T", "S", "R", "row0", "rows", "slots", "pages")


def _rank(atom: Expr) -> int:
    if atom.op != "var":
        return 2
    return 0 if atom.attr in SCALAR_NAMES else 1


def program_knowledge() -> Knowledge:
    """What every program may rely on: sizes are positive, and the rows of a chunk lie inside the step."""
    known = Knowledge()
    for name in SCALAR_NAMES:
        known.bounds[name] = ((number(0 if name == "row0" else 1),), ())
    known.facts.append(known.form(var("row0")) + known.form(var("rows")) - known.form(var("T")))
    return known


def interval(known: Knowledge, low: Expr | int, end: Expr) -> Bounds:
    """[low, end) as bounds."""
    first = known.form(const(low) if isinstance(low, int) else low)
    return (first,), (known.form(end).plus(-1),)


def mentions_any(names: Iterable[str], op: str) -> Callable[[Expr], bool]:
    found = set(names)
    return lambda node: node.op == op and str(node.attr) in found
