"""Races of tile programs: iterations that may run at the same time must store to different elements.

A store is safe if, for every independent loop around it (up to the buffer's declaration), some index tells the
iterations apart: its linear form moves by more per iteration than everything bound further inside can make up for.
Two more cases: a condition that holds in one iteration only, and states, whose records a step's slots name: slots of a
step are different by contract (the interpreter and the step input check it), so an index that comes from memory may
only be used on `inout` parameters.
"""
from __future__ import annotations

from ..scalar import Expr, var, walk
from .linear import Form, Knowledge
from .program import Buffer, Program, Store, TileError


def check_store(program: Program, s: Store, buffer: Buffer, known: Knowledge,
                loops: tuple[tuple[str, bool], ...]) -> None:
    """Raises TileError for a store that two iterations of one of `loops` (outermost first) may do to one element."""
    forms = [known.form(i) for i in s.indices]
    for number, (name, independent) in enumerate(loops):
        if not independent or _single(name, known):
            continue
        inner = {n for n, _ in loops[number + 1:]}
        if any(_tells_apart(f, name, inner, known) for f in forms):
            continue
        if buffer.mode == "inout" and buffer.space == "global" and any(_from_memory(f) for f in forms):
            continue
        if any(_quotient_of(i, name, known) for i in s.indices):
            continue
        raise TileError(f"iterations of {name} may store to the same element of {buffer.name}", s)


def _tells_apart(form: Form, name: str, inner: set[str], known: Knowledge) -> bool:
    """Different iterations of `name` give different values, whatever the loops inside it do."""
    step = abs(form.coefficient(var(name)))
    if not step:
        return False
    rest = form.without(var(name))
    moving = Form(tuple((a, f) for a, f in rest.terms if _depends(a, inner | {name})))
    if any(_depends(a, {name}) for a, _ in moving.terms):
        return False
    if not moving.terms:
        return True
    low, high = known.constant_bound(moving, -1), known.constant_bound(moving, 1)
    return low is not None and high is not None and high - low < step


def _depends(atom: Expr, names: set[str]) -> bool:
    return any(n.op == "var" and n.attr in names for n in walk(atom)) or any(n.op == "load" for n in walk(atom))


def _from_memory(form: Form) -> bool:
    """An index that was loaded, or bound to something that was (a name whose bounds nobody knows)."""
    return bool(form.terms)


def _single(name: str, known: Knowledge) -> bool:
    """The conditions around hold for one iteration only."""
    me = known.form(var(name))
    upper = [f for f in known.facts if f.coefficient(var(name)) == 1 and len(f.terms) == 1]
    lower = [f for f in known.facts if f.coefficient(var(name)) == -1 and len(f.terms) == 1]
    highs = [-f.constant for f in upper]
    lows = [f.constant for f in lower]
    low = known.constant_bound(me, -1)
    high = known.constant_bound(me, 1)
    if low is not None:
        lows.append(low)
    if high is not None:
        highs.append(high)
    return bool(highs and lows) and min(highs) <= max(lows)


def _quotient_of(index: Expr, name: str, known: Knowledge) -> bool:
    """`v / c` under the condition that v is a multiple of c."""
    if index.op != "idiv" or index.args[1].op != "const" or index.args[0] != var(name):
        return False
    remainder = Expr("mod", index.args, "i32")
    return known.never_positive(known.form(remainder))
