"""A device as the slice sees it: what passes ask of a target, plus how its programs are printed and built."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from dinfc.codegen.schedules.device_schedule import DeviceSchedule
from dinfc.ir.graph import IRError
from dinfc.ir.protocols import Schedule, TargetLimits
from dinfc.ir.tile.program import Program
from dinfc.ir.types import TensorType


@dataclass(frozen=True)
class DeviceTarget:
    """One device.

    `orders`: kind of reduction -> its order text as a function of the reduced extent; `writer`: program, threads,
    stages -> dialect text; `arch`: what its compiler calls it; `lowering`: what TileLang calls it; `suffix`: of its
    source files; `instructions`: anchor class -> mnemonics that its machine code must hold.
    """

    name: str
    limits: TargetLimits
    kernels: Mapping[str, DeviceSchedule]
    orders: Mapping[str, Callable[[int], str]]
    writer: Callable[[Program, int, int], str]
    arch: str
    lowering: str | Mapping[str, str]
    suffix: str
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def schedules(self) -> Mapping[str, Schedule]:
        return cast(Mapping[str, Schedule], self.kernels)

    def reduction_order(self, kind: str, extent: int | None) -> str:
        """The order that this device pins. Raises IRError for a kind that it does not know."""
        if kind not in self.orders:
            raise IRError(f"target {self.name} has no reduction order for {kind!r}")
        return "serial" if extent is None else self.orders[kind](extent)

    def weight_layout(self, op_kind: str, operand: int, type: TensorType) -> str:
        """Row-major: staged products read rows along K."""
        return ""

    def emit(self, program: Program) -> str:
        """The program in the device's dialect. Raises DeviceError for what it cannot print."""
        kernel = self.kernels[program.anchor]
        return self.writer(program, kernel.threads, kernel.stages)
