"""The launcher: its text refuses plans that contradict themselves, the compiled one steps that it cannot run."""
from __future__ import annotations

from dataclasses import replace

import pytest

from dinfc.codegen.launcher import emit_launcher, place_rows
from dinfc.ir.plan import Launch, Loop, Plan, Ref, StateBuffer, WeightBuffer
from dinfc.ir.types import Limits
from dinfc.runtime.errors import RuntimeFault
from dinfc.runtime.library import KernelContext, StepArgs
from support.compiled_model import scheduled_model
from support.package import executor, package

ARENA = Ref("arena", 0, (0, 64, 256))


def small_plan(**changes: object) -> Plan:
    """Two launches of one kernel in one entry; three buckets. Fields may be replaced."""
    name, program = next(iter(sorted(scheduled_model("tiny-test").context.programs.items())))
    launches = [Launch(name, (ARENA, Ref("weight", 0, (128,))), origin="first  line\nsecond"),
                Launch(name, (Ref("constant", 0, (0,)), Ref("state", 0, (8,)), ARENA), loop=0, origin="looped")]
    plan = Plan(Limits(2, 64, 256, 1024, (1, 8, 64)), 4, (1024,) * 3, [StateBuffer("ring", "ring", 16, "u8")],
                [WeightBuffer("w", "bf16", (4, 4), 32)], ["table"], launches, [Loop(1, 2, 3, "scores")],
                {"prepare": (0, 0), "forward": (0, 2)}, programs={name: program})
    return replace(plan, **changes)  # type: ignore[arg-type]


def test_constants_lie_behind_the_weights_and_every_place_occurs_once() -> None:
    rows, numbers = place_rows(small_plan())
    assert [(r.space, r.index, r.offsets) for r in rows] == [
        ("arena", 0, (0, 64, 256)), ("weight", 0, (128, 128, 128)), ("weight", 1, (0, 0, 0)), ("state", 0, (8, 8, 8))]
    assert numbers[ARENA] == 0


def test_origins_stay_inside_their_comment() -> None:
    """A line break in an origin would turn the rest of it into code."""
    lines = [line for line in emit_launcher(small_plan()).splitlines() if line.rstrip().endswith("second")]
    assert len(lines) == 1 and lines[0].endswith("first line second") and "// 0 " in lines[0]


@pytest.mark.parametrize(("ref", "message"), [
    (Ref("weight", 1, (0,)), "there is no weight 1"), (Ref("constant", 1, (0,)), "there is no constant 1"),
    (Ref("state", -1, (0,)), "there is no state -1"), (Ref("heap", 0, (0,)), "there is no heap 0"),
    (Ref("arena", 1, (0,)), "there is no arena 1"), (Ref("arena", 0, (0, 0)), "bad offsets"),
    (Ref("arena", 0, (0, -64, 0)), "bad offsets"),
])
def test_an_argument_outside_the_plan_is_refused(ref: Ref, message: str) -> None:
    plan = small_plan()
    launches = [replace(plan.launches[0], args=(ref,)), plan.launches[1]]
    with pytest.raises(ValueError, match=message):
        emit_launcher(replace(plan, launches=launches))


@pytest.mark.parametrize(("change", "message"), [
    ({"loops": [Loop(0, 2, 3, "x")]}, "its members are"), ({"loops": [Loop(1, 2, 0, "x")]}, "its members are"),
    ({"entries": {"forward": (0, 1)}}, "lies in no entry"), ({"loops": []}, "loop that does not exist"),
])
def test_loops_that_contradict_the_launches_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emit_launcher(small_plan(**change))


def test_a_kernel_that_no_program_defines_is_refused() -> None:
    plan = small_plan()
    with pytest.raises(KeyError):
        emit_launcher(replace(plan, launches=[replace(launch, kernel="other") for launch in plan.launches]))


def arguments(**changes: int) -> StepArgs:
    """A step that would be refused before any address is used."""
    given = {"abi": 1, "entry": 0, "T": 1, "S": 1, "R": 0, "bucket": -1, "first": -1, "last": -1, "threads": 1}
    return StepArgs(**{**given, **changes})


@pytest.mark.parametrize(("changes", "reason"), [
    ({"abi": 2}, "another launcher ABI"), ({"entry": 99}, "no such entry"), ({"T": 65}, "outside the buckets"),
    ({"T": 0}, "outside the buckets"), ({"S": 0}, "outside the buckets"), ({"R": -1}, "outside the buckets"),
    ({"T": 2, "bucket": 0}, "outside the buckets"), ({"bucket": 3}, "outside the buckets"),
    ({"first": 5, "last": 4}, "no such entry, range"), ({"last": 10**6}, "no such entry, range"),
])
def test_a_step_that_does_not_fit_is_refused_before_anything_runs(changes: dict[str, int], reason: str) -> None:
    library = executor(package()).library
    with pytest.raises(RuntimeFault, match=reason) as raised:
        library.run(arguments(**changes))
    assert raised.value.code == "E-RUN-019"


def test_a_range_that_cuts_a_row_chunk_loop_is_refused() -> None:
    runner = executor(package())
    plan = runner.plan
    first, last, _ = next(item for item in plan.loops if item[1] - item[0] > 1)
    entry = next(i for i, (a, b) in enumerate(plan.entries.values()) if a <= first and last <= b)
    with pytest.raises(RuntimeFault, match="range"):
        runner.library.run(arguments(entry=entry, first=first + 1))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(RuntimeFault, match="no_such_kernel"):
        executor(package()).library.kernel("no_such_kernel", [], 1, KernelContext())
