"""F11, F14: RMSNorm changed its block size at 256 rows, and small buckets took another reduction than larger steps."""
from __future__ import annotations

import numpy
import pytest
import torch

from dinfc.ir.tile.program import Program, Reduce, statements
from support.compiled_model import scheduled_model
from support.cpu_run import run_program

BATCHES = (1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
MARKED = 5


def norm_kernel() -> Program:
    """The kernel that opens the model: hyper-connection mix, RMSNorm, quantiser."""
    programs = scheduled_model("tiny-test").context.programs
    return next(p for name, p in programs.items() if name.startswith("window_open_raw_hc_apply_hc_mix_rms_norm"))


def run(program: Program, rows: int, at: int) -> list[bytes]:
    """Bytes of the marked row's results when it is row `at` of `rows` random ones."""
    random = torch.Generator().manual_seed(rows)
    marked = torch.Generator().manual_seed(MARKED)
    arrays: dict[str, torch.Tensor | numpy.ndarray] = {}
    for b in program.params:
        shape = [rows if d.op == "var" else int(d.attr or 0) for d in b.shape]
        is_row = b.shape and b.shape[0].op == "var"
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "u8": torch.uint8, "i32": torch.int32}[b.dtype]
        if b.mode == "out":
            arrays[b.name] = torch.zeros(shape, dtype=dtype)
            continue
        value = torch.randn(shape, generator=random if is_row else marked)
        if is_row:
            value[at] = torch.randn(shape[1:], generator=marked)
        arrays[b.name] = value.to(dtype)
    run_program(program, arrays, {"T": rows}, threads=2)
    out = []
    for b in program.params:
        if b.mode == "out":
            result = arrays[b.name]
            assert isinstance(result, torch.Tensor)
            out.append(result[at].reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return out


@pytest.mark.parametrize("rows", BATCHES)
def test_a_row_alone_and_inside_a_batch(rows: int) -> None:
    program = norm_kernel()
    alone = run(program, 1, 0)
    for at in {0, rows // 2, rows - 1}:
        assert run(program, rows, at) == alone


def test_no_reduction_extent_or_lane_count_depends_on_the_step() -> None:
    """The kind of fault cannot be written: whatever is summed has constant lanes, and floats a constant extent."""
    for program in scheduled_model("tiny-test").context.programs.values():
        for s in statements(program.body):
            if isinstance(s, Reduce) and s.value.dtype == "f32":
                assert s.extent.op == "const", program.name
