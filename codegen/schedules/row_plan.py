"""Which arrays of a row program get a place near the core, and which are written into their readers.

An array is placed where computing it again for every reader would cost more than storing and loading it, and where its
expression grows large. Costs steer this choice alone: a placed value has its own dtype, so no bit depends on it.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dinfc.ir.graph import IRError

from .row_array import Array, Carried, Component, Fold
from .row_build import Iterate, Step, Steps

STORE_COST = 4.0  # simple operations that storing and loading an element is worth
LARGE = 80.0  # an expression of that many operations is placed even for a single reader


@dataclass
class Placement:
    """`placed`: arrays with a near buffer or a scalar. `demand`: how often each element is needed."""

    placed: set[Array] = field(default_factory=set)
    demand: dict[Array, float] = field(default_factory=dict)
    work: dict[Array, float] = field(default_factory=dict)

    def need(self, array: Array, times: float) -> None:
        self.demand[array] = self.demand.get(array, 0.0) + times


def plan_places(block: Steps, sinks: tuple[Array, ...], placement: Placement | None = None) -> Placement:
    """Decides for every array of a block and of the blocks inside it. `sinks`: arrays stored by the program anyway."""
    placement = placement or Placement()
    for step in block.steps:
        if isinstance(step, Array):
            placement.work[step] = _work(step, placement)
    stored = set(sinks)
    for step in reversed(block.steps):
        for array, times in _reads(step, placement):
            placement.need(array, times)
        if isinstance(step, Iterate):
            placement.placed |= set(step.carried)
            # A body's results are complete before the carried values change: they need places of their own.
            placement.placed |= {r for r in step.results if not isinstance(r, Carried)}
            for result in step.results:
                placement.need(result, 1.0)
            plan_places(step.body, step.results, placement)
        elif isinstance(step, Array):
            if _deserves(step, placement, step in stored):
                placement.placed.add(step)
            if step in stored or step in placement.placed:
                uses = 1.0
            else:
                uses = placement.demand.get(step, 0.0)
            for array, times in step.reads():
                placement.need(array, times * uses)
    return placement


def _reads(step: Step, placement: Placement) -> Iterator[tuple[Array, float]]:
    """What storing steps read; arrays themselves are counted once it is known whether they have a place."""
    if isinstance(step, Iterate):
        yield from ((a, 1.0) for a in step.initial)
    elif not isinstance(step, Array):
        yield from ((a, 1.0) for a in step.parts)
        yield step.slots, 2.0


def _work(array: Array, placement: Placement) -> float:
    """Operations for one element if everything cheap is written inline."""
    if isinstance(array, Component | Carried) or (isinstance(array, Fold) and not array.is_inline):
        return 1.0
    return array.cost() + sum(times * min(placement.work.get(a, 1.0), LARGE) for a, times in array.reads())


def _deserves(array: Array, placement: Placement, is_sink: bool) -> bool:
    demand = placement.demand.get(array, 0.0)
    if isinstance(array, Component):
        return demand > 0
    if demand == 0 or array.alias:
        return False
    if isinstance(array, Fold) and not array.is_inline:
        return True
    work = placement.work[array]
    try:
        scalar = array.size() == 1
    except IRError:  # rows of a symbolic extent are only ever folded
        return False
    if is_sink or work > LARGE:
        return work > 1.0
    return (demand - 1.0) * work > (1.0 if scalar else STORE_COST)
