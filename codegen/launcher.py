"""The launcher's text: a plan's launch list as C++ tables and one generic loop (design sections 4a and 7, *Host side*).

The text goes into the kernel library of the CPU target as `launcher.cc`. One foreign call runs one entry of a step in
one OpenMP parallel region; between launches the threads meet at a spin barrier of our own (cpu-notes.md: half the price
of OpenMP's). Addresses are resolved from the tables at run time, so the text depends on the plan alone.
"""
from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import jinja2

from dinfc.ir.plan import LAUNCHER_ABI, Plan, Ref

from .emit.cpu_expr import identifier
from .emit.cpu_preamble import PREAMBLE

LAUNCHER_FILE = "launcher.cc"
SPACES = ("arena", "weight", "constant", "state", "step")


@dataclass(frozen=True)
class PlaceRow:
    """One line of the table of places; constants lie behind the weights."""

    space: str
    index: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class LaunchRow:
    """One line of the launch table; `places` are numbers of places, `first` the position of the first of them."""

    kernel: int
    first: int
    places: tuple[int, ...]
    loop: int
    comment: str


@dataclass(frozen=True)
class EntryRow:
    """One entry: launches [first, last)."""

    name: str
    first: int
    last: int


def kernel_order(plan: Plan) -> list[str]:
    """Kernels by the number that `dinfc_kernel` and the tables use: sorted names."""
    return sorted(plan.programs)


def entry_order(plan: Plan) -> list[str]:
    """Entries by the number that `dinfc_step.entry` uses: the order of the plan."""
    return list(plan.entries)


def bucket_sizes(plan: Plan) -> tuple[int, ...]:
    """Rows of every bucket, ascending; one bucket of max_tokens where the limits list none."""
    return plan.limits.buckets or (plan.limits.max_tokens,)


def place_rows(plan: Plan) -> tuple[list[PlaceRow], dict[Ref, int]]:
    """All different places in the order of first use, and the number of each ref's place.

    Raises ValueError for a ref whose space, index or number of offsets the plan does not have.
    """
    sizes = {"arena": 1, "step": 1, "weight": len(plan.weights), "constant": len(plan.constants),
             "state": len(plan.states)}
    buckets = len(bucket_sizes(plan))
    rows: list[PlaceRow] = []
    numbers: dict[Ref, int] = {}
    for launch in plan.launches:
        for ref in launch.args:
            if ref in numbers:
                continue
            if ref.space not in SPACES or not 0 <= ref.index < sizes[ref.space]:
                raise ValueError(f"launch {launch.origin!r} of {launch.kernel}: there is no {ref.space} {ref.index}")
            if len(ref.offsets) not in (1, buckets) or min(ref.offsets) < 0:
                raise ValueError(f"launch {launch.origin!r} of {launch.kernel}: bad offsets {ref.offsets}")
            offsets = ref.offsets if len(ref.offsets) == buckets else ref.offsets * buckets
            numbers[ref] = len(rows)
            if ref.space == "constant":
                rows.append(PlaceRow("weight", len(plan.weights) + ref.index, offsets))
            else:
                rows.append(PlaceRow(ref.space, ref.index, offsets))
    return rows, numbers


def check_loops(plan: Plan) -> None:
    """Raises ValueError unless every launch of a loop's range names the loop, no other does, and no entry cuts it."""
    for number, loop in enumerate(plan.loops):
        members = [i for i, launch in enumerate(plan.launches) if launch.loop == number]
        if members != list(range(loop.first, loop.last)) or loop.rows < 1 or not members:
            raise ValueError(f"loop {number} covers launches {loop.first} to {loop.last}, its members are {members}")
        if not any(first <= loop.first and loop.last <= last for first, last in plan.entries.values()):
            raise ValueError(f"loop {number} lies in no entry")
    if any(launch.loop >= len(plan.loops) for launch in plan.launches):
        raise ValueError("a launch names a loop that does not exist")


def emit_launcher(plan: Plan, checked: bool = False) -> str:
    """C++ text of the launcher. `checked`: stops after the launch in which a kernel reported an error.

    Raises ValueError for a plan whose tables contradict one another, KeyError for a launch of an unknown kernel.
    """
    check_loops(plan)
    names = kernel_order(plan)
    kernels = {name: i for i, name in enumerate(names)}
    places, numbers = place_rows(plan)
    rows = []
    first = 0
    for launch in plan.launches:
        refs = tuple(numbers[ref] for ref in launch.args)
        comment = " ".join(f"{launch.kernel}: {launch.origin}".split())
        rows.append(LaunchRow(kernels[launch.kernel], first, refs, launch.loop, comment))
        first += len(refs)
    return launcher_template().render(
        abi=LAUNCHER_ABI, preamble=PREAMBLE, checked=checked, kernels=[identifier(n) for n in names], places=places,
        launches=rows, loops=plan.loops, entries=[EntryRow(n, *plan.entries[n]) for n in entry_order(plan)],
        buckets=bucket_sizes(plan), most_arguments=max([1, *(len(r.places) for r in rows)]))


@cache
def launcher_template() -> jinja2.Template:
    """The template beside this file."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dinfc.codegen", "templates"), keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined, autoescape=False)
    return environment.get_template("launcher.cc.j2")
