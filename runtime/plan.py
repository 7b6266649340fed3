"""Reading plan.json: the plan as dataclasses, checked against this runtime and this machine.

The file is written by dinfc's `codegen/plan_json.py`. Offsets and sizes are bytes, counts are elements.
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .errors import RuntimeFault

PLAN_FILE = "plan.json"
PLAN_FORMAT = 1
LAUNCHER_ABI = 1
LIBRARY, CHECKED_LIBRARY = "libkernels.so", "libkernels_checked.so"
SOURCES = "kernels/src"  # with build.sh
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class ModelFacts:
    """What the runtime must know of the model. `compressed_vocab` 0: no Engram, no token map."""

    name: str
    vocab_size: int
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    backtrack: int  # B_max: tokens a sequence may roll back
    engram_pad_token_id: int = 0
    compressed_vocab: int = 0


@dataclass(frozen=True)
class Limits:
    """Bounds of a step and of a sequence."""

    max_seqs: int
    max_tokens: int
    max_len: int
    score_bytes: int


@dataclass(frozen=True)
class StepField:
    """A field of the step input: its first int32 and its maximum length."""

    offset: int
    length: int


@dataclass(frozen=True)
class State:
    """A persistent buffer: `unit_bytes` for each slot (kind ring) or each page (kind pages)."""

    name: str
    kind: str
    unit_bytes: int
    dtype: str


@dataclass(frozen=True)
class Constant:
    """A table in constants.bin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class Output:
    """A result that the runtime reads: an arena offset for each bucket; dims are numbers or T, S, R."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """One line of the launch list, for messages and `info`."""

    kernel: str
    origin: str


@dataclass(frozen=True)
class Plan:
    """plan.json. `entries`: name -> launches [first, last), in the order of the launcher's numbers; `kernels`: names
    in the order of the launcher's numbers, with their anchor class; `files`: path -> sha256."""

    target: str
    isa: str
    cpu_features: tuple[str, ...]
    model: ModelFacts
    limits: Limits
    buckets: tuple[int, ...]
    max_logit_rows: int
    page_tokens: int
    max_pages: int
    memory_fraction: float
    step: Mapping[str, StepField]
    arena: tuple[int, ...]
    states: tuple[State, ...]
    constants: tuple[Constant, ...]
    weight_bytes: int
    outputs: Mapping[str, Output]
    entries: Mapping[str, tuple[int, int]]
    kernels: Mapping[str, str]
    launches: tuple[Launch, ...]
    loops: tuple[tuple[int, int, int], ...]
    memory: Mapping[str, int]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def page_bytes(self) -> int:
        return sum(s.unit_bytes for s in self.states if s.kind == "pages")

    @property
    def slot_bytes(self) -> int:
        return sum(s.unit_bytes for s in self.states if s.kind == "ring")


def load_plan(root: Path) -> Plan:
    """The plan of the package at `root`.

    Raises RuntimeFault: E-PLAN-003 (no package, unreadable plan), E-PLAN-001 (another format or launcher ABI).
    """
    path = root / PLAN_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RuntimeFault("E-PLAN-003", path=root, reason=f"it has no {PLAN_FILE}") from None
    except (OSError, ValueError) as error:
        raise RuntimeFault("E-PLAN-003", path=root, reason=f"{PLAN_FILE} cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise RuntimeFault("E-PLAN-003", path=root, reason=f"{PLAN_FILE} holds no object")
    found = (raw.get("format"), raw.get("abi"))
    if found != (PLAN_FORMAT, LAUNCHER_ABI):
        raise RuntimeFault("E-PLAN-001", found=f"{found[0]} (launcher {found[1]})",
                           expected=f"{PLAN_FORMAT} (launcher {LAUNCHER_ABI})", place=path)
    try:
        return _plan(raw)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        reason = f"{PLAN_FILE} is incomplete ({type(error).__name__}: {error})"
        raise RuntimeFault("E-PLAN-003", path=root, reason=reason) from None


def _plan(raw: Mapping[str, Any]) -> Plan:
    return Plan(
        target=str(raw["target"]),
        isa=str(raw["isa"]),
        cpu_features=tuple(raw["cpu_features"]),
        model=ModelFacts(**{f.name: raw["model"][f.name] for f in fields(ModelFacts)}),
        limits=Limits(**{f.name: int(raw["limits"][f.name]) for f in fields(Limits)}),
        buckets=tuple(raw["buckets"]),
        max_logit_rows=int(raw["max_logit_rows"]),
        page_tokens=int(raw["page_tokens"]),
        max_pages=int(raw["max_pages"]),
        memory_fraction=float(raw["memory_fraction"]),
        step={name: StepField(*pair) for name, pair in raw["step"].items()},
        arena=tuple(raw["arena"]),
        states=tuple(State(**s) for s in raw["states"]),
        constants=tuple(Constant(c["name"], c["dtype"], tuple(c["shape"]), c["offset"], c["bytes"])
                        for c in raw["constants"]),
        weight_bytes=int(raw["weight_bytes"]),
        outputs={o["name"]: Output(o["name"], o["dtype"], tuple(o["shape"]), tuple(o["offsets"]))
                 for o in raw["outputs"]},
        entries={name: (int(first), int(last)) for name, (first, last) in raw["entries"].items()},
        kernels={k["name"]: k["anchor"] for k in raw["kernels"]},
        launches=tuple(Launch(item[0], item[3]) for item in raw["launches"]),
        loops=tuple((item["first"], item["last"], item["rows"]) for item in raw["loops"]),
        memory=dict(raw["memory"]),
        files=dict(raw["files"]),
    )


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Feature flags of the first CPU as Linux names them; empty where the file does not tell."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def check_machine(plan: Plan, cpuinfo: Path = CPUINFO) -> None:
    """Raises RuntimeFault E-RUN-005 unless the CPU has what the kernels were compiled for: they would not fail with
    an error, but kill the process."""
    flags = cpu_flags(cpuinfo)
    lacking = [name for name in plan.cpu_features if name not in flags]
    if lacking:
        hint = "avx2" if {"avx2", "fma"} <= flags and plan.isa != "avx2" else "of that machine"
        raise RuntimeFault("E-RUN-005", features=", ".join(lacking), hint=hint)


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(root: Path, name: str, plan: Plan) -> None:
    """Raises RuntimeFault E-PLAN-002 if a file of the package is missing or is not what the compiler wrote.

    A file without a recorded hash (a library that build.sh made on this machine) is taken as it is.
    """
    expected = plan.files.get(name)
    path = root / name
    if not path.is_file() or (expected is not None and file_hash(path) != expected):
        raise RuntimeFault("E-PLAN-002", path=path)


def library_path(root: Path, plan: Plan, checked: bool = False) -> Path:
    """The kernel library, after its hash was compared.

    Raises RuntimeFault: E-PLAN-004 (not built), E-PLAN-002 (damaged), E-RUN-018 (no checked build in the package).
    """
    name = CHECKED_LIBRARY if checked else LIBRARY
    if not (root / name).is_file() and name not in plan.files:
        if checked:
            raise RuntimeFault("E-RUN-018", path=root)
        raise RuntimeFault("E-PLAN-004", path=root / SOURCES)
    check_file(root, name, plan)
    return root / name
