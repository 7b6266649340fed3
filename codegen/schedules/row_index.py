"""Index arithmetic of row programs: affine indices over loop variables, and requests to change the loops.

A view divides a flat index by constant extents, a concat compares it with constant boundaries. Where the quotient or
the side cannot be told for a whole loop, the loop is asked to split (`v = outer * inner_extent + inner`) or to be cut
in two at a boundary; row_loops.py does it and starts that nest again. So innermost loops hold no division and no
select.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dinfc.ir.scalar import Expr, const

Terms = dict[Expr, int]  # atom -> coefficient


class LoopRequest(Exception):
    """A loop must change before an index can be written without division or select. Caught by the nest that owns
    `var`; never seen by users."""

    def __init__(self, var: str) -> None:
        super().__init__(var)
        self.var = var


class SplitLoop(LoopRequest):
    """Make `var` two loops, the inner one of extent `inner`, which divides the extent of `var`."""

    def __init__(self, var: str, inner: int) -> None:
        super().__init__(var)
        self.inner = inner


class CutLoop(LoopRequest):
    """Run [0, at) and [at, extent) of `var` one after the other."""

    def __init__(self, var: str, at: int) -> None:
        super().__init__(var)
        self.at = at


@dataclass(frozen=True)
class Affine:
    """sum(coefficient * atom) + constant; an atom is a variable or any expression that is not affine itself."""

    terms: Terms
    constant: int

    def expr(self) -> Expr:
        """The index as an expression, in the order in which the terms came."""
        out: Expr | None = None
        for atom, factor in self.terms.items():
            term = atom * factor
            out = term if out is None else out + term
        if out is None:
            return const(self.constant)
        return out + self.constant if self.constant >= 0 else out - (-self.constant)

    def range(self, extents: Mapping[str, int]) -> tuple[int, int] | None:
        """Smallest and largest value over the loops, None where an atom has no known range."""
        low = high = self.constant
        for atom, factor in self.terms.items():
            span = atom_range(atom, extents)
            if span is None:
                return None
            ends = (span[0] * factor, span[1] * factor)
            low, high = low + min(ends), high + max(ends)
        return low, high


def affine(e: Expr) -> Affine:
    """The affine form of an i32 index."""
    if e.op == "const":
        assert isinstance(e.attr, int)
        return Affine({}, e.attr)
    if e.op in ("add", "sub"):
        a, b = affine(e.args[0]), affine(e.args[1])
        sign = 1 if e.op == "add" else -1
        terms = dict(a.terms)
        for atom, factor in b.terms.items():
            terms[atom] = terms.get(atom, 0) + sign * factor
        return Affine({k: f for k, f in terms.items() if f}, a.constant + sign * b.constant)
    if e.op == "mul":
        for one, other in (e.args, e.args[::-1]):
            if other.op == "const":
                assert isinstance(other.attr, int)
                inner = affine(one)
                if other.attr == 0:
                    return Affine({}, 0)
                return Affine({k: f * other.attr for k, f in inner.terms.items()}, inner.constant * other.attr)
    return Affine({e: 1}, 0)


def atom_range(atom: Expr, extents: Mapping[str, int]) -> tuple[int, int] | None:
    """Range of a loop variable or of a remainder."""
    if atom.op == "var" and atom.attr in extents:
        return 0, extents[str(atom.attr)] - 1
    if atom.op == "mod" and atom.args[1].op == "const":
        divisor = atom.args[1].attr
        assert isinstance(divisor, int)
        return 0, divisor - 1
    return None


def divide(e: Expr, by: int, extents: Mapping[str, int]) -> tuple[Expr, Expr]:
    """(quotient, remainder) of an index by a constant. Raises LoopRequest where another loop structure makes both
    affine; falls back to a real division where none does."""
    form = affine(e)
    whole = {k: f // by for k, f in form.terms.items() if f % by == 0}
    rest = Affine({k: f for k, f in form.terms.items() if f % by}, form.constant)
    span = rest.range(extents)
    if span is not None and span[0] // by == span[1] // by:
        carry = span[0] // by
        return (Affine(whole, carry).expr(), Affine(rest.terms, rest.constant - carry * by).expr())
    _ask(rest, by, extents)
    return e // by, e % by


def _ask(rest: Affine, by: int, extents: Mapping[str, int]) -> None:
    """Requests the split or cut that helps most, the loop with the largest step first."""
    loops = [(f, k) for k, f in rest.terms.items() if k.op == "var" and k.attr in extents and f > 0]
    for factor, atom in sorted(loops, key=lambda item: -item[0]):
        name, extent = str(atom.attr), extents[str(atom.attr)]
        if by % factor:
            continue
        inner = by // factor
        if extent > inner and extent % inner == 0:
            raise SplitLoop(name, inner)
    if len(rest.terms) == 1 and loops:
        factor, atom = loops[0]
        name, extent = str(atom.attr), extents[str(atom.attr)]
        first = (-rest.constant) % by or by  # distance to the first boundary
        if first % factor == 0 and first // factor < extent:
            at = first // factor
            if by % factor == 0 and not rest.constant % by:
                at = extent - extent % (by // factor)  # whole blocks, then the rest
            raise CutLoop(name, at)


def flatten(indices: Sequence[Expr], shape: Sequence[object]) -> Expr:
    """Row-major position; the leading extent is not needed and may be symbolic."""
    out = indices[0]
    for i, extent in zip(indices[1:], shape[1:], strict=True):
        if not isinstance(extent, int):
            raise ValueError(f"extent {extent} behind the leading dim is not a constant")
        out = out * extent + i
    return affine(out).expr()


def unflatten(position: Expr, shape: Sequence[object], extents: Mapping[str, int]) -> tuple[Expr, ...]:
    """Indices of a row-major position. Raises LoopRequest like `divide`."""
    out: list[Expr] = []
    for extent in reversed(shape[1:]):
        if not isinstance(extent, int):
            raise ValueError(f"extent {extent} behind the leading dim is not a constant")
        position, rest = (position, const(0)) if extent == 1 else divide(position, extent, extents)
        out.append(rest)
    return (position, *reversed(out))


def locate(e: Expr, boundaries: Sequence[int], extents: Mapping[str, int]) -> int | None:
    """Number of the part [boundaries[n], boundaries[n+1]) in which an index lies, None where it is only known when
    running. Raises CutLoop where a loop runs over a boundary."""
    form = affine(e)
    span = form.range(extents)
    if span is None:
        return None
    part = next(n for n in range(len(boundaries) - 1) if span[0] < boundaries[n + 1])
    if span[1] < boundaries[part + 1]:
        return part
    loops = [(f, k) for k, f in form.terms.items() if k.op == "var" and k.attr in extents and f > 0]
    for factor, atom in sorted(loops, key=lambda item: -item[0]):
        others = Affine({k: f for k, f in form.terms.items() if k is not atom}, form.constant).range(extents)
        distance = boundaries[part + 1]
        if others is None or distance - others[1] > extents[str(atom.attr)] * factor:
            continue
        at = -(-(distance - others[0]) // factor)
        clean = others[1] - others[0] < factor and (distance - others[0]) % factor == 0
        if (clean or len(form.terms) == 1) and 0 < at < extents[str(atom.attr)]:
            raise CutLoop(str(atom.attr), at)
    return None
