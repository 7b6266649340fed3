"""CPU: C++17 and OpenMP, one shared library a package (the embedded default)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dinfc.diagnostics import DinfcError
from dinfc.ir.protocols import Schedule, TargetLimits
from dinfc.ir.types import TensorType

from .manifest import ISAS, layout_of, limits_of, load_schedules, order_of


@dataclass(frozen=True)
class CpuTarget:
    """The target `cpu` for one instruction set (`--cpu-isa`); both give the same bits."""

    isa: str = "avx2"
    name: str = field(default="cpu", init=False)

    def __post_init__(self) -> None:
        """Raises DinfcError E-TARGET-002 for an unknown instruction set."""
        if self.isa not in ISAS:
            raise DinfcError("E-TARGET-002", value=self.isa)

    @cached_property
    def limits(self) -> TargetLimits:
        return limits_of(self.isa)

    @cached_property
    def schedules(self) -> Mapping[str, Schedule]:
        """Schedules by anchor class; their modules are imported when the first kernel is scheduled."""
        return load_schedules()

    def reduction_order(self, kind: str, extent: int | None) -> str:
        """The order that this target pins; a function of the kind and the reduced extent alone."""
        return order_of(self.limits, kind, extent)

    def weight_layout(self, op_kind: str, operand: int, type: TensorType) -> str:
        return layout_of(op_kind, operand, type)


def make_target(isa: str = "") -> CpuTarget:
    """The target for an instruction set ("" = the one that golden texts fix, avx2)."""
    return CpuTarget(isa or "avx2")
