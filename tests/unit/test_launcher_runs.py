"""A plan made by hand, through the launcher's text and the C++ compiler: loops, buckets, threads, failing checks."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from dinfc.codegen.emit.cpu_build import build_library
from dinfc.codegen.emit.cpu_sources import library_sources
from dinfc.codegen.launcher import LAUNCHER_FILE, emit_launcher, kernel_order
from dinfc.ir.plan import Launch, Loop, Plan, Ref
from dinfc.ir.tile.parse import parse_program
from dinfc.ir.types import Limits
from dinfc.runtime.errors import RuntimeFault
from dinfc.runtime.library import KernelLibrary, StepArgs
from dinfc.runtime.plan import Launch as LaunchLine
from dinfc.runtime.plan import Plan as RuntimePlan
from support.compiled_model import CACHE

ROWS = 8  # rows of a buffer in the largest bucket
BUFFER = ROWS * 4
PICK = """kernel @pick anchor row functions dinfc-f32 {
  param table: f32[4] global in
  param where: i32[T] global in
  param picked: f32[T] global out
  grid t in T
  picked[t] = table[where[t]]
}
"""
# reads what `pick` wrote for another row: wrong unless all threads met in between
TURN = """kernel @turn anchor row functions dinfc-f32 {
  param picked: f32[T] global in
  param turned: f32[T] global out
  grid t in T
  turned[t] = add(picked[sub(sub(T, 1), t)], 100.0)
}
"""
CHUNK = """kernel @chunk anchor row functions dinfc-f32 {
  param first: i32[T] global inout
  param count: i32[T] global inout
  grid r in rows
  first[add(row0, r)] = row0
  count[add(row0, r)] = add(count[add(row0, r)], rows)
}
"""


def arena(number: int) -> Ref:
    """Buffer `number`; the small bucket packs buffers more tightly."""
    return Ref("arena", 0, (number * 16, number * BUFFER))


@lru_cache(maxsize=2)
def library(checked: bool) -> KernelLibrary:
    programs = {p.name: p for p in map(parse_program, (PICK, TURN, CHUNK))}
    launches = [Launch("pick", (Ref("constant", 0, (0,)), Ref("step", 0, (0,)), arena(0)), origin="picks"),
                Launch("turn", (arena(0), arena(1)), origin="turns"),
                Launch("chunk", (arena(2), arena(3)), loop=0, origin="chunks")]
    plan = Plan(Limits(1, ROWS, 128, 64, (4, ROWS)), 1, (64, 4 * BUFFER), constants=["table"], launches=launches,
                loops=[Loop(2, 3, 3, "rows")], entries={"rows": (0, 2), "chunks": (2, 3)}, programs=programs)
    sources = library_sources([programs[n] for n in kernel_order(plan)], checked)
    sources[LAUNCHER_FILE] = emit_launcher(plan, checked)
    made = build_library(sources, Path(mkdtemp(prefix="dinfc-launcher-")) / "k.so", checked=checked, cache=CACHE)
    lines = tuple(LaunchLine(launch.kernel, launch.origin) for launch in launches)
    facts = SimpleNamespace(kernels=dict.fromkeys(kernel_order(plan), "row"), launches=lines)
    return KernelLibrary(made, cast(RuntimePlan, facts))


@dataclass
class Memory:
    """What a step works on."""

    arena: np.ndarray
    step: np.ndarray

    def rows(self, buffer: int, count: int, tight: bool = False) -> np.ndarray:
        return self.arena[buffer * (4 if tight else ROWS) :][:count]


def run(entry: int, rows: int, where: Sequence[int] = (), bucket: int = -1, threads: int = 1,
        checked: bool = False) -> Memory:
    memory = Memory(np.zeros(4 * ROWS, np.int32), np.array([*where, *[0] * (ROWS - len(where))], np.int32))
    table = np.array([10, 11, 12, 13], np.float32)
    tables = (ctypes.c_void_p * 1)(table.ctypes.data)
    library(checked).run(StepArgs(
        abi=1, entry=entry, T=rows, S=1, R=0, bucket=bucket, first=-1, last=-1, threads=threads, slots=1, pages=1,
        arena=memory.arena.ctypes.data, weights=ctypes.addressof(tables), states=None, step=memory.step.ctypes.data,
        stream=None))
    return memory


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("bucket", [-1, 0, 1])
def test_a_launch_sees_all_rows_of_the_one_before(bucket: int, threads: int, checked: bool) -> None:
    for _ in range(20):
        memory = run(0, 4, [3, 1, 0, 2], bucket, threads, checked)
        tight = bucket < 1  # 4 rows fit into the small bucket
        assert memory.rows(1, 4, tight).view(np.float32).tolist() == [112, 110, 111, 113]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
def test_a_loop_covers_every_row_once_and_its_last_chunk_is_short(rows: int, threads: int) -> None:
    memory = run(1, rows, bucket=1, threads=threads)
    assert memory.rows(2, rows).tolist() == [3 * (r // 3) for r in range(rows)]
    assert memory.rows(3, rows).tolist() == [min(3, rows - 3 * (r // 3)) for r in range(rows)]
    assert not memory.rows(3, ROWS)[rows:].any()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failed_check_stops_the_step_names_the_place_and_leaves_the_library_usable(threads: int) -> None:
    with pytest.raises(RuntimeFault) as raised:
        run(0, 3, [0, 4, 1], threads=threads, checked=True)
    fault = raised.value
    assert fault.code == "E-RUN-014" and fault.fields["kernel"] == "pick" and fault.fields["origin"] == "picks"
    assert "table" in str(fault.fields["reason"]) and "4" in str(fault.fields["reason"])
    memory = run(0, 2, [3, 2], threads=threads, checked=True)
    assert memory.rows(1, 2, tight=True).view(np.float32).tolist() == [112, 113]


def test_nothing_runs_after_the_launch_that_failed() -> None:
    memory = np.zeros(4 * ROWS, np.int32)
    table, step = np.zeros(4, np.float32), np.array([9], np.int32)
    tables = (ctypes.c_void_p * 1)(table.ctypes.data)
    with pytest.raises(RuntimeFault):
        library(True).run(StepArgs(
            abi=1, entry=0, T=1, S=1, R=0, bucket=-1, first=-1, last=-1, threads=1, slots=1, pages=1, states=None,
            arena=memory.ctypes.data, weights=ctypes.addressof(tables), step=step.ctypes.data, stream=None))
    assert not memory.any(), "`turn` would have written 100"
