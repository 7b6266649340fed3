"""What the target `cpu` is: limits, reduction orders, weight layouts, schedules."""
from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from dinfc.ir.graph import IRError
from dinfc.ir.protocols import Schedule, TargetLimits
from dinfc.ir.types import TensorType

ISAS: Final = ("avx2", "avx512")

# Classes of memory of one kernel instance. `near` is a thread's scratch: a share of L2 that leaves room for weights.
_CAPACITY: Final[Mapping[str, int]] = MappingProxyType({"near": 4 << 20, "accumulator": 1 << 20})


def limits_of(isa: str) -> TargetLimits:
    """Limits for an instruction set. They are equal but for its name, so that both give the same bits."""
    return TargetLimits(
        name="cpu", capacity=_CAPACITY, tile_rows=8, tile_cols=64, segment_tile=8, key_block=32, lanes=16, dot_group=32,
        isa=isa)


# Above this K a product keeps one accumulator a slice: an accumulator of 1024 products is at most 32 additions long.
DOT_SLICE: Final = 1024


def _contract(limits: TargetLimits, extent: int) -> str:
    group = f"fold({limits.dot_group}; chain fma)"
    return group if extent <= DOT_SLICE else f"fold({DOT_SLICE}; {group})"


def _reduce(limits: TargetLimits, extent: int) -> str:
    return "serial" if extent < 2 * limits.lanes else f"lanes({limits.lanes}; halves)"


def _attend(limits: TargetLimits, extent: int) -> str:
    from dinfc.codegen.schedules.attend import attend_order

    return attend_order(limits.key_block, limits.dot_group)


def _score(limits: TargetLimits, extent: int) -> str:
    from dinfc.codegen.schedules.score import score_order

    return score_order(limits.dot_group)


_ORDERS: Final[Mapping[str, Callable[[TargetLimits, int], str]]] = MappingProxyType(
    {"contract": _contract, "reduce": _reduce, "attend": _attend, "score": _score})


def order_of(limits: TargetLimits, kind: str, extent: int | None) -> str:
    """The pinned order. An extent that depends on the step (None) is only met in integers: one chain.

    Raises IRError for a kind that this target does not know.
    """
    if kind not in _ORDERS:
        raise IRError(f"target cpu has no reduction order for {kind!r}")
    return "serial" if extent is None else _ORDERS[kind](limits, extent)


def layout_of(op_kind: str, operand: int, type_: TensorType) -> str:
    """Weights of matrix products lie in blocks of 16 output columns, K inside: one vector load a K step. MXFP4 codes
    are packed two along the columns, so that a byte serves two lanes of the same K."""
    if op_kind not in ("contract", "grouped_contract") or operand != 1:
        return ""
    return "n16k4" if type_.elem.startswith("mxfp4") else "n16k"


# Anchor class -> (module, class) of its schedule.
_SCHEDULES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({
    "row": ("row", "RowSchedule"),
    "matmul": ("matmul", "MatmulSchedule"),
    "grouped_matmul": ("grouped_matmul", "GroupedMatmulSchedule"),
    "attend": ("attend", "AttendSchedule"),
    "score": ("score", "ScoreSchedule"),
    "select": ("select", "SelectSchedule"),
    "scan": ("segment", "SegmentSchedule"),
    "move": ("move", "MoveSchedule"),
})


def load_schedules() -> Mapping[str, Schedule]:
    """One schedule an anchor class. Raises ImportError where one is missing."""
    out: dict[str, Schedule] = {}
    for anchor, (module, name) in _SCHEDULES.items():
        out[anchor] = getattr(importlib.import_module(f"dinfc.codegen.schedules.{module}"), name)()
    return MappingProxyType(out)
