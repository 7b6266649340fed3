"""Files of the runtime: damaged safetensors headers, files that appear whole or not at all, plans, the machine."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from dinfc.runtime import memory
from dinfc.runtime.checkpoint import ExpectedTensor, first_difference
from dinfc.runtime.errors import RuntimeFault, load_catalogue, render
from dinfc.runtime.memory import available_memory, human, page_count, slot_count
from dinfc.runtime.package import open_package, read_constants
from dinfc.runtime.plan import check_machine, cpu_flags, load_plan
from dinfc.runtime.random_weights import RandomTensors
from dinfc.runtime.safetensors_file import TensorWriter, read_header
from dinfc.runtime.weights import packing
from dinfc.runtime.weights_plan import parse_weights
from support.package import package

Header = dict[str, dict[str, object]]


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> Header:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_headers_are_read_as_the_library_writes_them(tmp_path: Path) -> None:
    save_file({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.uint8)}, tmp_path / "f",
              {"format": "pt"})
    found = read_header(tmp_path / "f")
    raw = (tmp_path / "f").read_bytes()
    assert found["a"].dtype == "F32" and found["a"].shape == (2, 3)
    assert np.frombuffer(raw[found["a"].start :][: found["a"].nbytes], np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert raw[found["b"].start :][: found["b"].nbytes] == bytes([0, 1, 2])


@pytest.mark.parametrize(("header", "data", "reason"), [
    (b"{", b"", "not JSON"), (b"\xff\xfe", b"", "not JSON"), ([], b"", "no object"), ({"x": 5}, b"", "malformed"),
    ({"x": {"dtype": "F32"}}, b"", "malformed"), (entry(shape="ab"), bytes(8), "malformed"),
    (entry("F7"), bytes(8), "unknown dtype"), (entry(offsets=(0, 7)), bytes(8), "does not take bytes"),
    (entry(shape=(3,)), bytes(8), "does not take bytes"), (entry(offsets=(8, 0)), bytes(8), "does not take bytes"),
    (entry(shape=(-1, -2)), bytes(8), "does not take bytes"), (entry(), bytes(7), "ends inside x"),
    (entry(), bytes(9), "follow the last tensor"), (entry(offsets=(-8, 0)), bytes(8), "does not take bytes"),
])
def test_a_damaged_header_is_refused(tmp_path: Path, header: object, data: bytes, reason: str) -> None:
    with pytest.raises(RuntimeFault, match=reason) as raised:
        read_header(write(tmp_path / "f", header, data))
    assert raised.value.code == "E-CKPT-006"


@pytest.mark.parametrize("content", [b"", b"1234567", (100).to_bytes(8, "little") + b"{}", b"\xff" * 16])
def test_a_file_without_a_whole_header_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(RuntimeFault, match="do not hold the header"):
        read_header(tmp_path / "f")


def test_rows_may_come_in_any_order_and_the_file_appears_when_all_are_there(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    with TensorWriter(tmp_path / "out", {"a": (4, 3), "b": (1, 3)}, "--logits") as writer:
        writer.write_rows("a", 2, rows[2:])
        writer.write_rows("b", 0, rows[1:2])
        writer.write_rows("a", 0, rows[:2])
        assert not (tmp_path / "out").exists()
    found = load_file(tmp_path / "out")
    assert (found["a"] == rows).all() and (found["b"] == rows[1:2]).all()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_writer_or_a_packer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TensorWriter(tmp_path / "out", {"a": (4, 3)}, "--logits"):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), packing(tmp_path / "packed", 4096):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def place_under_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("x")
    return tmp_path / "file" / "out"


@pytest.mark.parametrize("place", [place_under_file, lambda t: t / "absent" / "out"], ids=["under a file", "no folder"])
def test_a_place_that_cannot_be_written_is_an_error_of_the_option(
        tmp_path: Path, place: Callable[[Path], Path]) -> None:
    with pytest.raises(RuntimeFault) as raised:
        TensorWriter(place(tmp_path), {"a": (1, 1)}, "--logits")
    assert raised.value.code == "E-RUN-016" and raised.value.fields["option"] == "--logits"


def test_packed_weights_under_a_file_are_an_error_of_the_option(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault) as raised, packing(place_under_file(tmp_path), 4096):
        pass
    assert raised.value.code == "E-RUN-016" and raised.value.fields["option"] == "--pack-cache"


CPUINFO = "processor\t: 0\nvendor_id\t: X\nflags\t\t: fpu {}\nbugs\t\t: x\n\nprocessor\t: 1\nflags\t\t: other\n"


def test_cpu_features_are_those_of_the_first_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(CPUINFO.format("avx2 fma"))
    assert cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    assert cpu_flags(tmp_path / "none") == frozenset()


@pytest.mark.parametrize(("flags", "isa", "lacking", "hint"), [
    ("avx2 fma", "avx2", "f16c", "of that machine"), ("avx2 fma f16c", "avx512", "avx512f", "avx2"),
    ("sse2", "avx512", "avx512f, avx2, fma, f16c", "of that machine"),
])
def test_a_machine_without_the_features_is_told_which_and_what_to_do(
        tmp_path: Path, flags: str, isa: str, lacking: str, hint: str) -> None:
    needed = ("avx512f",) if isa == "avx512" else ()
    plan = replace(load_plan(package()), isa=isa, cpu_features=(*needed, "avx2", "fma", "f16c"))
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(flags))
    with pytest.raises(RuntimeFault) as raised:
        check_machine(plan, tmp_path / "cpuinfo")
    assert raised.value.code == "E-RUN-005"
    assert raised.value.fields == {"features": lacking, "hint": hint}
    (tmp_path / "cpuinfo").write_text(CPUINFO.format("avx512f avx2 fma f16c"))
    check_machine(plan, tmp_path / "cpuinfo")


def edited_plan(tmp_path: Path, edit: Callable[[dict[str, object]], object]) -> Path:
    raw = json.loads((package() / "plan.json").read_text())
    edit(raw)
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    return tmp_path


@pytest.mark.parametrize(("edit", "code"), [
    (lambda p: p.pop("arena"), "E-PLAN-003"), (lambda p: p.update(limits={"max_seqs": 1}), "E-PLAN-003"),
    (lambda p: p.update(step={"ids": [0]}), "E-PLAN-003"), (lambda p: p.update(entries=[1]), "E-PLAN-003"),
    (lambda p: p.update(launches=[[1]]), "E-PLAN-003"), (lambda p: p.update(format=2), "E-PLAN-001"),
    (lambda p: p.update(abi=9), "E-PLAN-001"), (lambda p: p.pop("format"), "E-PLAN-001"),
])
def test_a_plan_of_another_shape_or_version_is_refused(
        tmp_path: Path, edit: Callable[[dict[str, object]], object], code: str) -> None:
    with pytest.raises(RuntimeFault) as raised:
        load_plan(edited_plan(tmp_path, edit))
    assert raised.value.code == code


def test_a_table_behind_the_end_of_its_file_is_refused() -> None:
    plan = load_plan(package())
    last = replace(plan.constants[-1], offset=2**40)
    with pytest.raises(RuntimeFault, match=last.name):
        read_constants(package(), replace(plan, constants=(*plan.constants[:-1], last)))


def test_constants_start_at_cache_lines() -> None:
    opened = open_package(package())
    assert len(opened.constants) == len(opened.plan.constants) > 0
    assert all(table.ctypes.data % 64 == 0 for table in opened.constants)


@pytest.mark.parametrize("raw", [
    {"tensors": [], "buffers": []}, {"tensors": [], "buffers": [], "load": [["", ["a"], []]]},
    {"tensors": [], "buffers": [], "load": [["", ["a"], [[0, 0]]]]},
    {"tensors": [["x", "F32", 4, "backbone"]], "buffers": [], "load": []},
    {"tensors": [], "buffers": [["x", "bf16", [1], "2"]], "load": []},
])
def test_a_malformed_weights_plan_is_refused(raw: dict[str, list[list[object]]]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_weights(raw, "")


def test_pages_fill_the_share_of_memory_or_what_the_limits_can_use() -> None:
    plan = load_plan(package())
    most = plan.limits.max_seqs * plan.max_pages
    assert page_count(plan, 2**40) == most + 1
    some = replace(plan, memory_fraction=0.5)
    assert page_count(some, 2 * 9 * plan.page_bytes) == 10
    with pytest.raises(RuntimeFault) as raised:
        page_count(some, 2 * plan.page_bytes * (plan.max_pages - 1))
    assert raised.value.code == "E-RUN-012"
    assert slot_count(plan) == 10  # 1.2 slots a sequence, and the reserved one


def test_a_buffer_that_the_system_refuses_is_an_error_with_sizes() -> None:
    with pytest.raises(RuntimeFault) as raised:
        memory.allocate(2**60)
    assert raised.value.code == "E-RUN-012" and raised.value.fields["needed"] == "1048576.0 TiB"


def test_sizes_for_people_and_what_linux_says_is_free(tmp_path: Path) -> None:
    assert [human(n) for n in (890, 1024, 3 * 2**20, 475 * 2**30)] == ["890 B", "1.0 KiB", "3.0 MiB", "475.0 GiB"]
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   7 kB\n")
    assert available_memory(tmp_path / "meminfo") == 7 * 1024


def test_random_weights_do_not_depend_on_which_others_are_read() -> None:
    table = {n: ExpectedTensor(n, d, s, "backbone") for n, d, s in (
        ("a.weight", "F8_E4M3", (64, 32)), ("a.scale", "F8_E8M0", (2, 1)), ("norm.weight", "BF16", (64,)),
        ("bias", "F32", (8,)))}
    one, other = RandomTensors(table, 1), RandomTensors(table, 2)
    first = {n: one.read(n).tobytes() for n in table}
    assert {n: one.read(n).tobytes() for n in reversed(list(table))} == first
    assert other.read("a.weight").tobytes() != first["a.weight"]
    codes = np.frombuffer(first["a.weight"], np.uint8)
    assert codes.size == 2048 and not ((codes & 0x7F) == 0x7F).any(), "no NaN"
    assert len(first["norm.weight"]) == 128 and len(first["bias"]) == 32


def test_the_first_field_that_two_configurations_disagree_about_is_named() -> None:
    ours = {"a": 1, "text": {"rope": [1, 2], "only_ours": 5}}
    assert first_difference(ours, {"a": 1, "text": {"rope": [1, 2], "theirs": 7}}, "") is None
    assert first_difference(ours, {"a": 1, "text": {"rope": [1, 3]}}, "") == ("text.rope", [1, 2], [1, 3])


def test_an_error_is_told_even_without_the_catalogue(tmp_path: Path) -> None:
    fault = RuntimeFault("E-RUN-008", path="nowhere", place="here")
    assert render(fault, load_catalogue(package())).splitlines()[0] == "E-RUN-008: there is no file nowhere"
    for content in (None, "[]", "{"):
        if content is not None:
            (tmp_path / "catalogue.json").write_text(content)
        text = render(fault, load_catalogue(tmp_path))
        assert text.startswith("E-RUN-008: path: nowhere") and "  at   here" in text and "  mend " in text
