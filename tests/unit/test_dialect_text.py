"""What the device dialects print: the constructs that make each device different. Needs neither TileLang nor nvcc."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dinfc.cli import run
from dinfc.device_slice import device_target, dialect_text, slice_programs
from dinfc.diagnostics import DinfcError
from dinfc.ir.parse import parse_module
from gpu.slice_case import Shapes

DEVICES = ("sm90", "sm100", "ascend950")
SMALL = Shapes(hidden=512, rank=128, heads=64, channels=256, listed=150)

# device, kernel class -> what its text must and must not hold
HOLDS = {
    ("sm90", "row"): (("lane_step", "T.sync_threads()", "dinfc_e4m3_encode"), ("T.gemm", "T.reduce")),
    ("sm90", "matmul"): (("T.Pipelined(4, num_stages=2)", "T.alloc_fragment((128, 128,)", "T.gemm(a_tile_bf16"),
                         ("tmem",)),
    ("sm90", "attend"): (("T.gemm(q_tile, key_tile, logit", "T.copy(logit, logit_sh)", "transpose_B=False"), ("tmem",)),
    ("sm100", "row"): (("lane_step", "dinfc_e4m3_encode"), ("T.alloc_tmem",)),
    ("sm100", "matmul"): (("T.alloc_tmem((128, 128,)", "T.tcgen05_gemm_blockscaled(a_tile, b_tile", "float8_e4m3fn",
                           "T.tcgen05_cp_warpx4", "T.mbarrier_wait_parity", "clear_accum=(ks == 0)"),
                          ("dinfc_e4m3_decode", "T.Pipelined")),
    ("sm100", "attend"): (("T.tcgen05_gemm(q_tile, key_tile, logit",
                           "T.tcgen05_gemm(p_bf16, key_tile[0 : 64, 128 : 256]",
                           "products_phase[0] = 1 - products_phase[0]", "o_1_1[part_i, part_j] ="), ("T.gemm(",)),
    ("ascend950", "row"): (("with T.Kernel(CORES, prelude=PRELUDE) as core:", "with T.SimtVF(threads=256):",
                            "T.rsqrt("),
                           ("alloc_l1",)),
    ("ascend950", "matmul"): (("T.MixedKernel(CORES, sids=1", "alloc_l0c", "T.copy(a_tile_bf16, a_tile_bf16_l1)",
                               "transpose_B=True", "instance = turn * CORES + core"),
                              ("T.Parallel", "transpose_B=False")),
    ("ascend950", "attend"): (("key_tile_t[turn_i, turn_j] = key_tile[turn_j, turn_i]", "T.exp(", "some_kept[0]",
                               "T.copy(q_tile, q_tile_l1)"), ("dinfc_exp", "transpose_B=False")),
}


def texts(device: str) -> dict[str, str]:
    target = device_target(device)
    return {p.anchor: dialect_text(p, target) for p in slice_programs(parse_module(SMALL.text()), target).values()}


@pytest.mark.parametrize("device", DEVICES)
def test_each_dialect_prints_what_its_device_is_about(device: str) -> None:
    for anchor, text in texts(device).items():
        ast.parse(text)
        present, absent = HOLDS[device, anchor]
        assert not [p for p in present if p not in text], (anchor, text)
        assert not [a for a in absent if a in text], (anchor, text)


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_input_gives_the_same_text(device: str) -> None:
    assert texts(device) == texts(device)


def test_a_wave_of_lanes_ends_in_a_tree_of_halves() -> None:
    """A row reduction is spelled out: 256 lanes, then 128, 64, .. 1."""
    text = texts("sm90")["row"]
    steps = [int(line.split("tx < ")[1].rstrip(":")) for line in text.splitlines() if "if tx < " in line]
    assert steps == [128, 64, 32, 16, 8, 4, 2, 1]


def test_emit_slice_writes_programs_and_texts(tmp_path: Path) -> None:
    source = tmp_path / "slice.ir"
    source.write_text(SMALL.text())
    out = tmp_path / "out"
    args = ["emit-slice", "--target", "sm100", "--no-build", "--file", str(source), "-o", str(out)]
    assert run(args) == 0
    names = sorted(p.stem for p in out.glob("*.tir"))
    assert len(names) == 3 and sorted(p.name for p in out.iterdir()) == sorted(
        f"{n}.{ending}" for n in names for ending in ("py", "tir"))


@pytest.mark.parametrize(("name", "code", "error"), [("sm80", 1, "E-TARGET-001"), ("cpu", 3, "E-TARGET-010")])
def test_a_target_without_a_slice_is_one_error_and_writes_nothing(
        name: str, code: int, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(["emit-slice", "--target", name, "-o", str(out)]) == code
    assert error in capsys.readouterr().err and not out.exists()


def test_a_kernel_that_does_not_fit_exits_with_3_and_writes_nothing(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "large.ir"
    source.write_text(Shapes(512, 128, 64, 2048, 150).text())
    out = tmp_path / "out"
    assert run(["emit-slice", "--target", "sm90", "--file", str(source), "-o", str(out)]) == 3
    error = capsys.readouterr().err
    assert "E-TARGET-011" in error and "bytes of shared memory" in error and not out.exists()


def test_whole_models_are_still_refused() -> None:
    from dinfc.pipeline import load_target

    for device in DEVICES:
        with pytest.raises(DinfcError) as caught:
            load_target(device)
        assert caught.value.code == "E-TARGET-009"
