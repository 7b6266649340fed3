"""Verifier of tensor IR: structure, types, calls, states, bounds. Mistakes are shown inside the printed IR.

Checked per function: names are unique and can be printed; every value is made before its use, in the same function (a
region reads nothing from outside); symbols are declared; the stored type of every result is what the op's type rule
infers; calls, constants and regions fit what they name; states are threaded (`state_order`); no float is reduced over
an extent that depends on the step (fault F12); either every reduction of a function has its order or none has; no
gather whose index can never lie in its source. Of a whole module: what is read from rings was left there
(`ring_reads`).
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sympy

from .graph import Function, IRError, Module, Op, Value, definition
from .opkit import int_attr, same_dim
from .ring_reads import ring_problems
from .scalar import FLOATS
from .state_order import state_effects
from .text import list_module
from .types import Dim, StateType, TensorType, Type, dim_symbols, dim_text

NAME = re.compile(r"[A-Za-z_0-9][\w.]*")
CONTEXT = 2  # lines shown around a mistake
WIDTH = 120  # of those lines


@dataclass(frozen=True)
class Problem:
    """One mistake: at an op, or (op None) at the head of a function."""

    message: str
    function: Function
    op: Op | None = None


class VerifyError(IRError):
    """All mistakes of a module."""

    def __init__(self, module: Module, problems: list[Problem]) -> None:
        super().__init__(problems[0].message, problems[0].op)
        self.module = module
        self.problems = problems

    def render(self) -> str:
        """Every mistake with the statement it is in, a caret line under it, and the lines around."""
        listing = list_module(self.module)
        parts = []
        for problem in self.problems:
            head = f"@{problem.function.name}: {problem.message}"
            at = listing.line_of.get(problem.op or problem.function)
            if at is None:
                parts.append(head)
                continue
            lines = []
            for number in range(max(0, at - CONTEXT), min(len(listing.lines), at + CONTEXT + 1)):
                line = listing.lines[number]
                lines.append(f"{number + 1:5} | {line if number == at or len(line) <= WIDTH else line[:WIDTH] + ' ..'}")
                if number == at:
                    statement = listing.lines[number].split("(")[0]
                    start = len(statement) - len(statement.lstrip())
                    lines.append(f"      | {' ' * start}{'^' * max(1, len(statement) - start)}")
            parts.append("\n".join([head, *lines]))
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.render()


def verify_module(module: Module) -> None:
    """Raises VerifyError with all mistakes of all functions."""
    problems = [p for f in module.functions.values() for p in check_function(f, module)]
    if not problems:
        problems = [Problem(*found) for found in ring_problems(module)]
    if problems:
        raise VerifyError(module, problems)


def verify_function(function: Function, module: Module) -> None:
    """Raises VerifyError with all mistakes of one function."""
    problems = list(check_function(function, module))
    if problems:
        raise VerifyError(module, problems)


def check_function(function: Function, module: Module) -> Iterator[Problem]:
    """The mistakes of one function, in the order of its text; those of states and orders once every op is sound."""
    found = list(_check_body(function, function, module))
    if found:
        yield from found
        return
    yield from _order_problems(function)
    try:
        state_effects(function, module)
    except IRError as error:
        yield Problem(error.args[0], function, error.op)


def _check_body(body: Function, function: Function, module: Module) -> Iterator[Problem]:
    defined: set[Value] = set()
    names: set[str] = set()
    for param in body.params:
        yield from _define(param, defined, names, function, None, module)
    for op in body.ops:
        for value in dict.fromkeys(op.operands):
            if value not in defined:
                yield Problem(f"%{value.name} is not made before its use here", function, op)
        for region in op.regions:
            yield from _check_body(region, function, module)
        yield from (Problem(message, function, op) for message in _op_problems(op, module))
        for result in op.results:
            if result.producer is not op:
                yield Problem(f"%{result.name} does not name this op as its producer", function, op)
            yield from _define(result, defined, names, function, op, module)
    for value in body.results:
        if value not in defined:
            yield Problem(f"%{value.name} is returned but not made in @{body.name}", function)


def _define(value: Value, defined: set[Value], names: set[str], function: Function, op: Op | None,
            module: Module) -> Iterator[Problem]:
    if value.name in names:
        yield Problem(f"the name %{value.name} is used twice", function, op)
    if not NAME.fullmatch(value.name):
        yield Problem(f"{value.name!r} is no name: letters, digits, '_' and '.' only", function, op)
    defined.add(value)
    names.add(value.name)
    yield from (Problem(f"%{value.name}: {message}", function, op) for message in _type_problems(value.type, module))


def _type_problems(type_: Type, module: Module) -> Iterator[str]:
    if isinstance(type_, StateType):
        return
    dims: list[Dim] = [*type_.shape, *(type_.bounds or ())]
    undeclared = sorted(set().union(*(dim_symbols(d) for d in dims)) - set(module.symbols)) if dims else []
    if undeclared:
        yield f"symbol {undeclared[0]} is not declared"
    for d in type_.shape:
        if isinstance(d, int) and d < 0:
            yield f"{type_} has a negative dim"
    if type_.bounds is not None:
        low, high = type_.bounds
        if type_.elem in FLOATS or type_.codec is not None:
            yield f"{type_} has bounds, which belong to integers"
        elif isinstance(low, int) and isinstance(high, int) and low >= high:
            yield f"bounds [{low}, {high}) hold no value"
    if type_.sharding and len(type_.sharding) != type_.rank:
        yield f"sharding names {len(type_.sharding)} dims of {type_.rank}"


def _op_problems(op: Op, module: Module) -> Iterator[str]:
    """What is wrong with one op taken by itself."""
    try:
        rule = definition(op.kind)
    except IRError as error:
        yield error.args[0]
        return
    special = {"call": _call_problems, "constant": _constant_problems, "region": _region_problems}.get(op.kind)
    if special is not None:
        yield from special(op, module)
        return
    try:
        types = rule.infer(op.operands, op.attrs)
    except IRError as error:
        message = str(error.args[0])
        yield message if message.startswith(op.kind) else f"{op.kind}: {message}"
        return
    if len(types) != len(op.results):
        yield f"{op.kind} gives {len(types)} values, {len(op.results)} are named"
        return
    for have, want in zip(op.results, types, strict=True):
        if not same_type(have.type, want):
            yield f"%{have.name} is written as {have.type}, {op.kind} gives {want}"
    if op.kind == "repeat":
        yield from _region_problems(op, module)
    yield from _reduction_problems(op)
    yield from _index_problems(op)


def same_type(a: Type, b: Type) -> bool:
    """Equal types, dims compared as expressions."""
    if a == b or isinstance(a, StateType) or isinstance(b, StateType):
        return a == b
    plain = (a.elem, a.layout, a.sharding, a.rank, a.bounds is None) == (
        b.elem, b.layout, b.sharding, b.rank, b.bounds is None)
    pairs = [*zip(a.shape, b.shape, strict=False), *zip(a.bounds or (), b.bounds or (), strict=False)]
    return plain and all(same_dim(x, y) for x, y in pairs)


def fits(value: Type, slot: Type) -> bool:
    """Whether a value may be passed where `slot` is expected: equal, but its bounds may be narrower, and a section of
    pages may lie elsewhere in its page."""
    if isinstance(value, StateType) and isinstance(slot, StateType):
        return value.anywhere == slot.anywhere
    if not isinstance(value, TensorType) or not isinstance(slot, TensorType) or value.bounds == slot.bounds:
        return same_type(value, slot)
    if slot.bounds is not None:
        if value.bounds is None:
            return False
        inside = (_at_most(slot.bounds[0], value.bounds[0]), _at_most(value.bounds[1], slot.bounds[1]))
        if not all(inside):
            return False
    return same_type(value.with_(bounds=slot.bounds), slot)


def _at_most(a: Dim, b: Dim) -> bool:
    """Whether a <= b provably."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    return same_dim(a, b) or bool((sympy.sympify(b) - a).is_nonnegative)


