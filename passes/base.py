"""What a pass is: a frozen dataclass whose fields are its options, and the context that passes share."""
from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar

from dinfc.ir.graph import Module
from dinfc.ir.plan import Plan, WeightRecipe
from dinfc.ir.protocols import Target
from dinfc.ir.tile.program import Program
from dinfc.ir.types import Limits

if TYPE_CHECKING:
    from .frame import Arena, Frame
    from .rules import Rule

ENTRY_POINT = "dinfc.passes"


class Level(IntEnum):
    """How far a module is lowered; `passes/levels.py` checks each one on the IR itself.

    `any`: well typed; `primitive`: no composite op; `pinned`: every reduction carries its order; `fused`: functions
    hold only regions, calls, views and constants; `laid_out`: weights have their storage layout; `scheduled`: every
    region names a tile program; `placed`: every function has a frame; `planned`: the plan is complete.
    """

    any = 0
    primitive = 1
    pinned = 2
    fused = 3
    laid_out = 4
    scheduled = 5
    placed = 6
    planned = 7


@dataclass
class Context:
    """What passes share besides the module: the target, the limits, and what they produce for later ones.

    `max_logit_rows`: bound of R. `recipes`: how weights are made from checkpoint tensors, by forward parameter; a
    weight without one is the checkpoint tensor of its own name. `programs`: tile programs by kernel name (`schedule`).
    `frames`, `arena`: frame layout by function, and of a step (`plan_memory`). `fired`: how often each rule of each
    pass fired. `notes`: what passes have to tell, by pass name; shown by `-v` and `dinfc plan`.
    """

    target: Target
    limits: Limits
    max_logit_rows: int
    recipes: Mapping[str, WeightRecipe] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    arena: Arena | None = None
    plan: Plan | None = None
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def note(self, name: str, text: str) -> None:
        self.notes.setdefault(name, []).append(text)


@dataclass(frozen=True)
class Pass:
    """One pass. Subclasses set `name` (verb_object, snake_case), fields with defaults as options, and `run`."""

    name: ClassVar[str] = ""
    requires: ClassVar[Level] = Level.any
    guarantees: ClassVar[Level] = Level.any
    rules: ClassVar[tuple[Rule, ...]] = ()

    def run(self, module: Module, context: Context) -> Module:
        """Transforms the module. Raises IRError or DinfcError where it cannot."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The pipeline text that gives this pass back: the name, and the options that differ from their defaults."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        changed = [
            f"{f.name}={str(values[f.name]).lower() if isinstance(f.default, bool) else values[f.name]}"
            for f in dataclasses.fields(self) if values[f.name] != f.default
        ]
        return self.name + ("{" + ",".join(changed) + "}" if changed else "")


def known_passes(builtin: Sequence[type[Pass]]) -> dict[str, type[Pass]]:
    """Passes by name: the built-in ones and those that installed packages register as entry points `dinfc.passes`.

    Raises ValueError if two passes share a name, or an entry point is no pass or has another name than its pass.
    """
    known: dict[str, type[Pass]] = {}

    def add(cls: type[Pass], origin: str) -> None:
        if cls.name in known:
            raise ValueError(f"pass {cls.name!r} of {origin} has the name of {known[cls.name].__module__}")
        known[cls.name] = cls

    for cls in builtin:
        add(cls, cls.__module__)
    for point in sorted(entry_points(group=ENTRY_POINT), key=lambda p: (p.name, p.value)):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Pass)):
            raise ValueError(f"entry point {point.name} = {point.value} is no pass")
        if loaded.name != point.name:
            raise ValueError(f"entry point {point.name} = {point.value} is called {loaded.name!r} in its class")
        add(loaded, point.value)
    return known
