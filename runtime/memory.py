"""Memory of a running package: the arena, the state buffers, and how many pages fit."""
from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import RuntimeFault
from .plan import Plan

POISON = 0xFF  # NaN as bf16, f32, e4m3 and e8m0; -1 as an integer
SLOT_RESERVE = 1.2  # state slots for a sequence in a step (spec 2.11): some are between two steps
MEMINFO = Path("/proc/meminfo")

Bytes = NDArray[np.uint8]


def allocate(size: int, poison: bool = False) -> Bytes:
    """`size` bytes at a page boundary (so 64-byte aligned), in huge pages where the system has them.

    Raises RuntimeFault E-RUN-012 if the system refuses.
    """
    try:
        block = mmap.mmap(-1, max(size, 1))
    except (OSError, OverflowError, ValueError):
        available = human(available_memory())
        raise RuntimeFault("E-RUN-012", what="a buffer", needed=human(size), available=available) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without transparent huge pages: only slower
            block.madvise(mmap.MADV_HUGEPAGE)
    array: Bytes = np.frombuffer(block, np.uint8)[:size]
    if poison:
        array.fill(POISON)
    return array


def address(array: NDArray[np.generic]) -> int:
    """Where an array's first byte lies."""
    return int(array.ctypes.data)


def available_memory(meminfo: Path = MEMINFO) -> int:
    """Bytes that new allocations may take without swapping, as Linux estimates it."""
    for line in meminfo.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0


def slot_count(plan: Plan) -> int:
    """State slots, the reserved slot 0 included (spec 2.11)."""
    return int(plan.limits.max_seqs * SLOT_RESERVE) + 1


def page_count(plan: Plan, available: int) -> int:
    """Pages, the reserved page 0 included: what the limits can use, or what fits into the plan's share of memory.

    Raises RuntimeFault E-RUN-012 if not even one sequence of max_len fits.
    """
    wanted = plan.limits.max_seqs * plan.max_pages
    if not plan.page_bytes:
        return wanted + 1
    fitting = int(plan.memory_fraction * available) // plan.page_bytes
    if fitting < plan.max_pages:
        needed = human(plan.max_pages * plan.page_bytes)
        raise RuntimeFault("E-RUN-012", what=f"a sequence of {plan.limits.max_len} tokens", needed=needed,
                           available=human(int(plan.memory_fraction * available)))
    return min(wanted, fitting) + 1


@dataclass
class Memory:
    """Scratch and states of one executor. `states` are in the plan's order."""

    arena: Bytes
    states: list[Bytes]
    slots: int
    pages: int


def make_memory(plan: Plan, poison: bool = False, pages: int | None = None) -> Memory:
    """Allocates what the plan needs. `poison`: everything starts as 0xFF, so that a read before the first write shows.

    `pages`: as many instead of those that fit. Raises RuntimeFault E-RUN-012.
    """
    slots = slot_count(plan)
    count = page_count(plan, available_memory()) if pages is None else pages
    states = [allocate(s.unit_bytes * (count if s.kind == "pages" else slots), poison) for s in plan.states]
    return Memory(allocate(max(plan.arena), poison), states, slots, count)


def human(size: int) -> str:
    """A size for people: 890 B, 3.0 KiB, 475.2 GiB."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