def _call_problems(op: Op, module: Module) -> Iterator[str]:
    callee = module.functions.get(str(op.attrs.get("callee")))
    if callee is None:
        yield f"there is no function @{op.attrs.get('callee')}"
        return
    if len(op.operands) != len(callee.params):
        yield f"@{callee.name} takes {len(callee.params)} arguments, got {len(op.operands)}"
        return
    for value, param in zip(op.operands, callee.params, strict=True):
        if not fits(value.type, param.type):
            yield f"@{callee.name} takes %{param.name}: {param.type}, got %{value.name}: {value.type}"
    have, want = [r.type for r in op.results], [r.type for r in callee.results]
    if len(have) != len(want) or not all(map(same_type, have, want)):
        yield f"@{callee.name} gives ({_list(want)}), the call is written as ({_list(have)})"


def _constant_problems(op: Op, module: Module) -> Iterator[str]:
    table = module.constants.get(str(op.attrs.get("name")))
    if table is None:
        yield f"there is no constant @{op.attrs.get('name')}"
    elif len(op.results) != 1 or op.operands or not same_type(op.results[0].type, table.type):
        yield f"constant @{table.name} is {table.type}, the op is written as {_list([r.type for r in op.results])}"


def _region_problems(op: Op, module: Module) -> Iterator[str]:
    if len(op.regions) != 1:
        yield f"{op.kind} has one body, this has {len(op.regions)}"
        return
    body = op.regions[0]
    for what, outer, inner in (("operands", op.operands, body.params), ("results", op.results, body.results)):
        have, want = [v.type for v in outer], [v.type for v in inner]
        if len(have) != len(want) or not all(map(same_type, have, want)):
            yield f"{what} of {op.kind} are ({_list(have)}), those of its body ({_list(want)})"


