"""What passes may ask of a target without importing one: limits, orders, layouts, schedules (design section 2)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .graph import Module, Op
from .tile.program import Program
from .types import TensorType


@dataclass(frozen=True)
class TargetLimits:
    """Numbers of a target manifest that schedules use.

    `capacity`: bytes by memory class (one instance); `tile_rows`: rows of a matmul tile; `tile_cols`: its columns;
    `segment_tile`: rows a segment (expert) is padded to; `key_block`: keys an attend step folds; `lanes`: lanes of a
    row reduction; `dot_group`: K elements a dot chain takes before it is folded; `isa`: instruction set name.
    """

    name: str
    capacity: Mapping[str, int]
    tile_rows: int = 8
    tile_cols: int = 64
    segment_tile: int = 8
    key_block: int = 32
    lanes: int = 16
    dot_group: int = 32
    isa: str = ""
    extra: Mapping[str, int] = field(default_factory=dict)


class Schedule(Protocol):
    """Turns one `region` op into one tile program. `anchor` is the class it serves."""

    anchor: str

    def build(self, region: Op, name: str, limits: TargetLimits, module: Module) -> Program:
        """The program; its params are codegen.binding.region_buffers(region). Raises IRError if it cannot."""
        ...


class Target(Protocol):
    """One folder of `targets/`."""

    name: str
    limits: TargetLimits
    schedules: Mapping[str, Schedule]

    def reduction_order(self, kind: str, extent: int | None) -> str:
        """Text of the order that this target pins for a reduction: kind contract|reduce|attend|score."""
        ...

    def weight_layout(self, op_kind: str, operand: int, type: TensorType) -> str:
        """Storage layout of a weight operand ('' = row-major)."""
        ...
