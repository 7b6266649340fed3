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
UNSIGNED = {"u8": 255, "u32": 2**32 - 1, "bool": 1}  # largest values
EXACT_CASTS = ("i32", "i64", "u8", "u32", "bool")


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
        if e.dtype not in ("i32", "i64"):
            return atom_form(e)  # small and unsigned arithmetic wraps
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
        if e.op == "cast" and e.args[0].dtype in EXACT_CASTS and self._fits(e.args[0], e.dtype):
            return self.form(e.args[0])
        if e.op == "shl" and e.args[1].op == "const":
            shift = e.args[1].attr
            if isinstance(shift, int) and 0 <= shift < 32:
                return self.form(e.args[0]) * (1 << shift)
        if e.op == "idiv" and _positive_const(e.args[1]):
            quotient = self._exact_quotient(e)
            if quotient is not None:
                return quotient
        return atom_form(e)

    def _fits(self, e: Expr, dtype: str) -> bool:
        """Whether a cast of `e` keeps its value."""
        if dtype == "i64" or e.dtype in ("i32", "u8"):
            return True
        form = self.form(e)
        low, high = self.constant_bound(form, -1), self.constant_bound(form, 1)
        return low is not None and high is not None and low >= -(2**31) and high < 2**31

    def _exact_quotient(self, e: Expr) -> Form | None:
        """(c * x + r) / c is x where 0 <= r < c."""
        divisor = _value(e.args[1])
        inner = self.form(e.args[0])
        whole = Form(tuple((a, f // divisor) for a, f in inner.terms if f % divisor == 0), inner.constant // divisor)
        rest = inner - whole * divisor
        if not rest.terms:
            return whole if whole.terms else None
        if whole.terms and self.proves(rest * -1) and self.proves(rest.plus(1 - divisor)):
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
        if name in self.names or name in self.bounds:
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
            low, high = self.contents.get(str(atom.attr), UNKNOWN)
            top = UNSIGNED.get(atom.dtype)
            return (low, high) if top is None else ((*low, number(0)), (*high, number(top)))
        if op == "mod" and _positive_const(atom.args[1]):
            whole = self.form(atom.args[0])
            below = (whole,) if self.proves(whole * -1) else ()  # a remainder of something >= 0 is no larger than it
            return (number(0),), (number(_value(atom.args[1]) - 1), *below)
        if op == "and":
            masks = [a.attr for a in atom.args if a.op == "const" and isinstance(a.attr, int) and a.attr >= 0]
            if masks:
                return (number(0),), (number(min(masks)),)
        if (op == "idiv" and _positive_const(atom.args[1])) or (op == "shr" and atom.args[1].op == "const"):
            return self._quotient_bounds(atom)
        if op in ("min", "max"):
            (la, ua), (lb, ub) = self.range(atom.args[0]), self.range(atom.args[1])
            if op == "min":
                return self.both(la, lb, -1), (*ua, *ub)
            return (*la, *lb), self.both(ua, ub, 1)
        if op == "select":
            yes, no = self.copy(), self.copy()
            yes.assume(atom.args[0])
            no.assume(atom.args[0], False)
            (la, ua), (lb, ub) = yes.range(atom.args[1]), no.range(atom.args[2])
            return _either(yes, la, no, lb, -1), _either(yes, ua, no, ub, 1)
        if atom.dtype in UNSIGNED:
            return (number(0),), (number(UNSIGNED[atom.dtype]),)
        return UNKNOWN

    def _quotient_bounds(self, atom: Expr) -> Bounds:
        divisor = _value(atom.args[1])
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
        if low and any(self.proves(b * -1) for b in low):
            out_low = (*out_low, number(0))
            out_high += high  # a quotient of something >= 0 is no larger than it
        return out_low, tuple(out_high)

    def both(self, a: tuple[Form, ...], b: tuple[Form, ...], sign: int) -> tuple[Form, ...]:
        """Bounds that hold for either of two values: the weaker ones of each pair (sign 1: upper bounds)."""
        return _either(self, a, self, b, sign)

    def hull(self, values: Iterable[Expr]) -> Bounds:
        """Constants that bound every one of these expressions, as far as there are any."""
        out: list[tuple[Form, ...]] = []
        for sign, side in ((-1, 0), (1, 1)):
            best = []
            for value in values:
                ends = [n for b in self.range(value)[side] if (n := self.constant_bound(b, sign)) is not None]
                best.append((max(ends) if sign < 0 else min(ends)) if ends else None)
            known = [n for n in best if n is not None]
            whole = len(known) == len(best)
            out.append((number(min(known) if sign < 0 else max(known)),) if whole else ())
        return out[0], out[1]

    def weaker(self, form: Form, sign: int) -> list[Form]:
        """Bounds of a form with one atom that is no variable replaced by a bound of its own."""
        out = []
        for atom, factor in form.terms:
            if atom.op != "var":
                low, high = self.atom_bounds(atom)
                out += [form.without(atom) + bound * factor for bound in (high if factor * sign > 0 else low)]
        return out

    def constant_bound(self, form: Form, sign: int) -> int | None:
        """A constant upper (sign 1) or lower (sign -1) bound of a form, None where there is none."""
        best = self._upper(form * sign, [MAX_STEPS], ())
        return None if best is None else best * sign

    def never_positive(self, form: Form, splits: int = 2) -> bool:
        """Whether form <= 0 is proven: directly, as a consequence of one or two known inequalities, or for each of the
        values that a maximum, minimum or choice in it may have."""
        if self.proves(form):
            return True
        atoms = {a for a, _ in form.terms}
        near = [f for f in self.facts if any(a in atoms for a, _ in f.terms)]
        if any(self.proves(form - f) for f in near):
            return True
        if any(self.proves(form - f - g) for f in near for g in self.facts if g is not f):
            return True
        return splits > 0 and any(
            all(known.never_positive(form.without(atom) + value * factor, splits - 1) for known, value in cases)
            for atom, factor in form.terms if (cases := self._cases(atom, factor)))

    def _cases(self, atom: Expr, factor: int) -> list[tuple[Knowledge, Form]]:
        """Values of an atom, one of which is at least as large as factor * atom; none where it has no cases."""
        if (atom.op == "max" and factor > 0) or (atom.op == "min" and factor < 0):
            return [(self, self.form(a)) for a in atom.args]
        if atom.op == "select":
            yes, no = self.copy(), self.copy()
            yes.assume(atom.args[0])
            no.assume(atom.args[0], False)
            return [(yes, yes.form(atom.args[1])), (no, no.form(atom.args[2]))]
        return []

    def proves(self, form: Form) -> bool:
        """Whether form <= 0 follows from bounds of atoms alone."""
        best = self._upper(form, [MAX_STEPS], (), 0)
        return best is not None and best <= 0

    def _multiple(self, atom: Expr, factor: int) -> tuple[Form, ...]:
        """Upper bounds of factor * (x / c) where c divides the factor: c * (x / c) lies in (x - c, x]."""
        if atom.op != "idiv" or not _positive_const(atom.args[1]) or factor % _value(atom.args[1]):
            return ()
        divisor = _value(atom.args[1])
        inner = self.form(atom.args[0])
        return ((inner if factor > 0 else inner.plus(1 - divisor)) * (factor // divisor),)

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
            rest = form.without(atom)
            for bound in (*(b * factor for b in (high if factor > 0 else low)), *self._multiple(atom, factor)):
                found = self._upper(rest + bound, budget, (*seen, atom), goal)
                if found is not None and (best is None or found < best):
                    best = found
                    if goal is not None and best <= goal:
                        return best
        return best


def _either(yes: Knowledge, a: tuple[Form, ...], no: Knowledge, b: tuple[Form, ...], sign: int) -> tuple[Form, ...]:
    """Bounds of a value that is one with bounds `a` where `yes` holds, and one with bounds `b` where `no` does.

    A bound of one side must be shown to be one of the other side by what is known on *that* side.
    """
    out = []
    for x in a:
        for y in b:
            if yes.proves((x - y) * sign):
                out.append(y)
            elif no.proves((y - x) * sign):
                out.append(x)
            else:
                out += [w for w in yes.weaker(x, sign) if no.proves((y - w) * sign)]
                out += [w for w in no.weaker(y, sign) if yes.proves((x - w) * sign)]
    ends = [[n for f in forms if (n := known.constant_bound(f, sign)) is not None]
            for known, forms in ((yes, a), (no, b))]
    if all(ends):
        best = max(min(e) for e in ends) if sign > 0 else min(max(e) for e in ends)
        out.append(number(best))
    return tuple(dict.fromkeys(out))


def _value(e: Expr) -> int:
    assert isinstance(e.attr, int)
    return e.attr


def _positive_const(e: Expr) -> bool:
    return e.op == "const" and isinstance(e.attr, int) and e.attr > 0


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


def only_scalars(form: Form) -> bool:
    """Whether a form speaks of program scalars only."""
    return all(a.op == "var" and a.attr in SCALAR_NAMES for a, _ in form.terms)


def mentions_any(names: Iterable[str], op: str) -> Callable[[Expr], bool]:
    found = set(names)
    return lambda node: node.op == op and str(node.attr) in found
