"""What the target `ascend950` is: limits, tile sizes, orders, units. Nothing of it has been run on a device."""
from __future__ import annotations

from typing import Final

from dinfc.codegen.emit.device_target import DeviceTarget
from dinfc.codegen.schedules.device_dots import TensorUnit
from dinfc.codegen.schedules.device_schedule import DeviceSchedule
from dinfc.ir.protocols import TargetLimits
from dinfc.ir.tile.program import Program

SHARED: Final = 221184  # bytes of a vector unit's buffer
CORES: Final = 32  # the persistent grid
THREADS: Final = 256  # of a vector block
LANES: Final = 256  # of a row reduction: one a thread
KEYS: Final = 16  # keys, heads: what leaves room for both forms of the keys (rows, and channels for the second product)
HEADS: Final = 32
PART: Final = 128
FUNCTIONS: Final = "ascend950-native"  # codecs are those of dinfc-f32, transcendentals the device's own

# One accumulator over the whole of K, in the cube.
UNIT: Final = TensorUnit("chain(cube bf16 k16)", nt_only=True, registers=False, part_columns=PART, whole=True,
                         branches=False)
ATTEND: Final = (
    f"chain({KEYS} keys; logits {UNIT.order}; weights bf16; output {UNIT.order} from 0, added to the scaled output)")


def limits() -> TargetLimits:
    return TargetLimits(
        name="ascend950", capacity={"shared": SHARED, "near": SHARED, "accumulator": SHARED},
        tile_rows=64, tile_cols=64, segment_tile=64, key_block=KEYS, lanes=LANES, isa="dav-3510",
        extra={"stage_operands": 1, "tile_k": 128, "head_block": HEADS})


def _reduce(extent: int) -> str:
    return "serial" if extent < 2 * LANES else f"lanes({LANES}; halves)"


def _write(program: Program, threads: int, stages: int) -> str:
    from dinfc.codegen.emit.ascend import AscendWriter

    return AscendWriter(program, threads, stages, CORES).emit()


def make_slice_target() -> DeviceTarget:
    capacity = {"shared": SHARED}
    return DeviceTarget(
        name="ascend950", limits=limits(), arch="dav-3510", lowering="ascend", suffix=".asc",
        writer=_write,
        kernels={
            "row": DeviceSchedule("row", UNIT, THREADS, functions=FUNCTIONS, capacity=capacity),
            "matmul": DeviceSchedule("matmul", UNIT, THREADS, 1, UNIT.order, FUNCTIONS, capacity),
            "attend": DeviceSchedule("attend", UNIT, THREADS, 1, ATTEND, FUNCTIONS, capacity)},
        orders={"reduce": _reduce, "contract": lambda extent: UNIT.order, "attend": lambda extent: ATTEND})
