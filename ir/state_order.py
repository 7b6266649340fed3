"""Order of state accesses: a state value names one version of a buffer, and a write ends the life of that version.

The interpreter and every target change states in place, so nobody may use a version after the write that replaced it.
A call or region that hands a state through without writing it gives the same version another name.

Within a step a ring is written after it was read for the last time (the rows of a step are longer than a ring may be:
a write may drop positions that a row still sees), and pages are written before they are first read (a row sees what
the rows before it in the same step have stored). Design section 4a, attention keys.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import Function, IRError, Module, Op, Value
from .types import StateType


@dataclass(frozen=True)
class Effects:
    """What a function does to its states: numbers of the params that it writes, for each result that is a state the
    number of the param whose buffer it is (None for tensors), and numbers of the params that it reads."""

    written: frozenset[int]
    sources: tuple[int | None, ...]
    read: frozenset[int] = frozenset()


def state_effects(function: Function, module: Module, known: dict[str, Effects] | None = None,
                  open_: frozenset[str] = frozenset()) -> Effects:
    """Checks the states of a function and says what it does to them.

    Raises IRError (naming the op) for a version that is used or returned after it was replaced, a state passed twice to
    an op that writes it, a written state whose last version is not returned, a ring that is read after it was written,
    pages that are written after they were read, or a function that calls itself. `known` keeps the answers for
    functions that are called.
    """
    known = {} if known is None else known
    states = [n for n, p in enumerate(function.params) if isinstance(p.type, StateType)]
    buffer = {function.params[n]: n for n in states}  # state value -> param number
    version = {function.params[n]: 0 for n in states}
    current = dict.fromkeys(states, 0)
    last_write: dict[int, Op] = {}
    read: set[int] = set()
    for op in function.ops:
        used = [v for v in op.operands if isinstance(v.type, StateType)]
        for value in used:
            if value not in buffer:
                raise IRError(f"%{value.name} is not a version of any state of @{function.name}", op)
            if version[value] != current[buffer[value]]:
                raise IRError(f"state %{value.name} is used after it was written; use the version that the write gives",
                              op)
        effects = op_effects(op, module, known, open_ | {function.name})
        buffers = [buffer.get(v) for v in op.operands]
        reads = {n for n in (buffers[operand] for operand in effects.read) if n is not None}
        for buffer_read in sorted(reads):
            if _kind(function, buffer_read) == "ring" and buffer_read in last_write:
                raise IRError(f"ring %{function.params[buffer_read].name} is read after it was written in this step: "
                              "positions that a row still sees may be gone", op)
        for operand in effects.written:
            number = buffers[operand]
            if number is None or buffers.count(number) > 1:
                raise IRError(f"state %{op.operands[operand].name} is passed twice to an op that writes it", op)
            if _kind(function, number) == "pages" and number in read:
                raise IRError(f"pages %{function.params[number].name} are written after they were read in this step: "
                              "the reader missed these rows", op)
            current[number] += 1
            last_write[number] = op
        read |= reads
        for result, source in zip(op.results, effects.sources, strict=False):
            if isinstance(result.type, StateType):
                number = None if source is None else buffers[source]
                if number is None:
                    raise IRError(f"%{result.name} is not a version of any state that the op is given", op)
                buffer[result], version[result] = number, current[number]
    returned = [buffer.get(r) for r in function.results]
    for value in function.results:
        if value in buffer and version[value] != current[buffer[value]]:
            raise IRError(f"@{function.name} returns state %{value.name}, which was written: return its last version",
                          last_write[buffer[value]])
    for number, op in last_write.items():
        if number not in returned:
            raise IRError(f"the last version of state %{function.params[number].name} is not returned from "
                          f"@{function.name}", op)
    return Effects(frozenset(last_write), tuple(returned), frozenset(read))


def _kind(function: Function, number: int) -> str:
    type_ = function.params[number].type
    return type_.kind if isinstance(type_, StateType) else ""


def op_effects(op: Op, module: Module, known: dict[str, Effects], open_: frozenset[str]) -> Effects:
    """What one op does to its operands."""
    if op.kind == "state_write":
        return Effects(frozenset({0}), (0,))
    if op.kind == "call":
        name = str(op.attrs.get("callee"))
        if name in open_:
            raise IRError(f"@{name} calls itself", op)
        if name not in module.functions:
            raise IRError(f"there is no function @{name}", op)
        if name not in known:
            known[name] = state_effects(module.functions[name], module, known, open_)
        return known[name]
    if op.regions:
        return state_effects(op.regions[0], module, known, open_)
    states = frozenset(n for n, v in enumerate(op.operands) if isinstance(v.type, StateType))
    return Effects(frozenset(), (None,) * len(op.results), states)


def replaced_by(op: Op, module: Module) -> list[Value]:
    """State operands of which the op makes a new version. Raises IRError as `state_effects` does."""
    return [op.operands[n] for n in sorted(op_effects(op, module, {}, frozenset()).written)]


def check_states(module: Module) -> Mapping[str, Effects]:
    """What every function does to its states. Raises IRError as `state_effects` does."""
    known: dict[str, Effects] = {}
    for name, function in module.functions.items():
        if name not in known:
            known[name] = state_effects(function, module, known)
    return known
