"""The schedules of devices: those of every target, then what the device needs done to the program.

    base schedule (row.py, matmul.py, attend.py with the device's limits)
    spread             independent loops become phases of parallel nests        device_spread.py
    realise_dots       operands and accumulators as the matrix unit takes them  device_dots.py
    split_accumulators columns in parts, where the unit works on parts          device_split.py
    mirror_accumulators   accumulators read out of order get a shared copy      device_dots.py
    predicate_products conditions on vector code, where the unit cannot branch  device_predicate.py
    capacity           against the manifest                                     device_capacity.py

Everything is tile IR to tile IR; an emitter prints the result. Orders are the device's own (`pin_reductions` asks its
target): the base schedule is asked for its usual order, whose products are then replaced by the unit's.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from dinfc.ir.functions import FUNCTION_SET
from dinfc.ir.graph import Function, IRError, Module, Op
from dinfc.ir.protocols import Schedule, TargetLimits
from dinfc.ir.tile.program import Dot, Program, Store, statements

from .attend import AttendSchedule
from .device_capacity import check_capacity
from .device_dots import TensorUnit, mirror_accumulators, realise_dots
from .device_predicate import predicate_products
from .device_split import split_accumulators
from .device_spread import spread
from .device_walk import DeviceError
from .matmul import MatmulSchedule
from .row import RowSchedule

# The protocol's members are written as plain attributes, those of a frozen class are read-only: hence the cast.
BASES: Mapping[str, Schedule] = cast(
    Mapping[str, Schedule], {"row": RowSchedule(), "matmul": MatmulSchedule(), "attend": AttendSchedule()})


@dataclass(frozen=True)
class DeviceSchedule:
    """One anchor class on one device. `order`: text of the order of a product of this class ("" for rows, whose order
    is the op's own); `functions`: the device's function set; `capacity`: limits by classes of device_capacity.py."""

    anchor: str
    unit: TensorUnit
    threads: int
    stages: int = 1
    order: str = ""
    functions: str = FUNCTION_SET
    capacity: Mapping[str, int] = field(default_factory=dict)

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program as the device runs it.

        Raises IRError where the op asks for another order, where the device has no form for it, or where it does not
        fit into the device's memories.
        """
        plain = self.without_order(region) if self.order else region
        program = BASES[self.anchor].build(plain, name, limits, module)
        try:
            program = self.legalise(program)
            check_capacity(program, self.capacity, self.threads, self.stages)
        except DeviceError as error:
            raise IRError(str(error), region) from error
        return program

    def legalise(self, program: Program) -> Program:
        """From the schedule's program to one that the device's emitter prints. Raises DeviceError."""
        summed = _summed(program)
        program = realise_dots(spread(program), self.unit)
        if not self.unit.registers and not self.unit.whole and self.unit.part_columns:
            program = split_accumulators(program, summed, self.unit.part_columns)
        if not self.unit.whole:
            program = mirror_accumulators(program)
        if not self.unit.branches:
            program = predicate_products(program)
        return replace(program, orders=(self.order,) if self.order else program.orders, functions=self.functions)

    def without_order(self, region: Op) -> Op:
        """The region with its anchor's order removed, once it is known to be this device's."""
        body = region.regions[0]
        ops = []
        for op in body.ops:
            found = op.attrs.get("order")
            if found and found != self.order:
                raise IRError(f"{op.kind} realises {self.order!r} here, the op asks for {found!r}", op)
            attrs = {k: v for k, v in op.attrs.items() if k != "order"}
            ops.append(Op(op.kind, op.operands, attrs, op.results, op.regions, op.loc))
        return Op(region.kind, region.operands, region.attrs, region.results,
                  [Function(body.name, body.params, ops, body.results)], region.loc)


def _summed(program: Program) -> frozenset[str]:
    """Accumulators of products that plain stores change as well."""
    products = {s.acc for s in statements(program.body) if isinstance(s, Dot)}
    return frozenset(s.buffer for s in statements(program.body) if isinstance(s, Store) and s.buffer in products)
