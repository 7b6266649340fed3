"""The slice's kernels on an H200 against the reference interpreter. `make test-gpu`, or as a script without pytest:

    python tests/gpu/test_sm90_slice.py

Needs TileLang, nvcc and a device of compute capability 9.0. Every kernel is lowered, compiled to a shared library with
its launcher, and run; row independence and repeatability are compared bit for bit.
"""
from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
from dinfc.codegen.emit import tilelang_lower as tools
from dinfc.device_slice import device_target, dialect_text, slice_programs
from dinfc.ir.parse import parse_module
from dinfc.ir.tile.program import Program
from gpu.slice_case import Shapes, SliceCase

try:
    import pytest

    missing = not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0)
    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing, reason="needs a device of compute capability 9.0")]
except ImportError:  # a GPU host may have torch only
    pass

FULL = Shapes()
ANCHORS = ("row", "matmul", "attend")
ROWS = 130  # more than a tile of 128 rows, and a tile of two rows


@cache
def kernel(anchor: str) -> tuple[Program, Callable[[Mapping[str, Tensor], Mapping[str, int]], None]]:
    """The program and a function that launches it on device buffers, by the names of its parameters."""
    target = device_target("sm90")
    programs = slice_programs(parse_module(FULL.text()), target)
    program = next(p for p in programs.values() if p.anchor == anchor)
    lowered = tools.lower(dialect_text(program, target), program.name, target.lowering, launcher=True)
    folder = Path(tempfile.mkdtemp(prefix="dinfc-gpu-"))
    source, library = folder / f"{program.name}.cu", folder / f"{program.name}.so"
    source.write_text(lowered.host)
    compiler = tools.nvcc()
    assert compiler is not None, "needs nvcc"
    command = [compiler, "--shared", "-Xcompiler", "-fPIC", *tools.compile_flags(target.arch), str(source), "-o",
               str(library)]
    subprocess.run(command, check=True)
    handle = ctypes.CDLL(str(library))
    handle.get_last_error.restype = ctypes.c_char_p
    assert handle.init() == 0, handle.get_last_error()
    call = re.search(r"int call\((.*?)\)\s*\{", lowered.host, re.S)
    assert call is not None
    names = [re.split(r"[\s*]+", part.split("=")[0].strip())[-1] for part in call[1].split(",")]

    def launch(buffers: Mapping[str, Tensor], scalars: Mapping[str, int]) -> None:
        sizes = {f"n_{name}": value for name, value in scalars.items()} | dict(scalars)
        sizes |= {f"n_{name}": len(value) for name, value in buffers.items()}
        arguments: list[ctypes.c_void_p | ctypes.c_int] = []
        for name in names[:-1]:
            found = buffers.get(name)
            arguments.append(ctypes.c_int(sizes[name]) if found is None else ctypes.c_void_p(found.data_ptr()))
        torch.cuda.synchronize()
        code = handle.call(*arguments, ctypes.c_void_p(0))
        assert code == 0, handle.get_last_error()
        torch.cuda.synchronize()

    return program, launch


def run(anchor: str, case: SliceCase) -> dict[str, Tensor]:
    """Outputs of one kernel on the case's operands, on the CPU."""
    program, launch = kernel(anchor)
    stored = case.buffers()
    buffers = {p.name: stored[p.name].cuda().contiguous() for p in program.params}
    for p in program.params:
        if p.mode == "out" and buffers[p.name].dtype == torch.uint8:
            buffers[p.name].fill_(0xFF)
    launch(buffers, case.scalars())
    return {p.name: buffers[p.name].cpu() for p in program.params if p.mode == "out"}


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor], rows: list[int] | None = None) -> bool:
    return all(torch.equal(bits(one[n]), bits(other[n] if rows is None else other[n][rows])) for n in one)


def test_kernels_are_near_the_reference_interpreter() -> None:
    case = SliceCase(FULL, ROWS)
    for anchor in ANCHORS:
        getattr(case, f"check_{anchor}")(run(anchor, case))


def test_every_scale_of_the_product_is_used_where_it_belongs() -> None:
    case = SliceCase(FULL, ROWS, exact=True)
    case.check_matmul(run("matmul", case))


def test_a_row_does_not_depend_on_its_batch() -> None:
    case = SliceCase(FULL, ROWS)
    for anchor in ANCHORS:
        whole = run(anchor, case)
        for rows in ([5], [0, 129], list(range(63, -1, -1))):
            assert equal(run(anchor, case.pick(rows)), whole, rows), (anchor, rows[:2])


def test_repeated_runs_give_the_same_bits() -> None:
    case = SliceCase(FULL, ROWS)
    for anchor in ANCHORS:
        first = run(anchor, case)
        assert all(equal(run(anchor, case), first) for _ in range(20)), anchor


if __name__ == "__main__":
    failed = 0
    for name, function in list(globals().items()):
        if not name.startswith("test_"):
            continue
        begin = time.perf_counter()
        try:
            function()
            print(f"{name}: passed in {time.perf_counter() - begin:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED: {type(error).__name__}: {str(error)[:500]}", flush=True)
    print(f"{4 - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
