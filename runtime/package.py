"""An opened package: its folder, its plan, and the pieces that commands assemble from it."""
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .checkpoint import open_checkpoint
from .errors import RuntimeFault
from .executor import Executor, Settings
from .library import KernelLibrary
from .memory import make_memory
from .plan import PLAN_FILE, Plan, check_file, check_machine, library_path, load_plan
from .token_map import load_token_map
from .weights import PackedWeights, load_weights
from .weights_plan import WEIGHTS_FILE, WeightsPlan, load_weights_plan

CONSTANTS_FILE, CONFIG_FILE = "constants.bin", "config.json"
PACK_FOLDER = "packed"


@dataclass(frozen=True)
class Package:
    """A package whose plan was read and found to fit this machine."""

    root: Path
    plan: Plan
    weights: WeightsPlan
    constants: tuple[NDArray[np.uint8], ...]

    def library(self, checked: bool = False) -> KernelLibrary:
        """The kernels. Raises RuntimeFault: E-PLAN-002, E-PLAN-004, E-RUN-013, E-RUN-018."""
        return KernelLibrary(library_path(self.root, self.plan, checked), self.plan)

    def executor(self, packed: PackedWeights, settings: Settings, library: KernelLibrary | None = None,
                 pages: int | None = None) -> Executor:
        """An executor with memory of its own; `pages`: as many instead of those that fit into memory."""
        memory = make_memory(self.plan, settings.poison, pages)
        tables = (*packed.buffers, *self.constants)
        return Executor(self.plan, library or self.library(), tables, memory, settings)

    def pack(self, checkpoint: Path, library: KernelLibrary, folder: Path | None, threads: int,
             progress: Callable[[float], None] = lambda _: None) -> PackedWeights:
        """The packed weights of a checkpoint folder. `folder`: where packed files are kept, by default in the package.

        Raises RuntimeFault: E-CKPT-*, E-RUN-016.
        """
        config = json.loads((self.root / CONFIG_FILE).read_text(encoding="utf-8"))
        opened = open_checkpoint(checkpoint, self.weights.tensors, config)
        token_map = load_token_map(checkpoint, self.plan.model)
        target = self.root / PACK_FOLDER if folder is None else folder
        return load_weights(self.weights, opened, library, target, token_map, threads, progress)


def open_package(root: Path) -> Package:
    """Reads and checks the package at `root`.

    Raises RuntimeFault: E-PLAN-001 to 003, E-RUN-005 (CPU features).
    """
    plan = load_plan(root)
    check_machine(plan)
    for name in (WEIGHTS_FILE, CONSTANTS_FILE, CONFIG_FILE):
        check_file(root, name, plan)
    return Package(root, plan, load_weights_plan(root), read_constants(root, plan))


def read_constants(root: Path, plan: Plan) -> tuple[NDArray[np.uint8], ...]:
    """Tables of constants.bin, in the plan's order. Raises RuntimeFault E-PLAN-003 for one outside the file."""
    block = np.memmap(root / CONSTANTS_FILE, np.uint8, "r") if plan.constants else np.empty(0, np.uint8)
    for constant in plan.constants:
        if constant.offset + constant.bytes > block.size:
            raise RuntimeFault("E-PLAN-003", path=root, reason=f"{PLAN_FILE} places {constant.name} behind its file")
    return tuple(block[c.offset : c.offset + c.bytes] for c in plan.constants)
