"""What the target `sm90` is: limits, tile sizes, orders, instructions."""
from __future__ import annotations

from typing import Final

from dinfc.codegen.emit.device_target import DeviceTarget
from dinfc.codegen.schedules.device_dots import TensorUnit
from dinfc.codegen.schedules.device_schedule import DeviceSchedule
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.tile.program import Program

SHARED: Final = 232448  # bytes a thread block can use
REGISTERS: Final = 208  # accumulator words a thread; the rest of 255 is for addresses and operands
THREADS: Final = 256  # two warpgroups
LANES: Final = 256  # of a row reduction: one a thread
KEYS: Final = 64  # an attend step: Q and one block of decoded keys of 512 channels fill shared memory
STAGES: Final = 2

# One accumulator over the whole of K, in the unit: m64nNk16 instructions in increasing K, fp32 sums.
UNIT: Final = TensorUnit("chain(wgmma bf16 k16)")
ATTEND: Final = f"chain({KEYS} keys; logits {UNIT.order}; weights bf16; output {UNIT.order} onto the scaled output)"


def limits() -> TargetLimits:
    return TargetLimits(
        name="sm90", capacity={"shared": SHARED, "near": SHARED, "accumulator": THREADS * REGISTERS * 4},
        tile_rows=128, tile_cols=128, segment_tile=128, key_block=KEYS, lanes=LANES, isa="sm_90a",
        extra={"stage_operands": 1, "tile_k": 128, "head_block": 64})


def _reduce(extent: int) -> str:
    return "serial" if extent < 2 * LANES else f"lanes({LANES}; halves)"


def _write(program: Program, threads: int, stages: int) -> str:
    from dinfc.codegen.emit.tilelang_cuda import CudaWriter

    return CudaWriter(program, threads, stages).emit()


def make_slice_target() -> DeviceTarget:
    capacity = {"shared": SHARED, "registers": REGISTERS}
    return DeviceTarget(
        name="sm90", limits=limits(), arch="sm_90a", lowering={"kind": "cuda", "arch": "sm_90a"}, suffix=".cu",
        writer=_write,
        kernels={
            "row": DeviceSchedule("row", UNIT, THREADS, capacity=capacity),
            "matmul": DeviceSchedule("matmul", UNIT, THREADS, STAGES, UNIT.order, capacity=capacity),
            "attend": DeviceSchedule("attend", UNIT, THREADS, 1, ATTEND, capacity=capacity)},
        orders={"reduce": _reduce, "contract": lambda extent: UNIT.order, "attend": lambda extent: ATTEND},
        instructions={"matmul": ("HGMMA",), "attend": ("HGMMA",)})