def _list(types: list[Type]) -> str:
    return ", ".join(map(str, types))


def _reduction_problems(op: Op) -> Iterator[str]:
    if op.kind != "reduce" or op.operands[0].tensor.elem not in FLOATS:
        return
    extent = op.operands[0].tensor.shape[int_attr(op.attrs, "axis")]
    if dim_symbols(extent):
        yield (f"floats are reduced over {dim_text(extent)}, which depends on the step: a row's result would depend on "
               "the rows beside it")


def _order_problems(function: Function) -> Iterator[Problem]:
    """Orders are pinned for a whole module at once: a reduction without one beside others that have one was added (or
    made) by somebody who left its order to chance."""
    found = [op for op in _nested(function) if definition(op.kind).order(op) is not None]
    pinned = next((op for op in found if "order" in op.attrs), None)
    if pinned is None:
        return
    for op in found:
        if "order" not in op.attrs:
            message = f"{op.kind} has no reduction order, and {pinned.kind} (%{pinned.result.name}) has one"
            yield Problem(message, function, op)


def _nested(function: Function) -> Iterator[Op]:
    for op in function.ops:
        yield op
        for region in op.regions:
            yield from _nested(region)


def _index_problems(op: Op) -> Iterator[str]:
    """An index whose declared bounds lie outside of what it indexes would always give the fill."""
    if op.kind == "gather_rows" and len(op.operands) == 2:
        pairs = [(op.operands[0], op.operands[1], 0)]
    elif op.kind == "take":
        pairs = [(index, op.operands[0], axis) for axis, index in enumerate(op.operands[1:])]
    else:
        return
    for index, source, axis in pairs:
        bounds = index.tensor.bounds
        if bounds is None or not isinstance(source.type, TensorType):
            continue
        extent = source.type.shape[axis]
        if _at_most(bounds[1], 0) or _at_most(extent, bounds[0]):
            yield (f"index %{index.name} in [{dim_text(bounds[0])}, {dim_text(bounds[1])}) never lies in the "
                   f"{dim_text(extent)} rows of %{source.name}")
