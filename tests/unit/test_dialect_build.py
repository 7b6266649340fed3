"""Device texts through TileLang and nvcc, without a device. Each test says by name what it needs."""
from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dinfc.codegen.emit import tilelang_lower as tools
from dinfc.codegen.emit.device_target import DeviceTarget
from dinfc.device_slice import device_target, dialect_text, slice_programs
from dinfc.ir.parse import parse_module
from dinfc.ir.tile.program import Program
from gpu.slice_case import Shapes

SMALL = Shapes(hidden=256, rank=128, heads=64, channels=128, listed=70)
needs_tilelang = pytest.mark.skipif(tools.tilelang_missing(), reason="needs TileLang")
needs_nvcc = pytest.mark.skipif(tools.nvcc() is None, reason="needs nvcc")
needs_disassembler = pytest.mark.skipif(tools.disassembler() is None, reason="needs nvdisasm")
CUDA = [(device, anchor) for device in ("sm90", "sm100") for anchor in ("row", "matmul", "attend")]


@cache
def lowered(device: str, anchor: str) -> tuple[DeviceTarget, Program, tools.Lowered]:
    target = device_target(device)
    program = next(p for p in slice_programs(parse_module(SMALL.text()), target).values() if p.anchor == anchor)
    return target, program, tools.lower(dialect_text(program, target), program.name, target.lowering)


@cache
def assembled(device: str, anchor: str, folder: Path) -> tools.Binary:
    target, program, low = lowered(device, anchor)
    source = folder / f"{program.name}.cu"
    source.write_text(low.source)
    return tools.compile_cubin(source, target.arch, source.with_suffix(".cubin"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cubins")


@needs_tilelang
@needs_nvcc
@pytest.mark.parametrize(("device", "anchor"), CUDA)
def test_cubins_hold_their_registers_and_fit_shared_memory(device: str, anchor: str, folder: Path) -> None:
    target, _, low = lowered(device, anchor)
    binary = assembled(device, anchor, folder)
    assert binary.spilled == 0 and 0 < binary.registers <= 255
    assert low.shared <= target.limits.capacity["shared"] == 232448


@needs_tilelang
@needs_nvcc
@needs_disassembler
@pytest.mark.parametrize(("device", "anchor"), [c for c in CUDA if c[1] != "row"])
def test_machine_code_holds_the_tensor_instruction_of_the_device(device: str, anchor: str, folder: Path) -> None:
    target, _, _ = lowered(device, anchor)
    counts = assembled(device, anchor, folder).instructions
    assert counts is not None
    assert all(tools.has_instruction(counts, wanted) for wanted in target.instructions[anchor]), counts
    assert not tools.has_instruction(counts, "HMMA"), "an accumulator fell back to the old matrix instructions"
    if device == "sm100":
        assert tools.has_instruction(counts, "LDTM")
        assert tools.has_instruction(counts, "UTCCP") == (anchor == "matmul")


@needs_tilelang
@pytest.mark.parametrize(("anchor", "parts"), [
    ("row", ("__vector__", "__simt_vf__", "asc_syncthreads()", "dinfc_e4m3_encode")),
    ("matmul", ("__mix__(1, 2)", "ascend_gemm_l1<64, 128, 64, 128, true, bfloat16_t>", "asc_copy_l0c2ub",
                "asc_get_sub_block_id() == 0")),
    ("attend", ("__mix__(1, 2)", "ascend_gemm_l1<32, 128, 16, 128, true", "ascend_nd2nz_scatter", "expf(")),
])
def test_ascend_source_uses_cube_and_vector_units(anchor: str, parts: tuple[str, ...]) -> None:
    source = lowered("ascend950", anchor)[2].source
    assert not [p for p in parts if p not in source], source


@needs_tilelang
def test_products_of_sm100_wait_for_their_own_completion() -> None:
    """One barrier, a parity that the kernel counts: T.gemm would take the loop's parity for every product in it."""
    source = lowered("sm100", "attend")[2].source
    assert source.count(".wait(products_phase[0])") == source.count("tcgen05_mma_arrive(") >= 2
