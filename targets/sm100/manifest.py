"""What the target `sm100` is: limits, tile sizes, orders, instructions. Nothing of it has been run on a device."""
from __future__ import annotations

from typing import Final

from dinfc.codegen.emit.device_target import DeviceTarget
from dinfc.codegen.schedules.device_dots import TensorUnit
from dinfc.codegen.schedules.device_schedule import DeviceSchedule
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.tile.program import Program

SHARED: Final = 232448  # bytes a thread block can use
REGISTERS: Final = 208  # accumulator words a thread; the rest of 255 is for addresses and operands
TENSOR: Final = 512  # columns of tensor memory
THREADS: Final = 256
PRODUCT_THREADS: Final = 128  # a row of a product's tile a thread, as tensor memory is read
LANES: Final = 256  # of a row reduction: one a thread
KEYS: Final = 64
PART: Final = 128  # columns of a block of keys' output that are in tensor memory at once

# One accumulator over the whole of K, in the unit. Codes and scales of 32 go in as they are; bf16 operands by 16.
UNIT: Final = TensorUnit("chain(tcgen05 mxf8f6f4.block_scale k32, bf16 k16)", scaled=True, registers=False,
                         part_columns=PART)
CHAIN: Final = "chain(tcgen05 bf16 k16)"
ATTEND: Final = f"chain({KEYS} keys; logits {CHAIN}; weights bf16; output {CHAIN} from 0, added to the scaled output)"


def limits() -> TargetLimits:
    return TargetLimits(
        name="sm100", capacity={"shared": SHARED, "near": SHARED, "accumulator": THREADS * REGISTERS * 4},
        tile_rows=128, tile_cols=128, segment_tile=128, key_block=KEYS, lanes=LANES, isa="sm_100a",
        extra={"stage_operands": 1, "tile_k": 128, "head_block": 64})


def _reduce(extent: int) -> str:
    return "serial" if extent < 2 * LANES else f"lanes({LANES}; halves)"


def _write(program: Program, threads: int, stages: int) -> str:
    from dinfc.codegen.emit.tilelang_sm100 import Sm100Writer

    return Sm100Writer(program, threads, stages).emit()


def make_slice_target() -> DeviceTarget:
    capacity = {"shared": SHARED, "registers": REGISTERS, "tensor": TENSOR}
    return DeviceTarget(
        name="sm100", limits=limits(), arch="sm_100a", lowering={"kind": "cuda", "arch": "sm_100a"}, suffix=".cu",
        writer=_write,
        kernels={
            "row": DeviceSchedule("row", UNIT, THREADS, capacity=capacity),
            "matmul": DeviceSchedule("matmul", UNIT, PRODUCT_THREADS, 1, UNIT.order, capacity=capacity),
            "attend": DeviceSchedule("attend", UNIT, THREADS, 1, ATTEND, capacity=capacity)},
        orders={"reduce": _reduce, "contract": lambda extent: UNIT.order, "attend": lambda extent: ATTEND},
        instructions={"matmul": ("UTCQMMA",), "attend": ("UTCHMMA",)})
